"""Scans of the network, applied as one change each; one that lost too much at once is held for an operator."""

import json
import uuid
import zlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import and_, delete, select, update

from astraeus.ledger import findings, networks, tables
from astraeus.ledger.core import Tx
from astraeus.ledger.findings import News
from astraeus.ledger.locating import locate
from astraeus.ledger.notices import cluster_event
from astraeus.ledger.tables import machine, nic, topology_fabric, topology_finding, topology_place, topology_scan
from astraeus.ledger.upsert import insert_or_replace
from astraeus.model.errors import Conflict, NotFound
from astraeus.topology.counting import Reading
from astraeus.topology.derive import LINK_BYTES, Derived, DerivedFabric
from astraeus.topology.identity import SAME, Known
from astraeus.topology.owners import Inventory, Owned
from astraeus.topology.scan import guid_of, guid_text
from astraeus.topology.sites import Site

LOST_MOST = 0.2
"""A scan that lost more of a fabric's links than this since the last one is held."""
KEPT_SECONDS = 30 * 86_400.0


@dataclass(frozen=True)
class State:
    """What a scan is compared with `at` a time: the machines, the fabrics as they were last seen, and their links."""

    inventory: Inventory
    known: tuple[Known, ...]
    links: Mapping[str, frozenset[bytes]]
    scanned_at: Mapping[str, float]
    at: float


@dataclass(frozen=True)
class Outcome:
    """What became of a scan. `why` says what it was held for; `runs` are those whose network changed."""

    id: str
    state: str
    why: str | None
    machines_changed: int
    news: News
    runs: tuple[str, ...] = ()


async def read_state(tx: Tx, cluster: str) -> State:
    """What is known of a cluster's network now."""
    names = frozenset(await tx.conn.scalars(select(machine.c.name).where(machine.c.cluster == cluster)))
    adapters, renamed = await _adapters(tx, cluster)
    fabrics = select(topology_fabric).where(topology_fabric.c.cluster == cluster).order_by(topology_fabric.c.name)
    rows = (await tx.conn.execute(fabrics)).all()
    return State(
        inventory=Inventory(names, adapters),
        known=tuple(_known(row.name, row.identity, renamed, _readings(row.counters)) for row in rows),
        links={row.name: _unpacked(row.links) for row in rows},
        scanned_at={row.name: row.scanned_at for row in rows},
        at=tx.now,
    )


async def _adapters(tx: Tx, cluster: str) -> tuple[dict[int, Owned], frozenset[str]]:
    """Whose adapter each GUID is, and machines whose adapters others have now.

    A renamed machine leaves what it had under its old name: of two with one GUID it is of who was heard last.
    """
    own = and_(machine.c.cluster == nic.c.cluster, machine.c.name == nic.c.machine)
    query = (
        select(nic.c.node_guid, nic.c.machine, nic.c.device, nic.c.rail)
        .join(machine, own)
        .where(nic.c.cluster == cluster, nic.c.node_guid.is_not(None), nic.c.link == "infiniband")
        .order_by(machine.c.heard_at, nic.c.machine, nic.c.rail)
    )
    found = {}
    had = set()
    for text, name, device, rail in await tx.conn.execute(query):
        if (guid := guid_of(text)) is not None:
            found[guid] = Owned(name, device, rail)
            had.add(name)
    return found, frozenset(had - {owned.machine for owned in found.values()})


async def apply(
    tx: Tx, cluster: str, before: State, derived: Derived, site: Site, actor: str, body: bytes, force: bool = False
) -> Outcome:
    """Take a scan and files over as one change, or hold them. Raises Conflict when another scan came in between."""
    query = select(topology_fabric.c.name, topology_fabric.c.scanned_at).where(topology_fabric.c.cluster == cluster)
    lock = select(tables.cluster.c.name).where(tables.cluster.c.name == cluster).with_for_update(key_share=True)
    await tx.conn.execute(lock)
    now = {row.name: row.scanned_at for row in await tx.conn.execute(query)}
    if now != before.scanned_at:
        raise Conflict("Another scan was applied meanwhile; send this one again.")
    scanned = [fabric.known.name for fabric in derived.fabrics]
    await _discard_held(tx, cluster, scanned)
    why = None if force else _too_much(before, derived.fabrics)
    number = uuid.uuid4().hex
    scan = {"id": number, "cluster": cluster, "at": tx.now, "actor": actor, "why": why, "summary": _summary(derived)}
    if why is not None:
        await tx.conn.execute(topology_scan.insert().values(**scan, state="held", body=body))
        await cluster_event(tx, cluster, "topology_held", actor, f"The scan was not applied: {why}")
        tx.announce("cluster", cluster)
        return Outcome(number, "held", why, 0, News(0, 0, 0))
    await tx.conn.execute(topology_scan.insert().values(**scan, state="applied"))
    await _prune(tx, cluster)
    for fabric in derived.fabrics:
        await _write_fabric(tx, cluster, fabric)
    gone = await _forget_joined(tx, cluster, before.known, [fabric.known for fabric in derived.fabrics])
    changed = await locate(tx, cluster, derived, site, [*scanned, *gone])
    news = await findings.reconcile(tx, cluster, derived.findings, scanned, gone, derived.counted, actor)
    runs = await networks.review(tx, cluster, changed)
    for name in changed:
        tx.announce("machine", f"{cluster}/{name}")
    tx.announce("cluster", cluster)
    if changed:
        message = f"The network changed for {len(changed)} machines: {_some(changed)}"
        await cluster_event(tx, cluster, "topology_applied", actor, message)
    return Outcome(number, "applied", None, len(changed), news, tuple(runs))


async def forget(tx: Tx, cluster: str, actor: str) -> None:
    """Forget what every scan and file said: machines are where their own labels say."""
    names = sorted(await tx.conn.scalars(select(topology_place.c.machine).where(topology_place.c.cluster == cluster)))
    for table in (topology_place, topology_fabric):
        await tx.conn.execute(delete(table).where(table.c.cluster == cluster))
    there = topology_finding.c.cluster == cluster, topology_finding.c.closed_at.is_(None)
    await tx.conn.execute(update(topology_finding).where(*there).values(closed_at=tx.now))
    await _discard_held(tx, cluster)
    await networks.review(tx, cluster, names)
    for name in names:
        tx.announce("machine", f"{cluster}/{name}")
    tx.announce("cluster", cluster)
    await cluster_event(tx, cluster, "topology_forgotten", actor, "What scans said of the network is forgotten")


async def held(tx: Tx, cluster: str) -> Any | None:
    """The scan that waits for an operator: its `id`, `at`, `actor`, `why`, `summary` and `body`."""
    query = select(topology_scan).where(topology_scan.c.cluster == cluster, topology_scan.c.state == "held")
    return (await tx.conn.execute(query.order_by(topology_scan.c.at.desc()).limit(1))).one_or_none()


async def discard(tx: Tx, cluster: str, actor: str) -> None:
    """Drop the scan that is held. Raises NotFound when none is."""
    waiting = await held(tx, cluster)
    if waiting is None:
        raise NotFound(f"No scan of {cluster} is held.")
    await _discard_held(tx, cluster, waiting.summary["fabrics"])
    tx.announce("cluster", cluster)
    await cluster_event(tx, cluster, "topology_discarded", actor, "The scan that was held is dropped")


async def fabrics(tx: Tx, cluster: str) -> list[dict[str, Any]]:
    """What was derived of each fabric, for showing."""
    f = topology_fabric.c
    query = select(f.name, f.summary, f.scanned_at).where(f.cluster == cluster).order_by(f.name)
    return [{"name": row.name, "scanned_at": row.scanned_at, **row.summary} for row in await tx.conn.execute(query)]


async def _discard_held(tx: Tx, cluster: str, fabrics: Collection[str] | None = None) -> None:
    """Drop what is held of any of these fabrics, or of all; a scan of one fabric says nothing of the others."""
    t = topology_scan.c
    query = select(t.id, t.summary).where(t.cluster == cluster, t.state == "held")
    waiting = (await tx.conn.execute(query)).all()
    dropped = [row.id for row in waiting if fabrics is None or not set(fabrics).isdisjoint(row.summary["fabrics"])]
    await tx.conn.execute(update(topology_scan).where(t.id.in_(dropped)).values(state="discarded", body=None))


async def _forget_joined(tx: Tx, cluster: str, before: Sequence[Known], now: Sequence[Known]) -> list[str]:
    """Forget fabrics whose switches are on fabrics of other names now; answers their names."""
    names = {fabric.name for fabric in now}
    seen = frozenset[int]().union(*(fabric.switches for fabric in now))
    gone = [
        fabric.name
        for fabric in before
        if fabric.name not in names and len(fabric.switches & seen) > SAME * len(fabric.switches)
    ]
    f = topology_fabric.c
    await tx.conn.execute(delete(topology_fabric).where(f.cluster == cluster, f.name.in_(gone)))
    return gone


async def _prune(tx: Tx, cluster: str) -> None:
    old = topology_scan.c.cluster == cluster, topology_scan.c.at < tx.now - KEPT_SECONDS
    await tx.conn.execute(delete(topology_scan).where(*old))


def _too_much(before: State, now: Sequence[DerivedFabric]) -> str | None:
    """Why a scan must not be applied by itself."""
    for fabric in now:
        links = before.links.get(fabric.known.name)
        if not links:
            continue
        lost = len(links - fabric.links)
        if lost > LOST_MOST * len(links):
            part = f"{lost} of {len(links)} links ({lost / len(links):.0%})"
            return f"{fabric.known.name} lost {part} since the last scan; apply it if that is so, or scan again"
    return None


def _known(name: str, identity: Mapping[str, Any], renamed: Collection[str], readings: tuple[Reading, ...]) -> Known:
    def numbers(texts: Sequence[str]) -> list[int]:
        return [guid for text in texts if (guid := guid_of(text)) is not None]

    return Known(
        name=name,
        switches=frozenset(numbers(identity["switches"])),
        managers=tuple(numbers(identity["managers"])),
        leaf_groups={group: frozenset(numbers(leaves)) for group, leaves in identity["leaf_groups"].items()},
        spine_groups={group: frozenset(numbers(above)) for group, above in identity["spine_groups"].items()},
        machines=frozenset(identity["machines"]).difference(renamed),
        readings=readings,
    )


def _identity(known: Known) -> dict[str, Any]:
    def texts(guids: Collection[int]) -> list[str]:
        return [guid_text(guid) for guid in sorted(guids)]

    return {
        "switches": texts(known.switches),
        "managers": [guid_text(guid) for guid in known.managers],
        "leaf_groups": {name: texts(leaves) for name, leaves in known.leaf_groups.items()},
        "spine_groups": {name: texts(above) for name, above in known.spine_groups.items()},
        "machines": sorted(known.machines),
    }


async def _write_fabric(tx: Tx, cluster: str, fabric: DerivedFabric) -> None:
    values = {
        "cluster": cluster,
        "name": fabric.known.name,
        "identity": _identity(fabric.known),
        "summary": {
            "managers": [guid_text(guid) for guid in fabric.known.managers],
            "switches": fabric.switches,
            "adapters": fabric.adapters,
            "nameless": fabric.nameless,
            "aggregation_nodes": fabric.aggregation_nodes,
            "rail_optimised": fabric.rail_optimised,
            "other_hosts": list(fabric.others),
            "leaf_groups": [
                {
                    "name": group.name,
                    "spine": group.spine,
                    "switches": list(group.leaves),
                    "rails": list(group.rails) if group.rails else None,
                    "machines": len(group.machines),
                    "oversubscription": group.nominal,
                    "oversubscription_live": group.live,
                }
                for group in fabric.groups
            ],
        },
        "links": zlib.compress(b"".join(sorted(fabric.links))),
        "counters": _packed(fabric.known.readings),
        "scanned_at": tx.now,
    }
    replace = ("identity", "summary", "links", "counters", "scanned_at")
    await tx.conn.execute(insert_or_replace(tx, topology_fabric, values, replace))


def _unpacked(links: bytes) -> frozenset[bytes]:
    data = zlib.decompress(links)
    return frozenset(data[i : i + LINK_BYTES] for i in range(0, len(data), LINK_BYTES))


def _packed(readings: Sequence[Reading]) -> bytes:
    told = [
        [one.at, {f"{guid:x}/{port}": dict(counters) for (guid, port), counters in one.ports.items()}]
        for one in readings
    ]
    return zlib.compress(json.dumps(told).encode())


def _readings(packed: bytes | None) -> tuple[Reading, ...]:
    found = []
    for at, ports in json.loads(zlib.decompress(packed)) if packed else ():
        ends = {name: name.partition("/") for name in ports}
        found.append(Reading(at, {(int(guid, 16), int(port)): ports[name] for name, (guid, _, port) in ends.items()}))
    return tuple(found)


def _summary(derived: Derived) -> dict[str, Any]:
    return {
        "fabrics": [fabric.known.name for fabric in derived.fabrics],
        "machines": len(derived.places),
        "links": sum(len(fabric.links) for fabric in derived.fabrics),
        "findings": len(derived.findings),
        "unread": derived.unread,
    }


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - 8} more" if len(names) > 8 else ""
    return ", ".join(names[:8]) + more
