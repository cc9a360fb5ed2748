"""Log requests: a reader's wish for a worker's log, on its way to the machine that keeps it."""

from collections.abc import Collection

from sqlalchemy import delete, select

from astraeus.ledger.core import Tx
from astraeus.ledger.tables import log_request
from astraeus.model.agent import LogRequest

ASKED_SECONDS = 60.0
"""How long a request stands when nobody takes it back."""


async def ask(tx: Tx, cluster: str, request: LogRequest) -> str:
    """Ask the request's machine for a log; answers the request's id. Wakes the machine's agent."""
    await tx.conn.execute(delete(log_request).where(log_request.c.expires_at <= tx.now))
    await tx.conn.execute(
        log_request.insert(),
        {
            "id": request.id,
            "cluster": cluster,
            "machine": request.machine,
            "body": request.model_dump(mode="json"),
            "expires_at": tx.now + ASKED_SECONDS,
        },
    )
    tx.announce("machine", f"{cluster}/{request.machine}")
    return request.id


async def requests_for(tx: Tx, cluster: str, machines: Collection[str]) -> list[LogRequest]:
    """What these machines are asked for, oldest first. There are never many requests, so all are read."""
    query = select(log_request.c.machine, log_request.c.body).where(
        log_request.c.cluster == cluster, log_request.c.expires_at > tx.now
    )
    rows = (await tx.conn.execute(query.order_by(log_request.c.expires_at, log_request.c.id))).all()
    wanted = frozenset(machines)
    return [LogRequest.model_validate(row.body) for row in rows if row.machine in wanted]


async def forget(tx: Tx, id: str) -> None:
    """Take a request back: it is being served, or nobody waits any more."""
    await tx.conn.execute(delete(log_request).where(log_request.c.id == id))
