"""Where a scan or a file finds machines, over what is known from the scans of other fabrics."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import select

from astraeus.ledger.core import Tx
from astraeus.ledger.places import EVERY_PORT
from astraeus.ledger.tables import nic, topology_place
from astraeus.ledger.upsert import insert_or_replace
from astraeus.model.machine import FABRIC, LEAF, SPINE
from astraeus.topology.derive import Derived, Place
from astraeus.topology.sites import Site

ROWS_AT_ONCE = 500
Ports = dict[str, dict[str, Any]]
Rates = Mapping[tuple[str, str], float]


@dataclass(frozen=True)
class _Spot:
    """What a row of `topology_place` tells of its machine."""

    labels: dict[str, str | None] = field(default_factory=dict)
    ports: Ports = field(default_factory=dict)
    source: str = "file"


async def locate(tx: Tx, cluster: str, derived: Derived, site: Site, scanned: Collection[str]) -> list[str]:
    """Write where machines are after a scan of these fabrics; answers those for which that changed."""
    p = topology_place.c
    query = select(p.machine, p.labels, p.ports, p.source).where(p.cluster == cluster)
    old = {row.machine: _Spot(row.labels, row.ports, row.source) for row in await tx.conn.execute(query)}
    new = {
        name: _Spot(spot.labels, {EVERY_PORT: {"up": False}}, "scan")
        for name, spot in old.items()
        if spot.source == "scan" and spot.labels.get(FABRIC) in scanned and name not in derived.places
    }
    for name, labels in site.places.items():
        before = old.get(name, _Spot())
        new[name] = _Spot({**before.labels, **labels}, before.ports, before.source)
    rates = await _rates(tx, cluster)
    for name, place in derived.places.items():
        before = old.get(name, _Spot())
        new[name] = _seen(name, before, new.get(name, before).labels, place, scanned, rates)
    changed = sorted(name for name, spot in new.items() if spot != old.get(name))
    await _write(tx, cluster, [(name, new[name]) for name in changed])
    return changed


def _seen(
    name: str, before: _Spot, labels: Mapping[str, str | None], place: Place, scanned: Collection[str], rates: Rates
) -> _Spot:
    """A machine that a scan saw. It is on the fabric of most of its bandwidth, whichever was scanned last."""
    others = {port: told for port, told in before.ports.items() if port not in place.ports and port != EVERY_PORT}
    home = before.labels.get(FABRIC) if before.source == "scan" else None
    if home is None or home == place.fabric or home in scanned:
        # What this scan did not see of the machine's own fabric is gone; what is on others is still there.
        others = {port: told for port, told in others.items() if not told.get("use", True)}
    elif (-_speed(name, others, rates), home) < (-_speed(name, place.ports, rates), place.fabric):
        return _Spot(dict(labels), others | _unused(place.ports), "scan")
    own = {FABRIC: place.fabric, SPINE: place.spine, LEAF: place.leaf}
    return _Spot({**labels, **own}, _unused(others) | place.ports, "scan")


def _unused(ports: Collection[str]) -> Ports:
    return {port: {"use": False} for port in ports}


def _speed(name: str, ports: Ports, rates: Rates) -> float:
    """Gb/s of a machine's ports that are in use."""
    used = [port for port, told in ports.items() if told.get("use", True) and told.get("up", True)]
    return sum(rates.get((name, port), 1.0) for port in used)


async def _rates(tx: Tx, cluster: str) -> Rates:
    """What agents report, by machine and port."""
    n = nic.c
    query = select(n.machine, n.device, n.port, n.gbps).where(n.cluster == cluster, n.link == "infiniband")
    return {(name, f"{device}:{port}"): gbps for name, device, port, gbps in await tx.conn.execute(query)}


async def _write(tx: Tx, cluster: str, spots: Sequence[tuple[str, _Spot]]) -> None:
    rows = [
        {"cluster": cluster, "machine": name, "at": tx.now}
        | {"labels": spot.labels, "ports": spot.ports, "source": spot.source}
        for name, spot in spots
    ]
    for i in range(0, len(rows), ROWS_AT_ONCE):
        replaced = insert_or_replace(
            tx, topology_place, rows[i : i + ROWS_AT_ONCE], ("labels", "ports", "source", "at")
        )
        await tx.conn.execute(replaced)
