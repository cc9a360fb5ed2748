"""Committing a plan: whole grants, evictions, reservations and reasons, in one transaction with few statements."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import bindparam, delete, exists, insert, select, update

from astraeus.ledger import commit_sql as sql
from astraeus.ledger import outbox, runs
from astraeus.ledger.changes import REASON
from astraeus.ledger.core import Tx
from astraeus.ledger.members import stop_members
from astraeus.ledger.outbox import Letter, workflow_id_of
from astraeus.ledger.rooms import CPU_TRACE
from astraeus.ledger.tables import claim, reservation, run
from astraeus.model import words
from astraeus.model.errors import StaleTerm
from astraeus.model.messages import HIGHER_PRIORITY, MessageKind
from astraeus.model.names import worker_name
from astraeus.placement.types import Eviction, Grant, Member, Plan, Reserved, Wait

OF_RUN = frozenset({"b_run", "b_reason"})
PORT_FIRST, PORTS = 20_000, 10_000
"""MASTER_PORT is chosen among these, apart from what systems give to outgoing connections."""


@dataclass(frozen=True)
class _Party:
    """A claim that a plan names, with what its messages and events need of its run.

    `parent` and `rank` are of the one worker whose run it is, where workers start one by one.
    """

    id: int
    run_uid: str
    attempt: int
    state: str
    decided: bool
    run_name: str
    workspace_id: str
    workspace: str
    placeable: bool
    parent: str | None
    rank: int | None

    def letter(self, cluster_name: str, kind: MessageKind, who: str, why: str | None = None) -> Letter:
        """A message to the run, fenced by the claim's attempt."""
        address = workflow_id_of(self.workspace, self.run_name, self.run_uid)
        return Letter(cluster_name, self.run_uid, address, kind, self.attempt, who, why)

    def event(self, now: float, kind: str, message: str) -> dict[str, Any]:
        """An event of the run, by the scheduler."""
        return {
            "workspace": self.workspace_id,
            "run_uid": self.parent or self.run_uid,
            "run_name": self.run_name,
            "worker": None if self.rank is None else worker_name(self.run_name, self.rank),
            "attempt": self.attempt,
            "at": now,
            "kind": kind,
            "actor": "scheduler",
            "message": message,
        }


@dataclass(frozen=True)
class _Room:
    """A machine's free room and where others reach it, as locked."""

    address: str
    gpus: int
    cpu_cores: float
    memory_bytes: int

    def without(self, member: Member) -> "_Room | None":
        """What is left beside `member`, None when it does not fit."""
        cpu, memory = self.cpu_cores - member.cpu_cores, self.memory_bytes - member.memory_bytes
        if member.gpu_mask & ~self.gpus or cpu < -CPU_TRACE or memory < 0:
            return None
        return _Room(self.address, self.gpus & ~member.gpu_mask, cpu, memory)


async def commit_plan(tx: Tx, cluster_name: str, term: int, plan: Plan) -> list[Grant]:
    """Write what a pass decided and answer the grants that took effect.

    Raises StaleTerm, having written nothing, when a later pass has begun. A grant that no longer applies is left
    out whole. Committing the same plan again changes nothing.
    """
    await _check_term(tx, cluster_name, term)
    parties = await _parties(tx, cluster_name, plan)
    applied = await _grant(tx, cluster_name, parties, plan.grants)
    granted = {grant.claim for grant in applied}
    evicted = await _evict(tx, cluster_name, parties, plan.evictions, granted)
    reserved = await _reserve(tx, cluster_name, parties, plan.reserved, granted)
    await _explain(tx, cluster_name, plan.waits, granted)
    if applied or evicted or reserved:
        tx.announce("cluster", cluster_name)
    return applied


async def _check_term(tx: Tx, cluster_name: str, term: int) -> None:
    """Compare the term and keep it from changing until the commit."""
    present = (await tx.conn.execute(sql.TERM, {"b_cluster": cluster_name})).scalar_one_or_none()
    if present != term:
        raise StaleTerm(f"A later pass over {cluster_name} has begun (term {present}, this one is {term})")


async def _parties(tx: Tx, cluster_name: str, plan: Plan) -> dict[int, _Party]:
    """The claims to be granted, evicted, evicted or reserved for, locked in order."""
    ids = {grant.claim for grant in plan.grants} | {item.claim for item in plan.reserved}
    ids |= {eviction.claim for eviction in plan.evictions} | {eviction.for_claim for eviction in plan.evictions}
    if not ids:
        return {}
    rows = await tx.conn.execute(sql.PARTIES, {"b_cluster": cluster_name, "b_claims": sorted(ids)})
    return {row["id"]: _party(row) for row in rows.mappings()}


def _party(row: Mapping[Any, Any]) -> _Party:
    return _Party(
        id=row["id"],
        run_uid=row["run_uid"],
        attempt=row["attempt"],
        state=row["state"],
        decided=bool(row["intent"] or row["failure"] or row["succeeded_at"]),
        run_name=row["name"],
        workspace_id=row["workspace"],
        workspace=f"{row['organisation']}/{row['workspace_name']}",
        placeable=not (row["final"] or row["held"] or row["delete_asked_at"]),
        parent=row["parent"],
        rank=row["rank"],
    )


async def _grant(tx: Tx, cluster_name: str, parties: Mapping[int, _Party], grants: Sequence[Grant]) -> list[Grant]:
    """Grant what still applies: whole gangs on machines that still have the room."""
    wanted = [grant for grant in grants if _applies(grant, parties.get(grant.claim))]
    if not wanted:
        return []
    names = {member.machine for grant in wanted for member in grant.members}
    rooms = await _rooms(tx, cluster_name, names)
    applied = [grant for grant in wanted if _take(rooms, grant)]
    ports = await _ports(tx, [(grant, rooms[grant.members[0].machine].address) for grant in applied])
    applied = [grant for grant in applied if grant.claim in ports]
    if applied:
        await _allocate(tx, cluster_name, [(parties[grant.claim], grant) for grant in applied])
        await _mark_granted(tx, [(parties[grant.claim], grant) for grant in applied], ports)
        await _tell(tx, cluster_name, [(parties[grant.claim], grant) for grant in applied])
    return applied


def _applies(grant: Grant, party: _Party | None) -> bool:
    return (
        party is not None
        and party.state == "Waiting"
        and party.placeable
        and not party.decided
        and (party.run_uid, party.attempt) == (grant.run_uid, grant.attempt)
        and [member.rank for member in grant.members] == list(range(len(grant.members)))
        and bool(grant.members)
    )


async def _rooms(tx: Tx, cluster_name: str, names: set[str]) -> dict[str, _Room]:
    """The free room of those machines that take work, locked until the commit."""
    rows = await tx.conn.execute(sql.ROOMS, {"b_cluster": cluster_name, "b_names": sorted(names)})
    return {
        row.name: _Room(
            row.address,
            (1 << row.gpus) - 1 & ~row.used_gpus,
            row.cpu_cores - row.used_cpu,
            row.memory_bytes - row.used_memory,
        )
        for row in rows
    }


def _take(rooms: dict[str, _Room], grant: Grant) -> bool:
    """Take a whole gang's room, or nothing."""
    taken: dict[str, _Room] = {}
    for member in grant.members:
        room = taken.get(member.machine) or rooms.get(member.machine)
        left = room and room.without(member)
        if left is None:
            return False
        taken[member.machine] = left
    rooms.update(taken)
    return True


async def _ports(tx: Tx, leaders: Sequence[tuple[Grant, str]]) -> dict[int, tuple[str, int]]:
    """A host and port for each gang's leader, which no other granted claim has on that host."""
    rows = await tx.conn.execute(sql.PORTS, {"b_hosts": sorted({host for _, host in leaders})})
    taken = {(host, port) for host, port in rows}
    chosen: dict[int, tuple[str, int]] = {}
    for grant, host in leaders:
        # Starting from the claim's id, so that a port is not used again while its last user may still linger.
        tries = (PORT_FIRST + (grant.claim + i) % PORTS for i in range(PORTS))
        port = next((port for port in tries if (host, port) not in taken), None)
        if port is not None:
            taken.add((host, port))
            chosen[grant.claim] = (host, port)
    return chosen


async def _allocate(tx: Tx, cluster_name: str, placed: Sequence[tuple[_Party, Grant]]) -> None:
    """Write the allocations, move them onto the machines by compare-and-set, and ask for the members there."""
    rows = [_allocation(cluster_name, party, member) for party, grant in placed for member in grant.members]
    await tx.conn.execute(sql.ALLOCATE, rows)
    claims = sorted(party.id for party, _ in placed)
    taken = await tx.conn.scalars(sql.TAKE, {"b_cluster": cluster_name, "b_claims": claims})
    if set(taken) != {row["machine"] for row in rows}:
        raise StaleTerm(f"Machines of {cluster_name} changed under the plan; plan again")
    await tx.conn.execute(sql.ASK, {"b_claims": claims})


def _allocation(cluster_name: str, party: _Party, member: Member) -> dict[str, Any]:
    return {
        "claim": party.id,
        "rank": member.rank if party.rank is None else party.rank,
        "cluster": cluster_name,
        "machine": member.machine,
        "gpu_mask": member.gpu_mask,
        "cpu_cores": member.cpu_cores,
        "memory_bytes": member.memory_bytes,
        "hcas": list(member.hcas),
        "live": True,
    }


async def _mark_granted(tx: Tx, placed: Sequence[tuple[_Party, Grant]], ports: Mapping[int, tuple[str, int]]) -> None:
    rows = [_granted(party, grant, ports[grant.claim], tx.now) for party, grant in placed]
    await tx.conn.execute(
        sql.GRANT, [{key: row[key] for key in row if key not in ("b_run", "b_reason")} for row in rows]
    )
    await tx.conn.execute(sql.SHOW, [{key: row[key] for key in ("b_run", "b_reason", "b_network")} for row in rows])


def _granted(party: _Party, grant: Grant, leader: tuple[str, int], now: float) -> dict[str, Any]:
    together, alone = words.starting(0, len(grant.members)), words.placed_alone(grant.members[0].machine)
    return {
        "b_now": now,
        "b_claim": grant.claim,
        "b_run": grant.run_uid,
        "b_size": len(grant.members),
        "b_gpus": grant.members[0].gpu_mask.bit_count(),
        "b_rung": int(grant.rung),
        "b_network": grant.place.model_dump(mode="json"),
        "b_host": leader[0],
        "b_port": leader[1],
        "b_reason": together if party.parent is None else alone,
    }


async def _tell(tx: Tx, cluster_name: str, placed: Sequence[tuple[_Party, Grant]]) -> None:
    """Tell runs and readers of grants."""
    await outbox.add_all(tx, [party.letter(cluster_name, "placed", "scheduler") for party, _ in placed])
    rows = [party.event(tx.now, "placed", f"Placed on {grant.place.words}") for party, grant in placed]
    await tx.conn.execute(sql.RECORD, rows)
    for party, _ in placed:
        _announce(tx, party)
        if party.parent is not None:
            tx.derived[party.parent] = runs.derive
    for name in sorted({member.machine for _, grant in placed for member in grant.members}):
        tx.announce("machine", f"{cluster_name}/{name}")


async def _evict(
    tx: Tx,
    cluster_name: str,
    parties: Mapping[int, _Party],
    evictions: Sequence[Eviction],
    granted: set[int],
) -> bool:
    """Order whole runs to make room for claims that still wait; answers whether any was."""
    due = [
        (parties[eviction.claim], eviction.for_run)
        for eviction in evictions
        if _is_due(eviction, parties) and eviction.for_claim not in granted
    ]
    if not due:
        return False
    await tx.conn.execute(
        update(claim)
        .where(claim.c.id == bindparam("b_claim"), claim.c.state == "Granted", claim.c.intent.is_(None))
        .values(intent="preempted", intent_at=tx.now, intent_by=bindparam("b_by"), intent_why=HIGHER_PRIORITY),
        [{"b_claim": party.id, "b_by": by} for party, by in due],
    )
    await stop_members(tx, [(party.run_uid, party.attempt) for party, _ in due])
    await outbox.add_all(tx, [party.letter(cluster_name, "preempt", by, HIGHER_PRIORITY) for party, by in due])
    rows = [party.event(tx.now, "preempted", f"Preempted by higher-priority work ({by})") for party, by in due]
    await tx.conn.execute(sql.RECORD, rows)
    for party, _ in due:
        _announce(tx, party)
    return True


def _is_due(eviction: Eviction, parties: Mapping[int, _Party]) -> bool:
    victim, preemptor = parties.get(eviction.claim), parties.get(eviction.for_claim)
    return (
        victim is not None
        and preemptor is not None
        and victim.state == "Granted"
        and not victim.decided
        and victim.attempt == eviction.attempt
        and preemptor.state == "Waiting"
        and preemptor.placeable
    )


def _announce(tx: Tx, party: _Party) -> None:
    tx.announce("run", f"{party.workspace_id}/{party.run_uid}")
    tx.announce("event", party.workspace_id)


async def _reserve(
    tx: Tx, cluster_name: str, parties: Mapping[int, _Party], reserved: Iterable[Reserved], granted: set[int]
) -> bool:
    """Make these the cluster's reservations; answers whether that changed any."""
    wanted: dict[tuple[int, str], int] = {}
    for item in reserved:
        party = parties.get(item.claim)
        if party is not None and party.state == "Waiting" and item.claim not in granted:
            wanted[item.claim, item.machine] = wanted.get((item.claim, item.machine), 0) | item.gpu_mask
    r = reservation.c
    rows = await tx.conn.execute(sql.RESERVED, {"b_cluster": cluster_name})
    if wanted == {(row.claim, row.machine): row.gpu_mask for row in rows}:
        return False
    await tx.conn.execute(delete(reservation).where(r.cluster == cluster_name))
    new = [
        {"claim": key[0], "cluster": cluster_name, "machine": key[1], "gpu_mask": mask, "created_at": tx.now}
        for key, mask in wanted.items()
    ]
    if new:
        await tx.conn.execute(insert(reservation), new)
    return True


async def _explain(tx: Tx, cluster_name: str, waits: Sequence[Wait], granted: set[int]) -> None:
    """Keep why claims wait, and show it unless their run has something to say that lasts; only what changed."""
    reasons = {wait.claim: wait.reason for wait in waits if wait.claim not in granted}
    if not reasons:
        return
    query = (
        select(claim.c.id, claim.c.waiting_reason, claim.c.headline)
        .add_columns(run.c.uid, run.c.workspace, run.c.reason, run.c.parent)
        .join(run, run.c.uid == claim.c.run_uid)
        .where(claim.c.cluster == cluster_name, claim.c.state == "Waiting", run.c.state == "Pending")
    )
    rows = [(row, reasons[row.id]) for row in await tx.conn.execute(query) if row.id in reasons]
    changed = [{"b_claim": row.id, "b_reason": reason} for row, reason in rows if row.waiting_reason != reason]
    if changed:
        await tx.conn.execute(
            update(claim)
            .where(claim.c.id == bindparam("b_claim"), claim.c.state == "Waiting")
            .values(waiting_reason=bindparam("b_reason")),
            changed,
        )
    shown = [(row, reason) for row, reason in rows if row.headline is None and row.reason != reason]
    if shown:
        waiting = exists().where(claim.c.id == bindparam("b_claim"), claim.c.state == "Waiting")
        await tx.conn.execute(
            update(run)
            .where(run.c.uid == bindparam("b_run"), run.c.state == "Pending", waiting)
            .values(reason=bindparam("b_reason")),
            [{"b_claim": row.id, "b_run": row.uid, "b_reason": reason} for row, reason in shown],
        )
    for row, _ in shown:
        tx.announce(REASON, f"{row.workspace}/{row.uid}")
        if row.parent is not None:
            tx.derived[row.parent] = runs.derive
