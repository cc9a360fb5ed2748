"""Names that stay: a fabric is its switches, a leaf group its leaves, whatever the subnet manager does."""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, count

from astraeus.topology.counting import Reading
from astraeus.topology.graph import Graph
from astraeus.topology.scan import guid_text
from astraeus.topology.shape import Group, Shape

SAME = 0.5
NUMBERED = re.compile(r".*-g(\d{1,9})")


@dataclass(frozen=True)
class Known:
    """A fabric as it was seen before. `managers` are the port GUIDs of all subnet managers it ever had."""

    name: str
    switches: frozenset[int]
    managers: tuple[int, ...] = ()
    leaf_groups: Mapping[str, frozenset[int]] = field(default_factory=dict)
    spine_groups: Mapping[str, frozenset[int]] = field(default_factory=dict)
    machines: frozenset[str] = frozenset()
    readings: tuple[Reading, ...] = ()
    """Its error counters in the order of time."""


@dataclass(frozen=True)
class Names:
    """What a fabric and its groups are called; `known` is the fabric it was recognised as."""

    fabric: str
    leaf_groups: tuple[str, ...]
    spine_groups: tuple[str, ...]
    managers: tuple[int, ...]
    known: Known | None


def name_all(shapes: Sequence[Shape], known: Sequence[Known]) -> list[Names]:
    """Names for these fabrics, those of earlier scans where they are the same ones."""
    same = matched([frozenset(shape.graph.switches) for shape in shapes], [one.switches for one in known])
    taken = {one.name for one in known}
    numbers = {
        kind: {int(found[1]) for one in known for name in getattr(one, kind) if (found := NUMBERED.fullmatch(name))}
        for kind in ("leaf_groups", "spine_groups")
    }
    names = []
    for number, shape in enumerate(shapes):
        before = known[same[number]] if number in same else None
        fabric = before.name if before else _new_name(shape.graph, taken)
        taken.add(fabric)
        aliases = dict.fromkeys((*(before.managers if before else ()), *shape.graph.managers))
        leaf_groups = _named(
            [frozenset(group.leaves) for group in shape.groups],
            before.leaf_groups if before else {},
            [_stem(group) for group in shape.groups],
            numbers["leaf_groups"],
        )
        spine_groups = _named(
            [spine_key(shape, members) for members in shape.spines],
            before.spine_groups if before else {},
            ["spine"] * len(shape.spines),
            numbers["spine_groups"],
        )
        names.append(Names(fabric, leaf_groups, spine_groups, tuple(aliases), before))
    return names


def spine_key(shape: Shape, members: Iterable[int]) -> frozenset[int]:
    """The switches that a spine group is known by: those above it, or its leaves where there are none."""
    groups = [shape.groups[member] for member in members]
    above = frozenset().union(*(group.above for group in groups))
    return above or frozenset().union(*(group.leaves for group in groups))


def matched(new: Sequence[Collection[int]], old: Sequence[Collection[int]]) -> dict[int, int]:
    """Which of the new sets is which of the old: they share at least half of the smaller; most in common first."""
    where: dict[int, list[int]] = {}
    for j, items in enumerate(old):
        for item in items:
            where.setdefault(item, []).append(j)
    common: dict[tuple[int, int], int] = {}
    for i, items in enumerate(new):
        for item in items:
            for j in where.get(item, ()):
                common[i, j] = common.get((i, j), 0) + 1
    found: dict[int, int] = {}
    used: set[int] = set()
    for (i, j), both in sorted(common.items(), key=lambda entry: (-entry[1], entry[0])):
        if i not in found and j not in used and both >= SAME * min(len(new[i]), len(old[j])):
            found[i] = j
            used.add(j)
    return found


def _new_name(graph: Graph, taken: Collection[str]) -> str:
    """By the subnet manager at first sight; where the tools ran on a host that is no machine, it is usually that."""
    candidates = [f"sm-{guid_text(guid)}" for guid in graph.managers]
    if graph.initiator is not None and not any(
        nic.guid <= graph.initiator <= nic.guid + nic.port for nic in graph.nics
    ):
        candidates.append(f"sm-{guid_text(graph.initiator)}")
    candidates.append(f"ib-{guid_text(min(graph.switches))}")
    numbered = (f"{candidates[-1]}-{number}" for number in count(2))
    return next(name for name in chain(candidates, numbered) if name not in taken)


def _stem(group: Group) -> str:
    if group.rails is None:
        return "leaf"
    first, last = group.rails
    return f"leaf-r{first}-{last}" if first != last else f"leaf-r{first}"


def _named(
    new: Sequence[frozenset[int]], old: Mapping[str, frozenset[int]], stems: Sequence[str], numbers: set[int]
) -> tuple[str, ...]:
    """Old names where there are, else the stem and the lowest free number, which becomes taken."""
    before = list(old.items())
    same = matched(new, [items for _, items in before])
    found = []
    free = 0
    for i, stem in enumerate(stems):
        if i in same:
            found.append(before[same[i]][0])
            continue
        while free in numbers:
            free += 1
        numbers.add(free)
        found.append(f"{stem}-g{free}")
    return tuple(found)
