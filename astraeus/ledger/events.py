"""Events: what happened in a workspace, who did it, and to which run."""

from datetime import UTC, datetime
from typing import Protocol

from sqlalchemy import func, select

from astraeus.ledger.core import Tx
from astraeus.ledger.tables import event
from astraeus.model.run import EventView


class Subject(Protocol):
    """The run an event is about."""

    @property
    def shown_uid(self) -> str:
        """The identity of the run that users see."""
        ...

    @property
    def name(self) -> str:
        """Its name, kept with the event since names are reused."""
        ...

    @property
    def worker(self) -> str | None:
        """The one worker it is about, of a run whose workers start one by one."""
        ...


async def record(
    tx: Tx,
    workspace_id: str,
    kind: str,
    actor: str,
    message: str,
    run: Subject | None = None,
    attempt: int | None = None,
) -> None:
    """Write down that something happened; `actor` is a token's name, or the part of Astraeus that decided it."""
    await tx.conn.execute(
        event.insert().inline(),
        {
            "workspace": workspace_id,
            "run_uid": run.shown_uid if run else None,
            "run_name": run.name if run else None,
            "worker": run.worker if run else None,
            "attempt": attempt,
            "at": tx.now,
            "kind": kind,
            "actor": actor,
            # PostgreSQL's text cannot hold it, and a worker's error message may.
            "message": message.replace("\0", "\N{REPLACEMENT CHARACTER}"),
        },
    )
    tx.announce("event", workspace_id)


async def list_events(
    tx: Tx, workspace_id: str, *, run_uid: str | None = None, after: int = 0, limit: int = 100
) -> list[EventView]:
    """Events after the id `after`, oldest first.

    An id may be committed after a higher one; whoever follows reads a little back, or listens to the change feed.
    """
    query = select(event).where(event.c.workspace == workspace_id, event.c.id > after).order_by(event.c.id).limit(limit)
    if run_uid is not None:
        query = query.where(event.c.run_uid == run_uid)
    return [
        EventView(
            id=row.id,
            at=datetime.fromtimestamp(row.at, UTC),
            kind=row.kind,
            run=row.run_name,
            run_uid=row.run_uid,
            worker=row.worker,
            attempt=row.attempt,
            actor=row.actor,
            message=row.message,
        )
        for row in (await tx.conn.execute(query)).all()
    ]


async def newest(tx: Tx, workspace_id: str) -> int:
    """The id of the workspace's newest event, 0 when there is none."""
    query = select(func.coalesce(func.max(event.c.id), 0)).where(event.c.workspace == workspace_id)
    return int((await tx.conn.execute(query)).scalar_one())
