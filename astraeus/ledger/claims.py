"""Claims: what a run asks of the ledger for one attempt, from entering it to giving its room back."""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import delete, func, insert, literal, select, update

from astraeus.ledger import events, independent, runs
from astraeus.ledger.core import Tx
from astraeus.ledger.rooms import give_back
from astraeus.ledger.runs import RunRow
from astraeus.ledger.tables import claim, reservation, run, worker
from astraeus.ledger.tables import cluster as cluster_table
from astraeus.ledger.upsert import insert_or_keep
from astraeus.model.errors import Conflict, NotFound
from astraeus.model.messages import AttemptRef
from astraeus.model.run import FINAL


async def enter(
    tx: Tx,
    uid: str,
    attempt: int,
    cluster: str,
    patience_seconds: float,
    avoid: Sequence[str] = (),
    headline: str | None = None,
) -> bool:
    """Ask for room for an attempt; a second time changes nothing. Whether the claim is granted already.

    Attempts only grow: one that has ended, or that is older than another, raises Conflict, and so does a final
    run or one whose other attempt still holds a claim.
    """
    known = await _known(tx, uid, attempt)
    if known is not None:
        return known == "Granted"
    await tx.conn.execute(
        insert(claim).values(
            run_uid=uid,
            attempt=attempt,
            cluster=cluster,
            state="Waiting",
            entered_at=tx.now,
            patience_until=tx.now + patience_seconds,
            avoid=list(avoid),
            headline=headline and runs.storable(headline),
        )
    )
    await tx.conn.execute(update(run).where(run.c.uid == uid, run.c.attempt < attempt).values(attempt=attempt))
    await runs.set_state(tx, uid, "Pending", headline or runs.SUBMITTED, attempt=attempt, network=None)
    tx.announce("cluster", cluster)
    return False


async def enter_first(tx: Tx, new: RunRow, patience_seconds: float) -> None:
    """Ask for room for the first attempt of a run that this transaction adds, or of each of its workers."""
    mine = run.c.parent == new.uid if new.is_parent else run.c.uid == new.uid
    entered, patience = literal(tx.now), literal(tx.now + patience_seconds)
    asked = select(run.c.uid, literal(1), run.c.cluster, literal("Waiting"), entered, patience)
    columns = ["run_uid", "attempt", "cluster", "state", "entered_at", "patience_until"]
    await tx.conn.execute(insert(claim).from_select(columns, asked.where(mine).order_by(run.c.rank)))
    await tx.conn.execute(update(run).where(mine | (run.c.uid == new.uid)).values(attempt=1))
    tx.announce("cluster", new.cluster)


async def _known(tx: Tx, uid: str, attempt: int) -> str | None:
    """The state of the attempt's live claim, None when it may enter now. Locks the run: one entry decides at a time."""
    row = await runs.locked(tx, uid)
    if row is None:
        raise NotFound(f"There is no run with uid {uid}")
    claims = await tx.conn.execute(select(claim.c.attempt, claim.c.state).where(claim.c.run_uid == uid))
    states = {known.attempt: known.state for known in claims}
    if states.get(attempt) in ("Waiting", "Granted"):
        return str(states[attempt])
    if row.final:
        raise Conflict(f"{row.name} is {row.state}, which is final; it gets no further attempt")
    latest = max([row.attempt, *states])
    if attempt <= latest:
        raise Conflict(f"Attempt {attempt} of {row.name} is over: attempt {latest} is known")
    if set(states.values()) - {"Released"}:
        raise Conflict(f"Attempt {row.attempt} of {row.name} still has a claim; release it first")
    return None


async def last_ended(tx: Tx, uid: str) -> int:
    """The last attempt of a run that has ended, 0 when none has: what a workflow that knows nothing goes on after."""
    ended = select(func.max(claim.c.attempt)).where(claim.c.run_uid == uid, claim.c.state == "Released")
    return int(await tx.conn.scalar(ended) or 0)


async def widen(tx: Tx, ref: AttemptRef) -> None:
    """End a waiting claim's patience: from now on it takes what is free."""
    widened = await tx.conn.scalars(
        update(claim)
        .where(_is(ref), claim.c.state == "Waiting", claim.c.patience_until > tx.now)
        .values(patience_until=tx.now)
        .returning(claim.c.cluster)
    )
    for name in list(widened):
        await _announce_run(tx, ref.run_uid)
        tx.announce("cluster", name)


async def _announce_run(tx: Tx, uid: str) -> None:
    workspace = await tx.conn.scalar(select(run.c.workspace).where(run.c.uid == uid))
    tx.announce("run", f"{workspace}/{uid}")


async def take_pass_term(tx: Tx, cluster: str) -> int:
    """A new term for the cluster's scheduling passes; every older one can write nothing from here on."""
    query = (
        update(cluster_table)
        .where(cluster_table.c.name == cluster)
        .values(pass_term=cluster_table.c.pass_term + 1)
        .returning(cluster_table.c.pass_term)
    )
    term = (await tx.conn.execute(query)).scalar_one_or_none()
    if term is None:
        raise NotFound(f"There is no cluster {cluster}")
    return int(term)


async def release(
    tx: Tx,
    ref: AttemptRef,
    *,
    cause: str,
    detail: str,
    charged: bool,
    state: str,
    reason: str,
    budget_left: int | None,
    next_earned_seconds: float | None = None,
    actor: str = "scheduler",
) -> bool:
    """End an attempt: give its room back, once, and say what its run is next. Answers whether this call did it.

    The members must be gone: rows of members not known to be are closed here, and agents then kill what is left.
    A claim that was still waiting is withdrawn; one that the ledger lost is entered as ended. What fails a worker of a
    run that starts `Independent` is told to the others, where that concerns them.
    """
    owner = await runs.by_uid(tx, ref.run_uid)
    if owner is None:
        return False
    kin = None
    if owner.parent is not None and owner.worker is not None and (charged or state == "Failed"):
        kin = await independent.lock_kin(tx, owner.parent, owner.worker, owner.spec["on_failure"])
    end = {"state": "Released", "released_at": tx.now, "cause": cause, "detail": runs.storable(detail)}
    row = await _end(tx, ref, end | {"charged": charged})
    if row is None:
        return False
    due = None if next_earned_seconds is None else tx.now + next_earned_seconds
    columns = {"budget_left": budget_left, "next_earned_at": due} | ({} if state in FINAL else {"network": None})
    await runs.set_state(tx, ref.run_uid, state, reason, actor=actor, attempt=ref.attempt, **columns)
    await tx.conn.execute(delete(reservation).where(reservation.c.claim == row.id))
    if row.granted_at is not None:
        await _close_workers(tx, ref)
        await give_back(tx, row.cluster, [row.id])
    await events.record(tx, owner.workspace, "attempt_ended", actor, detail, run=owner, attempt=ref.attempt)
    if kin is not None:
        await independent.follow(tx, kin, ref.run_uid, state, detail)
    tx.announce("run", f"{owner.workspace}/{owner.uid}")
    tx.announce("cluster", row.cluster)
    return True


async def _end(tx: Tx, ref: AttemptRef, end: dict[str, Any]) -> Any:
    """Write the end of an attempt's claim; None when that was done before, or the run knows better.

    A ledger restored from a backup may have lost the claim. What is not known to have ended is then entered as ended,
    so that the run's state is written all the same, and once.
    """
    told = claim.c["id", "cluster", "granted_at"]
    ended = update(claim).where(_is(ref), claim.c.state != "Released").values(end).returning(*told)
    row = (await tx.conn.execute(ended)).one_or_none()
    if row is not None:
        return row
    owner = await runs.locked(tx, ref.run_uid)
    if owner is None or owner.final or owner.attempt > ref.attempt:
        return None
    asked = {"run_uid": owner.uid, "attempt": ref.attempt, "cluster": owner.cluster}
    asked |= {"entered_at": tx.now, "patience_until": tx.now}
    row = (await tx.conn.execute(insert_or_keep(tx, claim, asked | end).returning(*told))).one_or_none()
    if row is not None:
        await tx.conn.execute(update(run).where(run.c.uid == owner.uid).values(attempt=ref.attempt))
    return row


def _is(ref: AttemptRef) -> Any:
    return (claim.c.run_uid == ref.run_uid) & (claim.c.attempt == ref.attempt)


async def _close_workers(tx: Tx, ref: AttemptRef) -> None:
    await tx.conn.execute(
        update(worker)
        .where(worker.c.run_uid == ref.run_uid, worker.c.attempt == ref.attempt, ~worker.c.gone)
        .values(gone=True, desired="stop")
    )
