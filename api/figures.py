"""The ledger counted for Prometheus, in a constant number of queries."""

from sqlalchemy import and_, func, select

from api.metrics import Figures
from astraeus.ledger.core import Tx
from astraeus.ledger.runs import SEEN
from astraeus.ledger.tables import claim, machine, outbox, run


async def figures(tx: Tx) -> Figures:
    """Counts by cluster and state."""
    shown = Figures()
    runs = select(run.c.cluster, run.c.state, func.count()).where(*SEEN)
    for cluster, state, count in await tx.conn.execute(runs.group_by(run.c.cluster, run.c.state)):
        shown.runs[cluster, state] = count
    waiting = select(claim.c.cluster, func.count()).where(claim.c.state == "Waiting").group_by(claim.c.cluster)
    for cluster, count in await tx.conn.execute(waiting):
        shown.waiting_claims[cluster] = count
    unsent = select(outbox.c.cluster, func.count()).where(outbox.c.sent_at.is_(None)).group_by(outbox.c.cluster)
    for cluster, count in await tx.conn.execute(unsent):
        shown.outbox[cluster] = count
    takes_work = and_(machine.c.state == "Ready", ~machine.c.cordoned)
    rows = select(machine.c.cluster, machine.c.state, machine.c.gpus, machine.c.used_gpus, takes_work)
    for cluster, state, gpus, mask, takes in await tx.conn.execute(rows):
        used = mask.bit_count()
        shown.machines[cluster, state] = shown.machines.get((cluster, state), 0) + 1
        shown.gpus_used[cluster] = shown.gpus_used.get(cluster, 0) + used
        shown.gpus_free[cluster] = shown.gpus_free.get(cluster, 0) + (gpus - used if takes else 0)
    return shown
