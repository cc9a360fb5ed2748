"""Runs whose workers start one by one: each worker is a run of its own, under the one that users see."""

import sqlalchemy as sa
from alembic.operations import Operations

revision = "0004"
down_revision = "0003"

LIVE = "NOT final AND delete_asked_at IS NULL AND parent IS NULL"


def upgrade(op: Operations) -> None:
    """Add who belongs to whom; names are of the runs that users see alone."""
    op.add_column("run", sa.Column("parent", sa.String(length=32), nullable=True))
    op.add_column("run", sa.Column("rank", sa.Integer(), nullable=True))
    op.add_column("run", sa.Column("size", sa.Integer(), nullable=True))
    op.add_column("event", sa.Column("worker", sa.String(length=63), nullable=True))
    op.drop_index("uq_run_live_name", table_name="run")
    op.create_index(
        "uq_run_live_name",
        "run",
        ["workspace", "name"],
        unique=True,
        sqlite_where=sa.text(LIVE),
        postgresql_where=sa.text(LIVE),
    )
    op.create_index(
        "ix_run_parent",
        "run",
        ["parent", "rank"],
        sqlite_where=sa.text("parent IS NOT NULL"),
        postgresql_where=sa.text("parent IS NOT NULL"),
    )
