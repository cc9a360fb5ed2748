"""Since when a machine is heard without a gap, and since when a member is wanted stopped."""

import sqlalchemy as sa
from alembic.operations import Operations

revision = "0006"
down_revision = "0005"


def upgrade(op: Operations) -> None:
    """Add them; contact is reckoned from the next heartbeat."""
    op.add_column("machine", sa.Column("heard_since", sa.Double(), nullable=True))
    op.add_column("worker", sa.Column("stop_at", sa.Double(), nullable=True))
