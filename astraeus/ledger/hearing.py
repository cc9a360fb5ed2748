"""Heartbeats: which session speaks for a machine, what it says of the machine, and when a lost one may return."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import and_, bindparam, case, delete, func, insert, select, update
from sqlalchemy.dialects import postgresql, sqlite

from astraeus.ledger import gangs, networks
from astraeus.ledger.core import Tx
from astraeus.ledger.desired import desired_version
from astraeus.ledger.notices import cluster_event
from astraeus.ledger.tables import GPUS_MAX, claim, machine, nic, worker
from astraeus.model.agent import HEARTBEAT_SECONDS, MISSED_BEATS, MachineReport, SyncRequest
from astraeus.model.errors import Conflict, Invalid
from astraeus.model.machine import MachineFacts
from astraeus.model.names import canonical

TAKEOVER_SECONDS = 3 * HEARTBEAT_SECONDS
"""A session that has been silent for this long no longer keeps another from speaking for its machine."""

CONTACT_SECONDS = MISSED_BEATS * HEARTBEAT_SECONDS
"""A machine not heard for longer than this, whosever fault it is, is in contact anew from its next beat."""

KNOWN = ("name", "state", "session", "boot_id", "heard_at")


@dataclass(frozen=True)
class Greeted:
    """A machine's part of a sync by the session that speaks for it; `known` is its row, None for a new machine.

    `told` are the facts the ledger has, read only when the sync brings some.
    """

    report: MachineReport
    known: Mapping[str, Any] | None
    told: Mapping[str, Any] | None = None

    @property
    def rebooted(self) -> bool:
        """Whether everything that ran here before is dead."""
        return self.known is not None and self.known["boot_id"] != self.report.boot_id

    @property
    def facts(self) -> MachineFacts | None:
        """New facts, None when the ledger has these."""
        facts = self.report.facts
        if facts is None:
            return None
        facts = facts.model_copy(update={"name": self.report.name, "boot_id": self.report.boot_id})
        return None if self.told == facts.model_dump(mode="json") else facts


async def greet(tx: Tx, cluster: str, request: SyncRequest) -> list[Greeted]:
    """The machines of a sync that its session speaks for.

    A session takes a machine over with its first sync (which has no `seen`), or when the machine has been silent for
    three heartbeats. From then on the older session's syncs are dropped; when that leaves nothing of a sync, Conflict
    says so.
    """
    reports = {report.name: report for report in request.machines}
    for report in reports.values():
        _check(report)
    boot_told = machine.c.facts["boot_id"].as_string().label("boot_told")
    query = select(*(machine.c[name] for name in KNOWN), boot_told).where(
        machine.c.cluster == cluster, machine.c.name.in_(list(reports))
    )
    known = {row["name"]: dict(row) for row in (await tx.conn.execute(query)).mappings()}
    told = await _told(tx, cluster, [name for name, report in reports.items() if report.facts is not None])
    greeted = [
        Greeted(report, known.get(name), told.get(name))
        for name, report in reports.items()
        if _speaks(request, known.get(name), tx.now)
    ]
    if reports and not greeted:
        raise Conflict(f"A newer agent speaks for {', '.join(sorted(reports)[:8])}; stop this one")
    return greeted


async def _told(tx: Tx, cluster: str, names: Collection[str]) -> dict[str, Mapping[str, Any]]:
    if not names:
        return {}
    query = select(machine.c.name, machine.c.facts).where(machine.c.cluster == cluster, machine.c.name.in_(names))
    return {row.name: row.facts for row in await tx.conn.execute(query)}


def _speaks(request: SyncRequest, row: Mapping[str, Any] | None, now: float) -> bool:
    return (
        row is None
        or row["session"] == request.session
        or request.seen is None
        or now - row["heard_at"] > TAKEOVER_SECONDS
    )


def _check(report: MachineReport) -> None:
    name, facts = report.name, report.facts
    if not name or name != canonical(name) or len(name) > 253 or set(name) & {"/", "\0"}:
        raise Invalid(f"{name!r:.80} cannot name a machine; use lower case, without '/', at most 253 characters")
    if facts is not None and not 0 <= facts.gpus <= GPUS_MAX:
        raise Invalid(f"{name} has {facts.gpus} GPUs; a machine has at most {GPUS_MAX}")


async def hear(tx: Tx, cluster: str, request: SyncRequest, greeted: Sequence[Greeted]) -> list[str]:
    """Take the heartbeats of machines; answers those whose facts are wanted.

    After a reboot the members that ran are lost. A Down machine is Returning when heard again, and Ready once its
    agent acts on the present desired state and lists nothing live that is not part of it.
    """
    rebooted = [one.report.name for one in greeted if one.rebooted]
    if rebooted:
        await gangs.lose(tx, cluster, rebooted, started_only=True)
    await _register(tx, cluster, request, [one for one in greeted if one.known is None])
    known = [one for one in greeted if one.known is not None]
    await _beat(tx, cluster, request, known)
    await _learn(tx, cluster, [one for one in known if one.facts is not None])
    await _return(tx, cluster, request, known)
    return [one.report.name for one in greeted if _wants_facts(one)]


def _wants_facts(one: Greeted) -> bool:
    stale = one.known is None or one.known["boot_told"] != one.report.boot_id
    return one.report.facts is None and stale


async def _beat(tx: Tx, cluster: str, request: SyncRequest, known: Sequence[Greeted]) -> None:
    if not known:
        return
    names = [one.report.name for one in known]
    unbroken = machine.c.heard_at >= tx.now - CONTACT_SECONDS
    since = case((unbroken, func.coalesce(machine.c.heard_since, tx.now)), else_=tx.now)
    beat = update(machine).where(machine.c.cluster == cluster, machine.c.name.in_(names))
    await tx.conn.execute(beat.values(heard_at=tx.now, heard_since=since))
    new = [
        {"b_name": one.report.name, "b_boot": one.report.boot_id}
        for one in known
        if one.known and (one.rebooted or one.known["session"] != request.session)
    ]
    if new:
        statement = update(machine).where(machine.c.cluster == cluster, machine.c.name == bindparam("b_name"))
        await tx.conn.execute(statement.values(session=request.session, boot_id=bindparam("b_boot")), new)


async def _register(tx: Tx, cluster: str, request: SyncRequest, unknown: Sequence[Greeted]) -> None:
    """New machines; one with live processes must first prove them dead, since nothing is desired of it."""
    rows = [
        {
            "cluster": cluster,
            "name": one.report.name,
            "state": "Returning" if one.report.live else "Ready",
            "state_since": tx.now,
            "session": request.session,
            "heard_at": tx.now,
            "heard_since": tx.now,
            **_columns(one.facts),
        }
        for one in unknown
        if one.facts is not None
    ]
    if not rows:
        return
    if tx.dialect == "sqlite":
        await tx.conn.execute(sqlite.insert(machine).on_conflict_do_nothing(), rows)
    else:
        await tx.conn.execute(postgresql.insert(machine).on_conflict_do_nothing(), rows)
    await _nics(tx, cluster, [one.facts for one in unknown if one.facts is not None])


async def _learn(tx: Tx, cluster: str, told: Sequence[Greeted]) -> None:
    """New facts of known machines."""
    facts = [one.facts for one in told if one.facts is not None]
    if not facts:
        return
    rows = [{f"b_{name}": value for name, value in {"name": one.name, **_columns(one)}.items()} for one in facts]
    columns = _columns(facts[0])
    statement = update(machine).where(machine.c.cluster == cluster, machine.c.name == bindparam("b_name"))
    await tx.conn.execute(
        statement.values({name: bindparam(f"b_{name}", type_=machine.c[name].type) for name in columns}), rows
    )
    await _nics(tx, cluster, facts)
    await networks.review(tx, cluster, [one.name for one in facts])


def _columns(facts: MachineFacts) -> dict[str, Any]:
    return {
        "boot_id": facts.boot_id,
        "address": facts.address,
        "facts": facts.model_dump(mode="json"),
        "gpus": facts.gpus,
        "cpu_cores": facts.cpu_cores,
        "memory_bytes": facts.memory_bytes,
    }


async def _nics(tx: Tx, cluster: str, facts: Sequence[MachineFacts]) -> None:
    """Replace the ports of these machines, and announce the machines."""
    names = [one.name for one in facts]
    await tx.conn.execute(delete(nic).where(nic.c.cluster == cluster, nic.c.machine.in_(names)))
    ports = {(one.name, port.device, port.port): port for one in facts for port in one.nics}
    rows = [{"cluster": cluster, "machine": name, **port.model_dump()} for (name, _, _), port in ports.items()]
    if rows:
        await tx.conn.execute(insert(nic), rows)
    _announce(tx, cluster, names)


async def _return(tx: Tx, cluster: str, request: SyncRequest, known: Sequence[Greeted]) -> None:
    """Let lost machines come back, when they have proved their old work dead."""
    lost = [one for one in known if one.known and one.known["state"] != "Ready"]
    if not lost:
        return
    proven = await _proven(tx, cluster, request, lost)
    for state in ("Returning", "Ready"):
        names = [
            one.report.name
            for one in lost
            if one.known and (one.report.name in proven) == (state == "Ready") and one.known["state"] != state
        ]
        if names:
            there = and_(machine.c.cluster == cluster, machine.c.name.in_(names))
            await tx.conn.execute(update(machine).where(there).values(state=state, state_since=tx.now))
            _announce(tx, cluster, names)
            said = "is back and takes work" if state == "Ready" else "is heard again; its old work must end first"
            for name in names:
                await cluster_event(tx, cluster, "machine_returned", "astraeus", f"{name} {said}")


async def _proven(tx: Tx, cluster: str, request: SyncRequest, lost: Sequence[Greeted]) -> set[str]:
    names = [report.name for report in request.machines]
    if request.seen is None or request.seen != await desired_version(tx, cluster, names):
        return set()
    wanted = await _wanted(tx, cluster, [one.report.name for one in lost if one.report.live])
    return {one.report.name for one in lost if set(one.report.live) <= wanted.get(one.report.name, set())}


async def _wanted(tx: Tx, cluster: str, names: Collection[str]) -> dict[str, set[str]]:
    """The keys that may be live on each of these machines; all others are fenced."""
    if not names:
        return {}
    query = (
        select(worker.c.machine, worker.c.run_uid, worker.c.attempt, worker.c.rank)
        .join(claim, and_(claim.c.run_uid == worker.c.run_uid, claim.c.attempt == worker.c.attempt))
        .where(worker.c.cluster == cluster, worker.c.machine.in_(names), ~worker.c.gone)
        .where(claim.c.state != "Released")
    )
    wanted: dict[str, set[str]] = {}
    for name, run_uid, attempt, rank in await tx.conn.execute(query):
        wanted.setdefault(name, set()).add(f"{run_uid}/{attempt}/{rank}")
    return wanted


def _announce(tx: Tx, cluster: str, names: Collection[str]) -> None:
    for name in names:
        tx.announce("machine", f"{cluster}/{name}")
    tx.announce("cluster", cluster)
