"""People's orders to runs: recorded, said, and put into the outbox for the workflows they concern."""

from collections.abc import Mapping
from typing import Any

from sqlalchemy import update

from astraeus.ledger import events, independent, outbox, runs, tenancy
from astraeus.ledger.core import Tx
from astraeus.ledger.members import intend
from astraeus.ledger.outbox import Letter, workflow_id_of
from astraeus.ledger.runs import RunRow
from astraeus.ledger.tables import run
from astraeus.model.errors import Conflict, Invalid, NotFound
from astraeus.model.messages import MessageKind

INTENT_OF: dict[str, str] = {
    "cancel": "cancelled",
    "delete": "cancelled",
    "preempt": "preempted",
    "restart": "restarted",
}
SAID: dict[MessageKind, str] = {
    "cancel": "Cancel asked for",
    "delete": "Delete asked for",
    "preempt": "Preempt asked for",
    "hold": "Hold asked for",
    "release": "Release asked for",
    "restart": "Restart asked for",
}
"""What the event of each order says."""


async def order(tx: Tx, row: RunRow, kind: str, actor: str, why: str | None = None) -> None:
    """Give a person's order to a run: recorded, said, and put into the outbox for its workflow, in one go.

    Every order may be repeated. A final run can only be deleted, which hides it; others raise Conflict. Deleting
    a live run frees its name at once; it is hidden when it has stopped.
    """
    if kind not in SAID:
        raise Invalid(f"{kind} is no order; orders are {', '.join(SAID)}")
    why = why and runs.storable(why)
    workers = await independent.lock_live(tx, row.uid) if row.is_parent else []
    attempts = {worker.uid: worker.attempt for worker in workers}
    if kind in INTENT_OF:
        await intend(tx, list(attempts) or [row.uid], INTENT_OF[kind], actor, why)
    present = await runs.locked(tx, row.uid)
    if present is None:
        raise NotFound(f"There is no run {row.name}")
    if present.final and kind != "delete":
        raise Conflict(f"{present.name} is {present.state}, which is final; submit it again to run it again")
    concerned = run.c.uid.in_([row.uid, *attempts])
    await tx.conn.execute(update(run).where(concerned).values(_ordered(present, kind, tx.now)))
    said = f"{SAID[kind]}{f': {why}' if why else ''}"
    await events.record(tx, present.workspace, kind, actor, said, run=present, attempt=present.attempt or None)
    for uid in (row.uid, *attempts):
        tx.announce("run", f"{present.workspace}/{uid}")
    if present.held and kind == "release":
        tx.announce("cluster", present.cluster)
    if not present.final:
        await _tell(tx, present, attempts or {present.uid: present.attempt}, kind, actor, why)


async def _tell(
    tx: Tx, row: RunRow, attempts: Mapping[str, int], kind: MessageKind, actor: str, why: str | None
) -> None:
    """Put an order into the outbox for the workflow of the run, or of each of its workers, by their attempts."""
    workspace = await tenancy.get_workspace(tx, row.workspace)
    assert workspace is not None, "a run's workspace is never deleted"
    fenced = kind in ("preempt", "restart")
    letters = [
        Letter(
            cluster=row.cluster,
            run_uid=uid,
            workflow_id=workflow_id_of(workspace.path, row.name, uid),
            kind=kind,
            attempt=attempt if fenced and attempt else None,
            who=actor,
            why=why,
        )
        for uid, attempt in attempts.items()
    ]
    await outbox.add_all(tx, letters)


def _ordered(row: RunRow, kind: str, now: float) -> dict[str, Any]:
    """What an order changes on the run itself; the rest is up to its workflow."""
    if kind == "delete":
        hidden = row.hidden_at or (now if row.final else None)
        return {"delete_asked_at": row.delete_asked_at or now, "hidden_at": hidden}
    return {"held": kind == "hold" or (row.held and kind != "release")}
