"""What a scheduling pass decides on: a cluster as pure values, read with a constant number of queries."""

import json
from collections import OrderedDict, defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from operator import attrgetter
from typing import Any

from sqlalchemy import BindParameter, Select, Text, bindparam, cast, func, select

from astraeus.ledger.core import Tx
from astraeus.ledger.places import OF_MACHINE, PLACE, labels_at, placed_as, ports_at
from astraeus.ledger.shares import read_allotments
from astraeus.ledger.tables import (
    GPUS_MAX,
    allocation,
    claim,
    cluster,
    machine,
    nic,
    reservation,
    run,
    topology_place,
    workspace,
)
from astraeus.model.errors import NotFound
from astraeus.model.independent import one_worker
from astraeus.model.machine import MachineFacts, Nic
from astraeus.model.spec import Resources
from astraeus.placement.types import Ask, Holding, Machine, Reserved, Snapshot

REMEMBERED = 20_000
SPECS_PER_QUERY = 5_000
CLUSTER: BindParameter[str] = bindparam("cluster")
SPECIFIED = func.coalesce(run.c.parent, run.c.uid).label("specified")
"""The run whose specification counts: workers that start one by one share theirs, and so its parts in the planner."""


@dataclass(frozen=True, slots=True)
class Described:
    """What the planner wants of a machine's facts."""

    gpu_model: str
    labels: Mapping[str, str]
    broken: int
    doubtful: int


@dataclass(frozen=True, slots=True)
class _Wish:
    """What the planner wants of a specification."""

    resources: Resources
    preemptible: bool
    time_limit_seconds: int | None


_wishes: OrderedDict[str, _Wish] = OrderedDict()
"""By run uid. A run's specification never changes, and reading it again at every pass would cost the most."""


def _waiting() -> Select[Any]:
    """The claims to place, in queue order."""
    c = claim.c
    return (
        select(c.id, c.run_uid, c.attempt, c.patience_until, c.avoid, run.c.name, run.c.priority, run.c.submitted_at)
        .add_columns(SPECIFIED, workspace.c.organisation, workspace.c.name.label("workspace_name"))
        .join(run, run.c.uid == c.run_uid)
        .join(workspace, workspace.c.id == run.c.workspace)
        .where(c.cluster == CLUSTER, c.state == "Waiting", c.intent.is_(None), ~run.c.held, ~run.c.final)
        .where(run.c.delete_asked_at.is_(None))
        .order_by(run.c.priority.desc(), run.c.submitted_at, run.c.uid)
    )


def _held() -> Select[Any]:
    """What granted claims hold, a row for each worker."""
    c, a = claim.c, allocation.c
    return (
        select(c.id, c.run_uid, c.attempt, c.granted_at, c.gates_opened_at, c.intent, c.failure, c.succeeded_at)
        .add_columns(a.machine, a.gpu_mask, a.cpu_cores, a.memory_bytes, run.c.name, run.c.priority)
        .add_columns(SPECIFIED, workspace.c.organisation, workspace.c.name.label("workspace_name"))
        .join(allocation, a.claim == c.id)
        .join(run, run.c.uid == c.run_uid)
        .join(workspace, workspace.c.id == run.c.workspace)
        .where(c.cluster == CLUSTER, c.state == "Granted", a.live)
        .order_by(c.id, a.rank)
    )


def _ports() -> Select[Any]:
    """The ports of machines."""
    return (
        select(nic.c.machine, nic.c.device, nic.c.port, nic.c.rail, nic.c.gbps, nic.c.link, nic.c.up)
        .where(nic.c.cluster == CLUSTER)
        .order_by(nic.c.machine, nic.c.rail, nic.c.device, nic.c.port)
    )


def _machines() -> Select[Any]:
    m = machine.c
    return (
        select(m.name, m.gpus, m.cpu_cores, m.memory_bytes, m.state, m.cordoned, m.drained_by)
        .add_columns(cast(m.facts, Text).label("facts"), *PLACE)
        .outerjoin(topology_place, OF_MACHINE)
        .where(m.cluster == CLUSTER)
    )


WAITING, HELD, PORTS, MACHINES = _waiting(), _held(), _ports(), _machines()
RUNS: BindParameter[Any] = bindparam("uids", expanding=True)
NAMES: BindParameter[Any] = bindparam("names", expanding=True)
RESERVED = select(reservation).where(reservation.c.cluster == CLUSTER).order_by(*reservation.primary_key)
WISHES = select(
    run.c.uid,
    run.c.size,
    run.c.spec["preemptible"].label("preemptible"),
    run.c.spec["task_template", "time_limit_seconds"].label("time_limit_seconds"),
    run.c.spec["task_template", "requested_resources"].label("resources"),
).where(run.c.uid.in_(RUNS))
WAITING_OF, HELD_OF = WAITING.where(claim.c.run_uid.in_(RUNS)), HELD.where(claim.c.run_uid.in_(RUNS))
PORTS_OF, MACHINES_OF = PORTS.where(nic.c.machine.in_(NAMES)), MACHINES.where(machine.c.name.in_(NAMES))
"""Made once: SQLAlchemy takes longer to put a statement together than SQLite to answer it."""


async def load_snapshot(tx: Tx, cluster_name: str) -> Snapshot:
    """The cluster's machines, holdings, waiting claims in queue order, reservations, and what workspaces are due.

    Runs that are held or whose deletion was asked for are not placed, so their claims are left out.
    """
    query = select(*cluster.c["factors", "half_life_seconds"]).where(cluster.c.name == cluster_name)
    home = (await tx.conn.execute(query)).one_or_none()
    if home is None:
        raise NotFound(f"There is no cluster {cluster_name}")
    asks, holdings = await read_claims(tx, cluster_name)
    return Snapshot(
        cluster=cluster_name,
        machines=tuple(await read_machines(tx, cluster_name)),
        holdings=tuple(holdings),
        asks=tuple(asks),
        reserved=await read_reserved(tx, cluster_name),
        factors=home.factors,
        allotments=await read_allotments(tx, cluster_name),
        half_life_seconds=home.half_life_seconds,
    )


async def read_claims(
    tx: Tx, cluster_name: str, uids: Collection[str] | None = None
) -> tuple[list[Ask], list[Holding]]:
    """What waits, in queue order, and what granted claims hold; of these runs only, where they are given."""
    values = {"cluster": cluster_name} | ({} if uids is None else {"uids": list(uids)})
    waiting = (await tx.conn.execute(WAITING if uids is None else WAITING_OF, values)).all()
    held = (await tx.conn.execute(HELD if uids is None else HELD_OF, values)).all()
    wishes = await _wishes_of(tx, {row.specified for row in waiting} | {row.specified for row in held})
    return [_ask(row, wishes[row.specified]) for row in waiting], [_holding(row, wishes[row.specified]) for row in held]


async def read_reserved(tx: Tx, cluster_name: str) -> tuple[Reserved, ...]:
    """The cluster's reservations."""
    rows = await tx.conn.execute(RESERVED, {"cluster": cluster_name})
    return tuple(Reserved(row.claim, row.machine, row.gpu_mask) for row in rows)


async def read_machines(tx: Tx, cluster_name: str, names: Collection[str] | None = None) -> list[Machine]:
    """The cluster's machines by name; only these, where they are given."""
    values = {"cluster": cluster_name} | ({} if names is None else {"names": list(names)})
    ports: dict[str, list[Nic]] = defaultdict(list)
    for name, *port in await tx.conn.execute(PORTS if names is None else PORTS_OF, values):
        ports[name].append(_port(*port))
    rows = await tx.conn.execute(MACHINES if names is None else MACHINES_OF, values)
    found = [_machine(row, tuple(ports.get(row.name, ()))) for row in rows]
    # Not ordered by the database, whose collation is its own.
    return sorted(found, key=attrgetter("name"))


@lru_cache(maxsize=1 << 16)
def _port(device: str, port: int, rail: int, gbps: float, link: Any, up: bool) -> Nic:
    return Nic(device=device, port=port, rail=rail, gbps=gbps, link=link, up=up)


@lru_cache(maxsize=1 << 15)
def described(facts: str) -> Described:
    """The part of a machine's facts (as stored, JSON text) that placing it needs."""
    known = MachineFacts.model_validate_json(facts)
    return Described(known.gpu_model, known.labels, _mask(known.broken_gpus), _mask(known.doubtful_gpus))


def _mask(gpus: Iterable[int]) -> int:
    # An agent's word: one that names a GPU which cannot be must not end every pass.
    return sum({1 << gpu for gpu in gpus if 0 <= gpu < GPUS_MAX})


def _machine(row: Any, ports: tuple[Nic, ...]) -> Machine:
    facts, placed = described(row.facts), placed_as(row.place_labels, row.place_ports)
    return Machine(
        name=row.name,
        gpus=row.gpus,
        gpu_model=facts.gpu_model,
        cpu_cores=row.cpu_cores,
        memory_bytes=row.memory_bytes,
        labels=labels_at(facts.labels, placed),
        ports=ports_at(ports, placed),
        broken=facts.broken,
        doubtful=facts.doubtful,
        refusal=_refusal(row.state, row.cordoned, row.drained_by),
    )


def _refusal(state: str, cordoned: bool, drained_by: str | None) -> str | None:
    if state != "Ready":
        return state.lower()
    if cordoned:
        return "draining" if drained_by else "cordoned"
    return None


def _ask(row: Any, wish: _Wish) -> Ask:
    return Ask(
        claim=row.id,
        run_uid=row.run_uid,
        run_name=row.name,
        workspace=f"{row.organisation}/{row.workspace_name}",
        attempt=row.attempt,
        resources=wish.resources,
        priority=row.priority,
        submitted_at=row.submitted_at,
        patience_until=row.patience_until,
        avoid=frozenset(row.avoid),
        time_limit_seconds=wish.time_limit_seconds,
        preemptible=wish.preemptible,
    )


def _holding(row: Any, wish: _Wish) -> Holding:
    limited = wish.time_limit_seconds is not None and row.gates_opened_at is not None
    return Holding(
        claim=row.id,
        run_uid=row.run_uid,
        run_name=row.name,
        workspace=f"{row.organisation}/{row.workspace_name}",
        attempt=row.attempt,
        machine=row.machine,
        gpu_mask=row.gpu_mask,
        cpu_cores=row.cpu_cores,
        memory_bytes=row.memory_bytes,
        priority=row.priority,
        preemptible=wish.preemptible,
        started_at=row.granted_at if row.gates_opened_at is None else row.gates_opened_at,
        ends_at=row.gates_opened_at + wish.time_limit_seconds if limited else None,
        stopping=bool(row.intent or row.failure or row.succeeded_at),
        time_limit_seconds=wish.time_limit_seconds,
    )


async def _wishes_of(tx: Tx, uids: set[str]) -> dict[str, _Wish]:
    """The wishes of these runs; only those not yet known are read."""
    unknown = sorted(uids - _wishes.keys())
    for i in range(0, len(unknown), SPECS_PER_QUERY):
        for row in await tx.conn.execute(WISHES, {"uids": unknown[i : i + SPECS_PER_QUERY]}):
            _wishes[row.uid] = _wish(row)
    found = {uid: _wishes[uid] for uid in uids}
    for uid in found:
        _wishes.move_to_end(uid)
    while len(_wishes) > max(REMEMBERED, len(found)):
        _wishes.popitem(last=False)
    return found


def _wish(row: Any) -> _Wish:
    resources = Resources.model_validate_json(json.dumps(row.resources or {}))
    return _Wish(
        resources=one_worker(resources, row.size) if row.size else resources,
        # SQLite says 1 for a JSON true.
        preemptible=row.preemptible is None or bool(row.preemptible),
        time_limit_seconds=row.time_limit_seconds,
    )
