"""Which members were given up on, since they survived SIGKILL."""

import sqlalchemy as sa
from alembic.operations import Operations

revision = "0007"
down_revision = "0006"


def upgrade(op: Operations) -> None:
    """Add that; nobody is known to be."""
    op.add_column("worker", sa.Column("disowned", sa.Boolean(), server_default=sa.false(), nullable=False))
