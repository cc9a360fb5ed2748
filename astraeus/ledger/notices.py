"""What happens to a cluster's machines, told in every workspace that uses the cluster."""

from sqlalchemy import select

from astraeus.ledger.core import Tx
from astraeus.ledger.events import record
from astraeus.ledger.tables import workspace


async def cluster_event(tx: Tx, cluster: str, kind: str, actor: str, message: str) -> None:
    """Write an event to each workspace whose default cluster this is."""
    query = select(workspace.c.id).where(workspace.c.default_cluster == cluster).order_by(workspace.c.id)
    for workspace_id in list(await tx.conn.scalars(query)):
        await record(tx, workspace_id, kind, actor, message)
