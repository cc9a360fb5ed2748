"""Questions and orders over a whole cluster, for whoever starts and stops the stack around it."""

from sqlalchemy import func, select

from astraeus.ledger import gangs, outbox, runs, tenancy
from astraeus.ledger.core import Tx
from astraeus.ledger.tables import claim, cluster, machine, worker
from astraeus.model.messages import AttemptRef

WATCH_SILENT_SECONDS = 5.0


async def is_watched(tx: Tx, name: str) -> bool:
    """Whether some worker process watches the cluster now."""
    watched_at = await tx.conn.scalar(select(cluster.c.watched_at).where(cluster.c.name == name))
    return watched_at is not None and tx.now - watched_at < WATCH_SILENT_SECONDS


async def heard_since(tx: Tx, name: str, since: float) -> bool:
    """Whether an agent of the cluster reported since then (seconds since the epoch, the ledger's clock)."""
    query = select(func.max(machine.c.heard_at)).where(machine.c.cluster == name)
    heard_at = await tx.conn.scalar(query)
    return heard_at is not None and heard_at >= since


async def stop_all(tx: Tx, name: str, who: str, why: str) -> float:
    """Order every gang of the cluster to stop and be placed again, free; answers the longest grace, in seconds.

    The members stop as soon as their agents hear of it; the workflows learn of it when they next run.
    """
    query = select(claim.c.run_uid, claim.c.attempt).where(claim.c.cluster == name, claim.c.state == "Granted")
    for run_uid, attempt in (await tx.conn.execute(query.order_by(claim.c.id))).all():
        await gangs.stop(tx, AttemptRef(run_uid=run_uid, attempt=attempt), "restarted", who, why)
        row = await runs.by_uid(tx, run_uid)
        space = await tenancy.get_workspace(tx, row.workspace) if row else None
        if row and space:
            await outbox.add(tx, row, space, "restart", attempt, who, why)
    alive = worker.c.cluster == name, ~worker.c.gone
    return float(await tx.conn.scalar(select(func.max(worker.c.grace_seconds)).where(*alive)) or 0.0)


async def count_alive(tx: Tx, name: str) -> int:
    """How many workers of the cluster may still have a live process."""
    query = select(func.count()).select_from(worker).where(worker.c.cluster == name, ~worker.c.gone)
    return int(await tx.conn.scalar(query) or 0)
