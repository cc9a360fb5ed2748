"""${message}"""

import sqlalchemy as sa
from alembic.operations import Operations
${imports if imports else ""}
revision = ${repr(up_revision)}
down_revision = ${repr(down_revision)}


def upgrade(op: Operations) -> None:
    """Apply the change."""
    ${upgrades if upgrades else "pass"}
