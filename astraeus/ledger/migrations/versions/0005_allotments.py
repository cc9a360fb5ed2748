"""Quotas and fair shares of workspaces, and how long use takes to count half."""

import sqlalchemy as sa
from alembic.operations import Operations

revision = "0005"
down_revision = "0004"


def upgrade(op: Operations) -> None:
    """Add them; nobody has a quota or a share."""
    op.add_column("cluster", sa.Column("half_life_seconds", sa.Double(), server_default="604800", nullable=False))
    op.create_table(
        "allotment",
        sa.Column("workspace", sa.String(length=32), nullable=False),
        sa.Column("cluster", sa.String(length=63), nullable=False),
        sa.Column("gpu_quota", sa.Integer(), nullable=True),
        sa.Column("share", sa.Double(), nullable=True),
        sa.Column("used", sa.Double(), server_default="0", nullable=False),
        sa.Column("used_at", sa.Double(), server_default="0", nullable=False),
        sa.CheckConstraint("gpu_quota >= 0", name=op.f("ck_allotment_gpu_quota")),
        sa.CheckConstraint("share > 0", name=op.f("ck_allotment_share")),
        sa.ForeignKeyConstraint(["workspace"], ["workspace.id"], name="fk_allotment_workspace"),
        sa.ForeignKeyConstraint(["cluster"], ["cluster.name"], name="fk_allotment_cluster"),
        sa.PrimaryKeyConstraint("workspace", "cluster", name="pk_allotment"),
    )
