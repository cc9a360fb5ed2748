"""The shape of a fabric: leaves, leaf groups, rails, spine groups, where each machine is at home."""

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import TypeVar

from astraeus.topology.graph import Graph, Nic
from astraeus.topology.owners import LAST, natural
from astraeus.topology.rates import gbps

ALIKE = 0.4
"""Leaves are of one group when on average the cosine between the machines they serve is at least this."""
OVERLAP = 0.5
TEMPLATES_TRIED = 64
CLOSENESS = 4

T = TypeVar("T", bound=Hashable)


@dataclass(slots=True)
class Group:
    """A leaf group: leaves that serve the same machines, the machines at home there, the switches above."""

    leaves: list[int]
    machines: list[str] = field(default_factory=list)
    rail_of: dict[int, int] = field(default_factory=dict)
    above: set[int] = field(default_factory=set)
    spine: int = 0
    nominal: float | None = None
    live: float | None = None

    @property
    def rails(self) -> tuple[int, int] | None:
        """The first and the last rail."""
        return (min(self.rail_of.values()), max(self.rail_of.values())) if self.rail_of else None


@dataclass(slots=True)
class Shape:
    """What was derived of a fabric. `devices` lists a machine's adapters by rail, those that are missing too."""

    graph: Graph
    leaves: set[int]
    groups: list[Group]
    group_of: dict[int, int]
    home: dict[str, int]
    homeless: list[str]
    devices: dict[str, tuple[str, ...]]
    by_host: dict[str, list[Nic]]
    rail_optimised: bool
    spines: list[list[int]]
    usual: dict[int, str]
    """The usual rate of an adapter, by kind of device."""

    def rail(self, nic: Nic) -> int | None:
        """The rail of a machine's port, None for a device that its kind of machine does not have."""
        devices = self.devices[nic.host]
        return devices.index(nic.device) if nic.device in devices else None


def shape_of(graph: Graph, rail_hint: Mapping[tuple[str, str], int]) -> Shape:
    """Derive the shape; `rail_hint` orders devices where agents know the order of the PCI bus."""
    leaves = find_leaves(graph)
    by_host: dict[str, list[Nic]] = defaultdict(list)
    for nic in graph.nics:
        by_host[nic.host].append(nic)
    groups = _leaf_groups(graph, leaves)
    groups = _without_strays(groups, _homes(by_host, _group_of(groups))[0], graph)
    group_of = _group_of(groups)
    home, homeless = _homes(by_host, group_of)
    for host in sorted(home, key=natural):
        groups[home[host]].machines.append(host)
    shape = Shape(
        graph=graph,
        leaves=leaves,
        groups=groups,
        group_of=group_of,
        home=home,
        homeless=homeless,
        devices=_devices(by_host, home, rail_hint),
        by_host=by_host,
        rail_optimised=_rail_optimised(by_host),
        spines=[],
        usual=_usual_rates(graph),
    )
    _put_in_order(shape)
    _rails(shape)
    _spine_groups(shape)
    return shape


def _group_of(groups: Sequence[Group]) -> dict[int, int]:
    return {leaf: number for number, group in enumerate(groups) for leaf in group.leaves}


def find_leaves(graph: Graph) -> set[int]:
    """Switches with more adapters than links to switches that have more of them.

    One adapter on a spine makes no leaf of it, and a manager on every spine takes no leaf away.
    """
    ports: dict[int, set[int]] = defaultdict(set)
    for nic in graph.adapters():
        ports[nic.switch].add(nic.switch_port)
    count = {guid: len(used) for guid, used in ports.items()}
    return {
        guid
        for guid, own in count.items()
        if own > sum(count.get(link.peer, 0) > own for link in graph.between.get(guid, ()))
    }


def _leaf_groups(graph: Graph, leaves: Collection[int]) -> list[Group]:
    """Leaves that serve the same machines; a leaf that serves none is in no group.

    Groups grow from the likest leaves on, by how alike their leaves are on average, so that no single pair of leaves
    with a few cables in the wrong place joins two groups.
    """
    likeness = _likeness(graph, leaves)
    root = {leaf: leaf for leaf in sorted({nic.switch for nic in graph.nics} & set(leaves))}
    members = {leaf: [leaf] for leaf in root}
    between: dict[int, dict[int, float]] = defaultdict(dict)
    for (one, other), alike in likeness.items():
        between[one][other] = between[other][one] = alike
    for (first, second), _ in sorted(likeness.items(), key=lambda entry: (-entry[1], entry[0])):
        one, other = root[first], root[second]
        if one == other or between[one][other] < ALIKE * len(members[one]) * len(members[other]):
            continue
        for leaf in members[other]:
            root[leaf] = one
        members[one] += members.pop(other)
        for third, alike in between.pop(other).items():
            between[third].pop(other)
            if third != one:
                between[one][third] = between[third][one] = between[one].get(third, 0.0) + alike
    return [Group(sorted(found)) for found in members.values()]


def _likeness(graph: Graph, leaves: Collection[int]) -> dict[tuple[int, int], float]:
    """The cosine between the ports that two leaves have for each machine: 1 where they serve the same alike."""
    served: dict[int, Counter[str]] = defaultdict(Counter)
    touched: dict[str, set[int]] = defaultdict(set)
    for nic in graph.nics:
        if nic.switch in leaves:
            served[nic.switch][nic.host] += 1
            touched[nic.host].add(nic.switch)
    length = {leaf: math.hypot(*found.values()) for leaf, found in served.items()}
    shared: dict[tuple[int, int], float] = defaultdict(float)
    for host, mine in touched.items():
        parts = [(leaf, served[leaf][host] / length[leaf]) for leaf in sorted(mine)]
        for (one, part), (other, its) in combinations(parts, 2):
            shared[one, other] += part * its
    return shared


def _without_strays(groups: list[Group], home: Mapping[str, int], graph: Graph) -> list[Group]:
    """Leaves on which no machine is at home join the group whose machines they serve."""
    kept = {number: Group(list(groups[number].leaves)) for number in sorted(set(home.values()))}
    for number, group in enumerate(groups):
        if number in kept:
            continue
        votes = Counter(home[nic.host] for nic in graph.nics if nic.switch in group.leaves and nic.host in home)
        if votes:
            kept[votes.most_common(1)[0][0]].leaves.extend(group.leaves)
    return [Group(sorted(group.leaves)) for group in kept.values()] or groups


def joined(items: Iterable[T], pairs: Iterable[tuple[T, T]]) -> list[list[T]]:
    """The items in the groups that the pairs make of them, each in the order of its first item."""
    root = {item: item for item in items}

    def top(item: T) -> T:
        while root[item] != item:
            root[item] = root[root[item]]
            item = root[item]
        return item

    for one, other in pairs:
        root[top(one)] = top(other)
    found: dict[T, list[T]] = {}
    for item in root:
        found.setdefault(top(item), []).append(item)
    return list(found.values())


def _homes(by_host: Mapping[str, list[Nic]], group_of: Mapping[int, int]) -> tuple[dict[str, int], list[str]]:
    """Where at least half of a machine's adapters are, and more than anywhere else; others have no home."""
    home: dict[str, int] = {}
    homeless = []
    for host, nics in by_host.items():
        votes = Counter(group_of[nic.switch] for nic in nics if nic.switch in group_of)
        (group, most), *others = votes.most_common(2) or [(0, 0)]
        if most and 2 * most >= len(nics) and (not others or others[0][1] < most):
            home[host] = group
        else:
            homeless.append(host)
    return home, sorted(homeless, key=natural)


def _rail_optimised(by_host: Mapping[str, list[Nic]]) -> bool:
    several = sum(len({nic.switch for nic in nics}) > 1 for nics in by_host.values())
    return 2 * several > len(by_host)


def _devices(
    by_host: Mapping[str, list[Nic]], home: Mapping[str, int], hint: Mapping[tuple[str, str], int]
) -> dict[str, tuple[str, ...]]:
    """For every machine the devices that its kind of machine has, rail by rail.

    Kinds are the sets of devices seen, and all that a group's machines have together; a machine is of the kind that
    contains its devices and that most machines come close to.
    """
    own = {host: frozenset(nic.device for nic in nics) for host, nics in by_host.items()}
    sets = Counter(own.values())
    kinds = {found for found, _ in sets.most_common(TEMPLATES_TRIED)}
    together: dict[int, set[str]] = defaultdict(set)
    for host, group in home.items():
        together[group] |= own[host]
    kinds |= {frozenset(devices) for devices in list(together.values())[:TEMPLATES_TRIED]}
    support = {
        kind: sum(many * (len(seen) / len(kind)) ** CLOSENESS for seen, many in sets.items() if seen <= kind)
        for kind in kinds
    }
    order = sorted(kinds, key=lambda kind: (-support[kind], sorted(kind)))
    place: dict[frozenset[str], frozenset[str]] = {
        seen: next((kind for kind in order if seen <= kind), seen) for seen in sets
    }
    rank = _rank(hint)
    tuples = {kind: tuple(sorted(kind, key=rank)) for kind in set(place.values())}
    return {host: tuples[place[devices]] for host, devices in own.items()}


def _rank(hint: Mapping[tuple[str, str], int]) -> Callable[[str], tuple[float, object]]:
    told: dict[str, list[int]] = defaultdict(list)
    for (_, device), rail in hint.items():
        told[device].append(rail)
    usual = {device: sorted(rails)[len(rails) // 2] for device, rails in told.items()}
    return lambda device: (usual.get(device, -1), natural(device))


def _put_in_order(shape: Shape) -> None:
    """Groups in the order of their first machines, so that a first sight numbers them as people would."""
    first = [natural(group.machines[0]) if group.machines else LAST for group in shape.groups]
    order = sorted(range(len(shape.groups)), key=lambda i: (first[i], shape.groups[i].leaves))
    place = {old: new for new, old in enumerate(order)}
    shape.groups = [shape.groups[i] for i in order]
    shape.group_of = {leaf: place[group] for leaf, group in shape.group_of.items()}
    shape.home = {host: place[group] for host, group in shape.home.items()}


def _rails(shape: Shape) -> None:
    """A leaf's rail is the one that at least half of its ports have; without that it has none."""
    if not shape.rail_optimised:
        return
    votes: dict[int, Counter[int | None]] = defaultdict(Counter)
    for nic in shape.graph.nics:
        if nic.switch in shape.group_of:
            votes[nic.switch][shape.rail(nic)] += 1
    for leaf, found in votes.items():
        rail, most = found.most_common(1)[0]
        if rail is not None and 2 * most >= found.total():
            shape.groups[shape.group_of[leaf]].rail_of[leaf] = rail


def _spine_groups(shape: Shape) -> None:
    """Leaf groups whose upper switches overlap by half of the smaller set are under one spine group.

    Where there are no upper switches, leaves that are joined to each other are one.
    """
    for group in shape.groups:
        group.above = {
            link.peer for leaf in group.leaves for link in shape.graph.between.get(leaf, ()) if _above(shape, link.peer)
        }
    pairs = [
        (one, other)
        for one, other in combinations(range(len(shape.groups)), 2)
        if (both := len(shape.groups[one].above & shape.groups[other].above))
        and both >= OVERLAP * min(len(shape.groups[one].above), len(shape.groups[other].above))
    ]
    pairs += _side_by_side(shape)
    shape.spines = [sorted(members) for members in joined(range(len(shape.groups)), pairs)]
    for number, members in enumerate(shape.spines):
        for member in members:
            shape.groups[member].spine = number


def _side_by_side(shape: Shape) -> list[tuple[int, int]]:
    group_of = shape.group_of
    return [
        (group_of[leaf], group_of[link.peer])
        for leaf in group_of
        for link in shape.graph.between.get(leaf, ())
        if link.peer in group_of and not (shape.groups[group_of[leaf]].above or shape.groups[group_of[link.peer]].above)
    ]


def _above(shape: Shape, switch: int) -> bool:
    return switch not in shape.leaves


def _usual_rates(graph: Graph) -> dict[int, str]:
    """The rate most adapters of a kind run at, the faster of two."""
    seen: dict[int, Counter[str]] = defaultdict(Counter)
    for nic in graph.nics:
        if gbps(nic.rate):
            seen[nic.kind][nic.rate] += 1
    return {kind: max(rates, key=lambda rate: (rates[rate], gbps(rate))) for kind, rates in seen.items()}
