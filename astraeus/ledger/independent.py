"""Runs that start `Independent`: each worker is a run of its own, under the one that users see.

A worker's run has claims, attempts, a workflow and a budget as any other, and its name is its run's: users see it as
`<run>-<rank>`. Its run has none of these; what it shows is derived from its workers in every transaction that
changes one. Whoever locks a run after locking workers' runs has locked everything else before.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from sqlalchemy import func, select, update

from astraeus.ledger.core import Tx
from astraeus.ledger.members import intend
from astraeus.ledger.outbox import Letter, add_all, workflow_id_of
from astraeus.ledger.tables import claim, run, workspace
from astraeus.model.independent import standing, worker_uid
from astraeus.model.spec import RunSpec

SHOWN_OF_FIRST = ("Pending", "Failed", "Cancelled")


def worker_rows(values: Mapping[str, Any], spec: RunSpec, reason: str) -> list[dict[str, Any]]:
    """The rows of the workers of a new run with these `values`.

    Their specification has only what their workflows need: the rest may be large, and is read from their run's.
    """
    task = spec.task_template
    limits = {"time_limit_seconds": task.time_limit_seconds, "stop_grace_seconds": task.stop_grace_seconds}
    small = {
        "start": spec.start,
        "on_failure": spec.failure_rule,
        "priority": spec.priority,
        "preemptible": spec.preemptible,
        "restart_budget": spec.restart_budget,
        "task_template": {"command": task.command, **limits},
    }
    uid = values["uid"]
    own = {"spec": small, "digest": "", "labels": {}, "idempotency_key": None, "workflow_started": False}
    rows = [{**values, **own, "reason": reason, "parent": uid, "rank": rank} for rank in range(values["size"])]
    return [{**row, "uid": worker_uid(uid, row["rank"])} for row in rows]


async def derive(tx: Tx, uid: str) -> tuple[str, str]:
    """The state and reason of a locked run by those of its workers; its figures are written here."""
    mine = run.c.parent == uid
    query = (
        select(run.c.state, func.count().label("workers"), func.max(run.c.attempt).label("attempt"))
        .add_columns(func.min(run.c.budget_left).label("left"), func.min(run.c.started_at).label("started"))
        .where(mine)
        .group_by(run.c.state)
    )
    rows = (await tx.conn.execute(query)).all()
    counts = {row.state: int(row.workers) for row in rows}
    figures = {
        "attempt": max(row.attempt for row in rows),
        "budget_left": min((row.left for row in rows if row.left is not None), default=None),
        "started_at": func.coalesce(run.c.started_at, min((row.started for row in rows if row.started), default=None)),
    }
    await tx.conn.execute(update(run).where(run.c.uid == uid, ~run.c.final).values(figures))
    first = select(run.c.reason).where(mine).order_by(run.c.finished_at, run.c.rank).limit(1)
    reasons = {
        state: str(await tx.conn.scalar(first.where(run.c.state == state)))
        for state in SHOWN_OF_FIRST
        if state in counts
    }
    rule = await tx.conn.scalar(select(run.c.spec["on_failure"]).where(mine).limit(1))
    return standing(counts, cast(str, rule), reasons)


@dataclass(frozen=True)
class Worker:
    """A worker's run that is not final, as an order finds it."""

    uid: str
    attempt: int


async def lock_live(tx: Tx, uid: str) -> list[Worker]:
    """Lock the workers of a run that have not ended, their claims first; in rank order."""
    live = select(run.c.uid).where(run.c.parent == uid, ~run.c.final)
    await _lock_claims(tx, live)
    query = select(run.c.uid, run.c.attempt).where(run.c.parent == uid, ~run.c.final).order_by(run.c.uid)
    return [Worker(*row) for row in await tx.conn.execute(query.with_for_update(key_share=True))]


@dataclass(frozen=True)
class Kin:
    """Whom a worker's failure concerns: all others of its run, whose claims are locked. `worker` is its name."""

    parent: str
    worker: str


async def lock_kin(tx: Tx, parent: str, worker: str, rule: str) -> Kin | None:
    """Lock the claims of all workers of a run, for the failure of one; None where the `rule` makes it its own."""
    if rule == "RestartWorker":
        return None
    await _lock_claims(tx, select(run.c.uid).where(run.c.parent == parent))
    return Kin(parent, worker)


async def follow(tx: Tx, kin: Kin, uid: str, state: str, detail: str) -> None:
    """After a worker's failure: the others start again too, free; or stop for good, where it has `Failed`."""
    query = (
        select(run.c.uid, run.c.cluster, run.c.name, run.c.workspace)
        .add_columns(workspace.c.organisation, workspace.c.name.label("space"))
        .join(workspace, workspace.c.id == run.c.workspace)
        .where(run.c.parent == kin.parent, run.c.uid != uid, ~run.c.final)
        .order_by(run.c.uid)
    )
    rows = (await tx.conn.execute(query)).all()
    ends, who = state == "Failed", f"the failure of {kin.worker}"
    intent = "cancelled" if ends else "restarted"
    told = await intend(tx, [row.uid for row in rows], intent, who, detail)
    letters = [
        Letter(
            cluster=row.cluster,
            run_uid=row.uid,
            workflow_id=workflow_id_of(f"{row.organisation}/{row.space}", row.name, row.uid),
            kind="cancel" if ends else "restart",
            attempt=None if ends else told[row.uid],
            who=who,
            why=detail,
        )
        for row in rows
        # A worker that waits, or whose attempt ends by itself, starts again anyhow.
        if ends or row.uid in told
    ]
    await add_all(tx, letters)
    for row in rows:
        tx.announce("run", f"{row.workspace}/{row.uid}")


async def _lock_claims(tx: Tx, runs: Any) -> None:
    query = select(claim.c.id).where(claim.c.run_uid.in_(runs), claim.c.state != "Released").order_by(claim.c.id)
    await tx.conn.execute(query.with_for_update(key_share=True))
