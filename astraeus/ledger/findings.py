"""Findings open, stay and close with the scans; what opens and closes is told as events."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import bindparam, insert, select, update

from astraeus.ledger.core import Tx
from astraeus.ledger.costs import fault_costs
from astraeus.ledger.notices import cluster_event
from astraeus.ledger.tables import allocation, claim, run, topology_finding
from astraeus.model.machine import Lenient
from astraeus.placement.faultcost import UPLINK, Fault, FaultCost
from astraeus.topology.findings import Finding

EVENTS_MOST = 20
"""A scan with more news than this is told in one event of each kind."""
COUNTED = frozenset({"errors", "congested"})
"""Found only where error counters were looked at."""
SEVERITIES = ("error", "warning", "info")


class FindingView(Lenient):
    """A finding as the API shows it; `runs` are those it touches now, `costs` what it costs which of them."""

    id: int
    kind: str
    severity: str
    fabric: str
    place: str
    message: str
    cost: str
    advice: str
    machines: list[str]
    runs: list[str] = []
    costs: list[FaultCost] = []
    detail: dict[str, Any]
    opened_at: datetime
    seen_at: datetime
    closed_at: datetime | None = None


@dataclass(frozen=True)
class News:
    """How many findings a scan opened, found again and closed."""

    opened: int
    stayed: int
    closed: int


async def reconcile(
    tx: Tx,
    cluster: str,
    found: Sequence[Finding],
    fabrics: Collection[str],
    gone: Collection[str],
    counted: bool,
    actor: str,
) -> News:
    """Write down what a scan of these fabrics found; all that was found on those that are `gone` is closed."""
    f = topology_finding.c
    query = select(f.id, f.key, f.kind, f.fabric, f.place).where(f.cluster == cluster, f.closed_at.is_(None))
    query = query.where(f.fabric.in_((*fabrics, *gone))).order_by(f.id)
    known = {row.key: row for row in await tx.conn.execute(query)}
    now = {one.key: one for one in found}
    opened = [one for key, one in now.items() if key not in known]
    stayed = [(known[key].id, one) for key, one in now.items() if key in known]
    closed = [
        row
        for key, row in known.items()
        if key not in now and (counted or row.kind not in COUNTED or row.fabric in gone)
    ]
    if opened:
        await tx.conn.execute(insert(topology_finding), [_row(cluster, one, tx.now) for one in opened])
    if stayed:
        await tx.conn.execute(_again(), [{"b_id": number, **_changing(one, tx.now)} for number, one in stayed])
    if closed:
        ids = [row.id for row in closed]
        await tx.conn.execute(update(topology_finding).where(f.id.in_(ids)).values(closed_at=tx.now))
    opened.sort(key=lambda one: SEVERITIES.index(one.severity))
    await _tell(tx, cluster, "finding_opened", actor, [f"{one.place} {one.message}; {one.advice}" for one in opened])
    await _tell(tx, cluster, "finding_closed", actor, [f"{row.place}: no longer {_kind(row.kind)}" for row in closed])
    return News(len(opened), len(stayed), len(closed))


def _kind(kind: str) -> str:
    return kind.replace("_", " ")


async def _tell(tx: Tx, cluster: str, kind: str, actor: str, messages: Sequence[str]) -> None:
    for message in messages[:EVENTS_MOST]:
        await cluster_event(tx, cluster, kind, actor, message)
    if len(messages) > EVENTS_MOST:
        more = len(messages) - EVENTS_MOST
        await cluster_event(tx, cluster, kind, actor, f"and {more} more; see the topology's findings")


def _changing(one: Finding, now: float) -> dict[str, Any]:
    return {
        "b_severity": one.severity,
        "b_message": one.message,
        "b_cost": one.cost,
        "b_advice": one.advice,
        "b_machines": list(one.machines),
        "b_detail": dict(one.detail),
        "b_seen_at": now,
    }


def _again() -> Any:
    columns = ("severity", "message", "cost", "advice", "machines", "detail", "seen_at")
    values = {name: bindparam(f"b_{name}", type_=topology_finding.c[name].type) for name in columns}
    return update(topology_finding).where(topology_finding.c.id == bindparam("b_id")).values(values)


def _row(cluster: str, one: Finding, now: float) -> dict[str, Any]:
    return {
        "cluster": cluster,
        "key": one.key,
        "kind": one.kind,
        "severity": one.severity,
        "fabric": one.fabric,
        "place": one.place,
        "message": one.message,
        "cost": one.cost,
        "advice": one.advice,
        "machines": list(one.machines),
        "detail": dict(one.detail),
        "opened_at": now,
        "seen_at": now,
    }


async def finding_views(tx: Tx, cluster: str, closed: bool = False) -> list[FindingView]:
    """The open findings, the worst first; or the last hundred that were closed."""
    f = topology_finding.c
    query = select(topology_finding).where(f.cluster == cluster)
    if closed:
        query = query.where(f.closed_at.is_not(None)).order_by(f.closed_at.desc(), f.id).limit(100)
    else:
        query = query.where(f.closed_at.is_(None)).order_by(f.id)
    rows = (await tx.conn.execute(query)).all()
    if closed:
        return [_view(row, [], []) for row in rows]
    runs = await _runs_on(tx, cluster, {name for row in rows for name in row.machines})
    costs = await fault_costs(tx, cluster, [Fault(row.kind, tuple(row.machines), row.detail) for row in rows])
    views = [_view(row, _touched(row, runs, cost), cost) for row, cost in zip(rows, costs, strict=True)]
    return sorted(views, key=lambda view: SEVERITIES.index(view.severity))


def _touched(row: Any, runs: Mapping[str, Sequence[str]], costs: Sequence[FaultCost]) -> list[str]:
    """The runs on a finding's machines; of a fault above the leaves those that reach across it."""
    if row.kind in UPLINK:
        return sorted({cost.run for cost in costs})
    return sorted({name for machine in row.machines for name in runs.get(machine, ())})


async def _runs_on(tx: Tx, cluster: str, machines: Collection[str]) -> dict[str, list[str]]:
    if not machines:
        return {}
    query = (
        select(allocation.c.machine, run.c.name)
        .join(claim, claim.c.id == allocation.c.claim)
        .join(run, run.c.uid == claim.c.run_uid)
        .where(allocation.c.live, allocation.c.cluster == cluster, allocation.c.machine.in_(machines))
        .distinct()
    )
    found: dict[str, list[str]] = {}
    for machine, name in await tx.conn.execute(query):
        found.setdefault(machine, []).append(name)
    return found


def _view(row: Any, runs: list[str], costs: list[FaultCost]) -> FindingView:
    return FindingView(
        id=row.id,
        kind=row.kind,
        severity=row.severity,
        fabric=row.fabric,
        place=row.place,
        message=row.message,
        cost=row.cost,
        advice=row.advice,
        machines=row.machines,
        runs=runs,
        costs=costs,
        detail=row.detail,
        opened_at=datetime.fromtimestamp(row.opened_at, UTC),
        seen_at=datetime.fromtimestamp(row.seen_at, UTC),
        closed_at=None if row.closed_at is None else datetime.fromtimestamp(row.closed_at, UTC),
    )
