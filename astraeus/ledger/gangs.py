"""A gang in the ledger: its workers are asked for, let go together, stopped, lost, and looked at.

What is asked for here is desired state; agents and other executors make it true and report through
`astraeus.ledger.reports`. Locks are taken on claims, then runs, then machines; members are written under their claim's.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from sqlalchemy import and_, bindparam, select, update

from astraeus.ledger import runs
from astraeus.ledger.commit_sql import ASK
from astraeus.ledger.core import Tx
from astraeus.ledger.members import Gang, lock, lock_attempt, save
from astraeus.ledger.tables import allocation, claim, machine, run, worker
from astraeus.model import words
from astraeus.model.machine import DEFAULT_GRACE_SECONDS
from astraeus.model.messages import AttemptRef, Situation
from astraeus.model.names import worker_name

STOP_WORDS = {
    "cancelled": "cancelled by {who}",
    "preempted": "preempted by {who}",
    "drained": "machine drained by {who}",
    "restarted": "restart ordered by {who}",
    "held": "held by {who}",
    "time_limit": "time limit reached",
    "barrier_timeout": "not all members came to the barrier",
}

DECIDING = ("intent_at", "failure_at", "succeeded_at")


async def start(tx: Tx, ref: AttemptRef) -> None:
    """Ask for every member of a granted attempt, held at its gate, as the grant does already.

    A second time changes nothing; neither does it when the attempt is not granted, or its end is decided already.
    """
    gang = await lock_attempt(tx, ref.run_uid, ref.attempt)
    if gang is None or gang.state != "Granted" or gang.decided or await _members(tx, ref):
        return
    await tx.conn.execute(ASK, {"b_claims": [gang.claim]})
    places = select(allocation.c.machine).where(allocation.c.claim == gang.claim)
    _announce_machines(tx, gang.cluster, set(await tx.conn.scalars(places)))
    gang.touched = True
    await save(tx, [gang])


async def open_gates(
    tx: Tx, ref: AttemptRef, budget_left: int | None = None, next_earned_seconds: float | None = None
) -> bool:
    """Let every member go, once, when all have arrived and nothing has ended the attempt; whether this call did.

    The run is Running from here, and shows what is left of its restart budget.
    """
    gang = await lock_attempt(tx, ref.run_uid, ref.attempt)
    if gang is None or gang.state != "Granted" or gang.decided:
        return False
    if gang.kept["all_arrived_at"] is None or gang.kept["gates_opened_at"] is not None:
        return False
    gang.kept["gates_opened_at"] = tx.now
    await save(tx, [gang])
    columns: dict[str, Any] = {"started_at": tx.now}
    if budget_left is not None:
        columns["budget_left"] = budget_left
    columns["next_earned_at"] = None if next_earned_seconds is None else tx.now + next_earned_seconds
    reason = f"Running on {gang.network['words']}" if gang.network else "Running"
    await runs.set_state(tx, gang.run_uid, "Running", reason, attempt=gang.attempt, **columns)
    await _desire(tx, gang, "run")
    return True


async def stop(tx: Tx, ref: AttemptRef, cause: str | None, who: str, why: str | None = None) -> None:
    """Have every member stopped, the intent first; `cause` is None when the attempt failed by itself.

    An intent, failure or success recorded earlier stands. A second time changes nothing, nor does it when the
    attempt has no claim or has given it back, or the last member came to a barrier that was to time out.
    """
    gang = await lock_attempt(tx, ref.run_uid, ref.attempt)
    if gang is None or gang.state == "Released":
        return
    if cause == "barrier_timeout" and gang.kept["all_arrived_at"] is not None and not gang.decided:
        return
    if cause is not None:
        gang.order_stop(tx.now, cause, who, why)
    await save(tx, [gang])
    if gang.over and gang.state == "Granted":
        row = await runs.by_uid(tx, gang.run_uid)
        reason = words.stopping(_stop_words(gang))
        if row is not None and (row.state, row.reason) != ("Stopping", reason):
            await runs.set_state(tx, gang.run_uid, "Stopping", reason, actor=who, attempt=gang.attempt)
    await _desire(tx, gang, "stop")


def _stop_words(gang: Gang) -> str:
    if gang.kept["failure_detail"] is not None:
        return str(gang.kept["failure_detail"])
    intent = gang.kept["intent"]
    return STOP_WORDS.get(intent, "{intent} by {who}").format(who=gang.kept["intent_by"], intent=intent)


async def lose(tx: Tx, cluster: str, machines: Collection[str], started_only: bool = False) -> None:
    """What runs on these machines is dead or fenced: its members are lost, its attempts have failed.

    An attempt fails once however many members it lost, and not when its end was decided before. A member that
    had ended before is no loss. `started_only` is for a machine that came back at once from a reboot: members
    that never reported were not begun there and may still be.
    """
    gangs = await lock(tx, await claims_on(tx, cluster, machines))
    gone: list[dict[str, Any]] = []
    for row in await _placed(tx, cluster, machines, gangs):
        if row.gone or (started_only and row.observed in (None, "none")):
            continue
        gang = gangs[row.claim]
        gang.lose(tx.now, row.rank, row.heard_at)
        if row.observed is not None:
            gang.turned += 1
            gone.append({"b_run": gang.run_uid, "b_attempt": gang.attempt, "b_rank": row.rank})
    if gone:
        statement = update(worker).where(
            worker.c.run_uid == bindparam("b_run"),
            worker.c.attempt == bindparam("b_attempt"),
            worker.c.rank == bindparam("b_rank"),
        )
        await tx.conn.execute(statement.values(lost=True, gone=True, ended_at=tx.now), gone)
        _announce_machines(tx, cluster, machines)
    await save(tx, gangs.values())


async def claims_on(tx: Tx, cluster: str, machines: Collection[str]) -> list[int]:
    """Granted claims with room on any of these machines."""
    if not machines:
        return []
    query = (
        select(allocation.c.claim)
        .join(claim, claim.c.id == allocation.c.claim)
        .where(allocation.c.live, allocation.c.cluster == cluster, allocation.c.machine.in_(machines))
        .where(claim.c.state == "Granted")
        .distinct()
    )
    return list(await tx.conn.scalars(query))


async def _placed(tx: Tx, cluster: str, machines: Collection[str], gangs: Mapping[int, Gang]) -> Sequence[Any]:
    """Places of these gangs on these machines, with the members there, where they were asked for already."""
    if not gangs:
        return []
    member = and_(
        worker.c.run_uid == claim.c.run_uid,
        worker.c.attempt == claim.c.attempt,
        worker.c.rank == allocation.c.rank,
    )
    query = (
        select(allocation.c.claim, allocation.c.rank, worker.c.gone, worker.c.observed, machine.c.heard_at)
        .join(claim, claim.c.id == allocation.c.claim)
        .join(machine, and_(machine.c.cluster == allocation.c.cluster, machine.c.name == allocation.c.machine))
        .outerjoin(worker, member)
        .where(allocation.c.live, allocation.c.cluster == cluster, allocation.c.machine.in_(machines))
        .where(claim.c.id.in_(list(gangs)), claim.c.state == "Granted")
        .order_by(allocation.c.claim, allocation.c.rank)
    )
    return (await tx.conn.execute(query)).all()


async def situation(tx: Tx, ref: AttemptRef) -> Situation:
    """Where an attempt stands. One without a claim holds nothing and has no live member."""
    query = (
        select(claim, run.c.name, run.c.rank)
        .join(run, run.c.uid == claim.c.run_uid)
        .where(claim.c.run_uid == ref.run_uid, claim.c.attempt == ref.attempt)
    )
    row = (await tx.conn.execute(query)).mappings().one_or_none()
    if row is None:
        return Situation(now=tx.now, claimed=False)
    members = await _members(tx, ref)
    came = {member.rank for member in members if member.arrived_at is not None}
    failed_on = {member.rank: member.machine for member in await _machines_of(tx, row["id"], row["failure_rank"])}
    return Situation(
        now=tx.now,
        granted_at=row["granted_at"],
        size=row["size"] or 0,
        arrived=row["arrived"],
        first_arrived_at=row["first_arrived_at"],
        all_arrived=row["all_arrived_at"] is not None,
        gates_opened_at=row["gates_opened_at"],
        decided_at=_decided_at(row),
        failure=row["failure_detail"],
        cause=row["failure"],
        failure_machine=failed_on.get(row["failure_rank"]),
        succeeded=row["succeeded_at"] is not None,
        ended_at=_ended_at(row, members),
        gone=all(member.gone for member in members),
        missing=[worker_name(row["name"], rank) for rank in _ranks(row) if rank not in came],
        lingering=[worker_name(row["name"], m.rank) for m in members if m.desired == "stop" and not m.gone],
        undead=[f"{worker_name(row['name'], m.rank)} on {m.machine}" for m in members if m.disowned],
        grace_seconds=max((member.grace_seconds for member in members), default=float(DEFAULT_GRACE_SECONDS)),
        intent=row["intent"],
        intent_by=row["intent_by"],
        intent_why=row["intent_why"],
        released=row["state"] == "Released",
    )


def _ranks(row: Mapping[Any, Any]) -> range:
    """The members' ranks: those of a gang, or that of the one worker whose run it is."""
    first = row["rank"] or 0
    return range(first, first + (row["size"] or 0))


def _decided_at(row: Mapping[Any, Any]) -> float | None:
    return min((at for name in DECIDING if (at := row[name]) is not None), default=None)


def _ended_at(row: Mapping[Any, Any], members: Sequence[Any]) -> float | None:
    """When the last member of a decided attempt had ended; None while one is not gone, or when nobody saw one end."""
    decided = _decided_at(row)
    if decided is None or not all(member.gone and member.ended_at is not None for member in members):
        return None
    return max([decided, *(float(member.ended_at) for member in members)])


async def _machines_of(tx: Tx, claim_id: int, rank: int | None) -> Sequence[Any]:
    if rank is None:
        return []
    query = select(allocation.c.rank, allocation.c.machine)
    return (await tx.conn.execute(query.where(allocation.c.claim == claim_id, allocation.c.rank == rank))).all()


async def _members(tx: Tx, ref: AttemptRef) -> Sequence[Any]:
    query = (
        select(worker.c.rank, worker.c.desired, worker.c.gone, worker.c.arrived_at, worker.c.ended_at)
        .add_columns(worker.c.grace_seconds, worker.c.machine, worker.c.disowned)
        .where(worker.c.run_uid == ref.run_uid, worker.c.attempt == ref.attempt)
    )
    return (await tx.conn.execute(query.order_by(worker.c.rank))).all()


async def _desire(tx: Tx, gang: Gang, desired: str) -> None:
    """Set what is wanted of every live member; forward only, since a stop is for ever."""
    values = {"desired": desired, "stop_at": tx.now} if desired == "stop" else {"desired": desired}
    statement = (
        update(worker)
        .where(worker.c.run_uid == gang.run_uid, worker.c.attempt == gang.attempt, ~worker.c.gone)
        .where(worker.c.desired.not_in([desired, "stop"]))
        .values(values)
        .returning(worker.c.machine)
    )
    _announce_machines(tx, gang.cluster, set(await tx.conn.scalars(statement)))


def _announce_machines(tx: Tx, cluster: str, machines: Collection[str]) -> None:
    for name in sorted(machines):
        tx.announce("machine", f"{cluster}/{name}")
