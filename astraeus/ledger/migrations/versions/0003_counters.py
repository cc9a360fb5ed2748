"""The error counters of a fabric's last scans, by which they are judged as rates."""

import sqlalchemy as sa
from alembic.operations import Operations

revision = "0003"
down_revision = "0002"


def upgrade(op: Operations) -> None:
    """Add them."""
    op.add_column("topology_fabric", sa.Column("counters", sa.LargeBinary(), nullable=True))
