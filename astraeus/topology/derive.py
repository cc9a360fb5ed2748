"""From a scan to what the ledger keeps: fabrics, each machine's place and ports, findings."""

import hashlib
from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from astraeus.topology import counterfaults, linkfaults, wiring
from astraeus.topology.counting import Reading, kept
from astraeus.topology.findings import Finding, Rule, Scene
from astraeus.topology.graph import Graph, graphs
from astraeus.topology.identity import Known, Names, name_all, spine_key
from astraeus.topology.owners import LAST, Inventory, natural
from astraeus.topology.planes import with_planes_joined
from astraeus.topology.rates import gbps
from astraeus.topology.scan import Problem, Scan
from astraeus.topology.shape import Shape, shape_of

RULES: tuple[Rule, ...] = (
    wiring.missing,
    wiring.absent,
    linkfaults.slow_ports,
    wiring.miswired,
    wiring.homeless,
    wiring.owners_unknown,
    wiring.strangers,
    counterfaults.counters,
)
LEAF_FACTOR = 0.921
LINK_BYTES = 8


@dataclass(frozen=True, slots=True)
class GroupView:
    """A leaf group of a derived fabric. `nominal` and `live` are Gb/s down over Gb/s up, as built and as it is."""

    name: str
    spine: str
    leaves: tuple[str, ...]
    rails: tuple[int, int] | None
    machines: tuple[str, ...]
    nominal: float | None
    live: float | None


@dataclass(frozen=True)
class DerivedFabric:
    """A fabric: its name and aliases, groups, and hosts on it that are no machines."""

    known: Known
    groups: tuple[GroupView, ...]
    rail_optimised: bool
    switches: int
    adapters: int
    nameless: int
    aggregation_nodes: int
    others: tuple[str, ...]
    links: frozenset[bytes]
    """A fingerprint of each link, to tell how many were lost."""


@dataclass(frozen=True)
class Place:
    """Where a machine is, and what its ports are like: by `device:port`, or by device where it has no link.

    A port has its `rail`; `gbps` where it is slower than its peers, `up: False` where its link is missing, `use:
    False` where it is on another fabric than the machine's most.
    """

    fabric: str
    spine: str | None
    leaf: str | None
    ports: dict[str, dict[str, Any]]


@dataclass(frozen=True)
class Derived:
    """Everything a scan says."""

    fabrics: tuple[DerivedFabric, ...]
    places: dict[str, Place]
    findings: tuple[Finding, ...]
    problems: tuple[Problem, ...]
    unread: int
    counted: bool


@dataclass
class _Seen:
    """A machine on one fabric."""

    scene: Scene
    host: str
    speed: float = field(init=False)

    def __post_init__(self) -> None:
        self.speed = sum(gbps(nic.rate) or 1.0 for nic in self.scene.shape.by_host[self.host])


def derive(
    scan: Scan, inventory: Inventory, known: Sequence[Known] = (), at: float = 0.0, factor: float = LEAF_FACTOR
) -> Derived:
    """Derive all fabrics of a scan that was made `at` a time, in seconds.

    `known` are the fabrics of earlier scans, with the error counters they had; `factor` is for the costs told.
    """
    found, named = graphs(scan, inventory)
    hint = {(owned.machine, owned.device): owned.rail for owned in inventory.adapters.values()}
    shapes = [shape_of(graph, hint) for graph in with_planes_joined(found)]
    shapes.sort(key=lambda shape: natural(shape.groups[0].machines[0]) if shape.home else LAST)
    scenes = [
        Scene(scan, shape, names, named, inventory, factor, _readings(scan, shape, names, at))
        for shape, names in zip(shapes, name_all(shapes, known), strict=True)
    ]
    findings: list[Finding] = []
    for scene in scenes:
        findings.extend(_findings(scene))
    findings.extend(wiring.isolated(scenes))
    here = frozenset(nic.host for scene in scenes for nic in scene.shape.graph.adapters())
    return Derived(
        fabrics=tuple(_fabric(scene, here) for scene in scenes),
        places=_places(scenes),
        findings=tuple(_once(findings)),
        problems=tuple(scan.problems),
        unread=scan.unread,
        counted=scan.counted,
    )


def _readings(scan: Scan, shape: Shape, names: Names, at: float) -> tuple[Reading, ...]:
    before = names.known.readings if names.known else ()
    return kept(before, counterfaults.reading(scan, shape.graph, at)) if scan.counted else before


def _findings(scene: Scene) -> Iterator[Finding]:
    levels = linkfaults.levels_of(scene)
    linkfaults.oversubscription(scene, levels)
    for rule in RULES:
        yield from rule(scene)
    yield from linkfaults.slow_uplinks(scene, levels)
    yield from linkfaults.missing_uplinks(scene, levels)


def _once(findings: Sequence[Finding]) -> Iterator[Finding]:
    """Each finding once; two of one place are told apart by nothing an operator could use."""
    seen: set[str] = set()
    for finding in findings:
        if finding.key not in seen:
            seen.add(finding.key)
            yield finding


def _fabric(scene: Scene, here: Collection[str]) -> DerivedFabric:
    shape, names, graph = scene.shape, scene.names, scene.shape.graph
    # Who is missing is missed by the next scan too, unless another fabric has it.
    away = (names.known.machines if names.known else frozenset()).difference(here)
    return DerivedFabric(
        known=Known(
            name=names.fabric,
            switches=frozenset(graph.switches),
            managers=names.managers,
            leaf_groups={
                name: frozenset(group.leaves) for name, group in zip(names.leaf_groups, shape.groups, strict=True)
            },
            spine_groups={
                name: spine_key(shape, members) for name, members in zip(names.spine_groups, shape.spines, strict=True)
            },
            machines=away.union(shape.by_host),
            readings=scene.readings,
        ),
        groups=tuple(_group(scene, number) for number in range(len(shape.groups))),
        rail_optimised=shape.rail_optimised,
        switches=len(graph.switches),
        adapters=len(graph.nics),
        nameless=len(graph.nameless),
        aggregation_nodes=graph.aggregation,
        others=tuple(sorted({nic.host for nic in graph.others}, key=natural)),
        links=links_of(graph),
    )


def _group(scene: Scene, number: int) -> GroupView:
    group, names = scene.shape.groups[number], scene.names
    leaves = sorted((scene.switch(leaf) for leaf in group.leaves), key=natural)
    return GroupView(
        name=names.leaf_groups[number],
        spine=names.spine_groups[group.spine],
        leaves=tuple(leaves),
        rails=group.rails,
        machines=tuple(group.machines),
        nominal=group.nominal,
        live=group.live,
    )


def links_of(graph: Graph) -> frozenset[bytes]:
    """A fingerprint of every link of a fabric."""
    ends = [(nic.switch, nic.switch_port, nic.guid, nic.port) for nic in graph.adapters()]
    for guid, links in graph.between.items():
        ends.extend((guid, link.port, link.peer, link.peer_port) for link in links if guid <= link.peer)
    return frozenset(hashlib.blake2b(repr(end).encode(), digest_size=LINK_BYTES).digest() for end in ends)


def _places(scenes: Sequence[Scene]) -> dict[str, Place]:
    """A machine is on the fabric that most of its bandwidth is on; its ports on others are not for training."""
    seen: dict[str, list[_Seen]] = defaultdict(list)
    for scene in scenes:
        for host in scene.shape.by_host:
            seen[host].append(_Seen(scene, host))
    places = {}
    for host, found in seen.items():
        found.sort(key=lambda one: (-one.speed, one.scene.names.fabric))
        ports = {key: {"use": False} for one in found[1:] for key in _ports(one)}
        places[host] = _place(found[0], ports | _ports(found[0]))
    return places


def _place(one: _Seen, ports: dict[str, dict[str, Any]]) -> Place:
    shape, names = one.scene.shape, one.scene.names
    home = shape.home.get(one.host)
    if home is None:
        return Place(names.fabric, None, None, ports)
    return Place(names.fabric, names.spine_groups[shape.groups[home].spine], names.leaf_groups[home], ports)


def _ports(one: _Seen) -> dict[str, dict[str, Any]]:
    shape = one.scene.shape
    ports: dict[str, dict[str, Any]] = {}
    for nic in shape.by_host[one.host]:
        known: dict[str, Any] = {"rail": shape.rail(nic)}
        rate, usual = gbps(nic.rate), gbps(shape.usual.get(nic.kind, ""))
        if 0 < rate < usual:
            known["gbps"] = rate
        ports[f"{nic.device}:{nic.port}"] = known
    present = {nic.device for nic in shape.by_host[one.host]}
    for rail, device in enumerate(shape.devices[one.host]):
        if device not in present:
            ports[device] = {"rail": rail, "up": False}
    return ports
