"""A scan as fabrics: what hangs together, whose adapters are where, and which links join the switches."""

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field

from astraeus.topology.owners import Inventory, Owners, is_aggregation, owners
from astraeus.topology.scan import End, Node, Scan


@dataclass(slots=True)
class Nic:
    """A port of an adapter and where its cable ends. `device` is empty while nobody can tell whose it is."""

    guid: int
    port: int
    host: str
    device: str
    switch: int
    switch_port: int
    rate: str
    kind: int

    @property
    def name(self) -> str:
        """Machine and device."""
        return f"{self.host} {self.device}"


@dataclass(slots=True)
class Uplink:
    """A link between switches, seen from one of them."""

    port: int
    peer: int
    peer_port: int
    rate: str


@dataclass(slots=True)
class Graph:
    """One fabric. `nics` are of machines, `others` of hosts that are none, `nameless` of nobody known."""

    switches: dict[int, Node] = field(default_factory=dict)
    nics: list[Nic] = field(default_factory=list)
    others: list[Nic] = field(default_factory=list)
    nameless: list[Nic] = field(default_factory=list)
    between: dict[int, list[Uplink]] = field(default_factory=dict)
    aggregation: int = 0
    managers: list[int] = field(default_factory=list)
    initiator: int | None = None
    used: set[End] = field(default_factory=set)

    def adapters(self) -> Iterator[Nic]:
        """Every adapter that is not a switch's own."""
        yield from self.nics
        yield from self.others
        yield from self.nameless


def graphs(scan: Scan, inventory: Inventory) -> tuple[list[Graph], Owners]:
    """The fabrics of a scan, those with most adapters first, and who owns the adapters."""
    part_of = _parts(scan)
    found: dict[int, Graph] = defaultdict(Graph)
    for guid, part in part_of.items():
        found[part].switches[guid] = scan.nodes[guid]
    adapters: list[tuple[End, End, str]] = []
    for one, other, rate in scan.links():
        near, far = scan.nodes[one[0]], scan.nodes[other[0]]
        if near.switch and far.switch:
            _join(found[part_of[one[0]]], one, other, rate)
        elif near.switch != far.switch:
            end, at = (one, other) if far.switch else (other, one)
            found[part_of[at[0]]].used.add(at)
            if is_aggregation(scan.nodes[end[0]], scan.nodes[at[0]]):
                found[part_of[at[0]]].aggregation += 1
            else:
                adapters.append((end, at, rate))
    named = owners((scan.nodes[guid] for guid in dict.fromkeys(end[0] for end, _, _ in adapters)), inventory)
    for end, at, rate in adapters:
        host, device = named.of.get(end[0], ("", ""))
        nic = Nic(end[0], end[1], host, device, at[0], at[1], rate, scan.nodes[end[0]].device)
        graph = found[part_of[at[0]]]
        (graph.nics if device else graph.nameless).append(nic)
    _place_managers(scan, found, part_of)
    for graph in found.values():
        _set_others_apart(graph, inventory)
    return sorted(found.values(), key=lambda graph: (-len(graph.nics), min(graph.switches))), named


def _join(graph: Graph, one: End, other: End, rate: str) -> None:
    graph.used.update((one, other))
    graph.between.setdefault(one[0], []).append(Uplink(one[1], other[0], other[1], rate))
    graph.between.setdefault(other[0], []).append(Uplink(other[1], one[0], one[1], rate))


def _parts(scan: Scan) -> dict[int, int]:
    """For every switch one switch of those it hangs together with, the same for all of them."""
    root = {guid: guid for guid, node in scan.nodes.items() if node.switch}

    def top(guid: int) -> int:
        while root[guid] != guid:
            root[guid] = root[root[guid]]
            guid = root[guid]
        return guid

    for one, other, _ in scan.links():
        if one[0] in root and other[0] in root:
            root[top(one[0])] = top(other[0])
    return {guid: top(guid) for guid in root}


def _place_managers(scan: Scan, found: dict[int, Graph], part_of: dict[int, int]) -> None:
    """Give each subnet manager, and the port the tool ran at, to the fabric it is in."""
    at: dict[int, int] = {}
    for one, other in scan.peers.items():
        if one[0] not in part_of and other[0] in part_of:
            at[one[0]] = part_of[other[0]]
    for manager in scan.managers:
        part = _part_of_port(manager, scan, at, part_of)
        if part is None and len(found) == 1:
            part = next(iter(found))
        if part is not None:
            found[part].managers.append(manager)
    if scan.initiator is not None:
        part = _part_of_port(scan.initiator, scan, at, part_of)
        if part is not None:
            found[part].initiator = scan.initiator


def _part_of_port(guid: int, scan: Scan, at: dict[int, int], part_of: dict[int, int]) -> int | None:
    node = scan.resolve(guid)
    return part_of.get(node, at.get(node))


def _set_others_apart(graph: Graph, inventory: Inventory) -> None:
    """Hosts with far fewer adapters than machines have (the subnet manager's, say) are none, unless they are known."""
    counts = Counter(nic.host for nic in graph.nics)
    if not counts:
        return
    sizes = Counter(counts[host] for host in counts if not inventory.machines or host in inventory.machines)
    sizes = sizes or Counter(counts.values())
    usual = max(sizes, key=lambda size: (sizes[size], size))
    ours = {host for host, count in counts.items() if host in inventory.machines or 4 * count > usual}
    graph.others = [nic for nic in graph.nics if nic.host not in ours]
    graph.nics = [nic for nic in graph.nics if nic.host in ours]
