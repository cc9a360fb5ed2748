"""What agents say: one sync is the heartbeat of machines and the reports of their workers, in one transaction.

A sync in which nothing is new reads twice, writes the heartbeats in one statement and announces nothing. The
number of statements does not grow with the number of reports.
"""

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import and_, bindparam, select, update

from astraeus.ledger import hearing
from astraeus.ledger.core import Tx
from astraeus.ledger.desired import desired_version
from astraeus.ledger.gangs import claims_on
from astraeus.ledger.members import Gang, lock, save
from astraeus.ledger.tables import claim, worker
from astraeus.model import words
from astraeus.model.agent import SyncRequest, WorkerReport

ORDER = {"none": 0, "preparing": 1, "arrived": 2, "running": 3, "exited": 4, "failed": 4}
ENDED = ORDER["exited"]
ERROR_LENGTH = 2000
INT_MOST = 2**31 - 1
WRITTEN = (
    "observed",
    "gone",
    "exit_code",
    "signal",
    "oom",
    "error",
    "arrived_at",
    "started_at",
    "ended_at",
    "gate_opened_at",
)


@dataclass(frozen=True)
class _Heard:
    """One sync's say on workers: `live` are the keys of possible processes by machine, `seen` what was acted on."""

    cluster: str
    machines: Collection[str]
    reports: Sequence[WorkerReport]
    live: Mapping[str, Collection[str]] = field(default_factory=dict)
    seen: str | None = None
    seen_machines: Collection[str] = ()
    rebooted: Collection[str] = ()

    def is_live(self, member: "_Member") -> bool:
        """Whether the machine says that a process of this member may be alive."""
        return member.key in self.live.get(member.machine, ())


@dataclass
class _Member:
    """A worker that is not known to be gone, and its columns as they will be written."""

    run_uid: str
    attempt: int
    rank: int
    machine: str
    claim: int
    desired: str
    columns: dict[str, Any]
    changed: bool = False

    @property
    def key(self) -> str:
        """As agents list it in `live`."""
        return f"{self.run_uid}/{self.attempt}/{self.rank}"

    @property
    def place(self) -> int:
        """How far it has come."""
        return ORDER[self.columns["observed"]]

    def write(self, **columns: Any) -> None:
        """Change columns."""
        self.columns |= columns
        self.changed = True


async def sync(tx: Tx, cluster: str, request: SyncRequest) -> list[str]:
    """Take one sync of an agent; answers the machines whose facts are wanted.

    Raises Conflict when newer sessions speak for all of its machines.
    """
    greeted = await hearing.greet(tx, cluster, request)
    accepted = {one.report.name for one in greeted}
    names = [report.name for report in request.machines]
    heard = _Heard(
        cluster,
        accepted,
        [report for report in request.workers if report.machine in accepted],
        {one.report.name: frozenset(one.report.live) for one in greeted},
        request.seen,
        names,
        [one.report.name for one in greeted if one.rebooted],
    )
    await _take(tx, heard)
    return await hearing.hear(tx, cluster, request, greeted)


async def record(tx: Tx, cluster: str, reports: Sequence[WorkerReport]) -> None:
    """Take reports of an executor that has no heartbeat of its own; a member that ended is gone.

    Members only move forward; reports of unknown members, of another machine or of a released attempt are dropped.
    """
    await _take(tx, _Heard(cluster, {report.machine for report in reports}, reports))


async def _take(tx: Tx, heard: _Heard) -> None:
    """Judge under the locks of the claims concerned, and only when there may be something to judge."""
    reached = {_key(report): ORDER[report.state] for report in sorted(heard.reports, key=lambda one: ORDER[one.state])}
    members = await _live_members(tx, heard)
    concerned = {one.claim for one in members.values() if _may_change(one, heard, reached.get(one.key, 0))}
    if not concerned:
        return
    # What a reboot has ended is locked here too: two syncs that lock in two steps could wait for each other.
    gangs = await lock(tx, concerned | set(await claims_on(tx, heard.cluster, heard.rebooted)))
    # Read again: before the lock another transaction may have changed what is judged here.
    members = {key: one for key, one in (await _live_members(tx, heard)).items() if one.claim in gangs}
    for report in sorted(heard.reports, key=lambda report: -_age(report)):
        member = members.get(_key(report))
        if member is not None and member.machine == report.machine and gangs[member.claim].state == "Granted":
            _advance(member, gangs[member.claim], report, tx.now)
    current = await _acts_on_present(tx, heard, members.values())
    for member in members.values():
        _settle(member, gangs[member.claim], heard, current, tx.now)
    changed = [member for member in members.values() if member.changed]
    for member in changed:
        gangs[member.claim].touched = True
    await _write(tx, changed)
    await save(tx, gangs.values())


async def _live_members(tx: Tx, heard: _Heard) -> dict[str, _Member]:
    if not heard.machines:
        return {}
    query = (
        select(worker, claim.c.id.label("claim"))
        .join(claim, and_(claim.c.run_uid == worker.c.run_uid, claim.c.attempt == worker.c.attempt))
        .where(worker.c.cluster == heard.cluster, worker.c.machine.in_(heard.machines), ~worker.c.gone)
        .order_by(worker.c.run_uid, worker.c.attempt, worker.c.rank)
    )
    rows = (await tx.conn.execute(query)).mappings()
    members = (
        _Member(
            run_uid=row["run_uid"],
            attempt=row["attempt"],
            rank=row["rank"],
            machine=row["machine"],
            claim=row["claim"],
            desired=row["desired"],
            columns={name: row[name] for name in WRITTEN},
        )
        for row in rows
    )
    return {member.key: member for member in members}


def _may_change(member: _Member, heard: _Heard, reached: int) -> bool:
    """Whether the sync may change a member that it reports to have come as far as `reached`."""
    if reached > member.place:
        return True
    return not heard.is_live(member) and (
        member.place == ENDED or (member.desired == "stop" and heard.seen is not None)
    )


def _key(report: WorkerReport) -> str:
    return f"{report.run_uid}/{report.attempt}/{report.rank}"


def _age(report: WorkerReport) -> float:
    return max(0.0, report.age_seconds) if math.isfinite(report.age_seconds) else 0.0


def _advance(member: _Member, gang: Gang, report: WorkerReport, now: float) -> None:
    """Move a member forward; an older report than the ledger's own is dropped."""
    if ORDER[report.state] <= member.place:
        return
    at = max(now - _age(report), gang.granted_at or 0.0)
    member.write(observed=report.state)
    if report.gate_opened_at is not None and math.isfinite(report.gate_opened_at):
        member.write(gate_opened_at=report.gate_opened_at)
    if report.state in ("arrived", "running", "exited") and member.columns["arrived_at"] is None and not gang.over:
        member.write(arrived_at=at)
        gang.arrive(now)
    if report.state == "running":
        member.write(started_at=at)
    elif report.state in ("exited", "failed"):
        _end(member, gang, report, now, at)


def _end(member: _Member, gang: Gang, report: WorkerReport, now: float, at: float) -> None:
    code, signal, error = _bounded(report.exit_code), _bounded(report.signal), _clean(report.error)
    member.write(ended_at=at, exit_code=code, signal=signal, oom=report.oom, error=error)
    name = gang.name(member.rank)
    if report.state == "failed":
        detail = words.could_not_start(name, error or "the agent gave no reason")
        gang.fail(now, "start_failed", member.rank, detail)
    elif code == 0:
        gang.finish(now)
    else:
        detail = words.exited(name, code, signal, report.oom)
        gang.fail(now, "oom" if report.oom else "exited", member.rank, detail)


def _settle(member: _Member, gang: Gang, heard: _Heard, current: bool, now: float) -> None:
    """Decide whether a member is gone for ever.

    A machine lists in `live` whatever may have a process, from before the process is made until its whole group is
    dead, and never starts what the state it acts on does not ask for. So a member that is not listed is gone when
    it has ended, or when the machine acts on the present desired state (`current`) and that asks for a stop.
    Nothing else but the loss of its machine makes a member gone.
    """
    if heard.is_live(member) or not (member.place == ENDED or (member.desired == "stop" and current)):
        return
    if 0 < member.place < ENDED:
        member.write(observed="exited", ended_at=now)
    member.write(gone=True)
    gang.turned += 1


async def _acts_on_present(tx: Tx, heard: _Heard, members: Iterable[_Member]) -> bool:
    """Whether the sync acted on the desired state as it is; asked only when some stop depends on it."""
    if heard.seen is None or not any(one.desired == "stop" and not heard.is_live(one) for one in members):
        return False
    return heard.seen == await desired_version(tx, heard.cluster, heard.seen_machines)


async def _write(tx: Tx, members: Sequence[_Member]) -> None:
    if not members:
        return
    statement = update(worker).where(
        worker.c.run_uid == bindparam("b_run"),
        worker.c.attempt == bindparam("b_attempt"),
        worker.c.rank == bindparam("b_rank"),
    )
    await tx.conn.execute(
        statement.values({name: bindparam(f"b_{name}") for name in WRITTEN}),
        [
            {"b_run": member.run_uid, "b_attempt": member.attempt, "b_rank": member.rank}
            | {f"b_{name}": value for name, value in member.columns.items()}
            for member in members
        ],
    )


def _bounded(number: int | None) -> int | None:
    return None if number is None else max(-INT_MOST, min(number, INT_MOST))


def _clean(error: str | None) -> str | None:
    """Text that every database takes: PostgreSQL stores no NUL."""
    return None if error is None else error.replace("\0", "")[:ERROR_LENGTH]
