"""Networks built as planes: fabrics without a link between them that each serve one rail of the same machines.

Traffic between rails goes through the machines themselves, so for a gang all planes together are one fabric.
"""

from collections import Counter
from collections.abc import Sequence
from itertools import combinations

from astraeus.topology.graph import Graph
from astraeus.topology.rates import gbps
from astraeus.topology.shape import joined

ALIKE = 0.9
"""So much of the hosts of two planes are the same (Jaccard); storage has servers that compute lacks."""


def with_planes_joined(graphs: Sequence[Graph]) -> list[Graph]:
    """The fabrics, with the planes of one network as one."""
    counts = [Counter(nic.host for nic in graph.nics) for graph in graphs]
    pairs = [
        (one, other)
        for one, other in combinations(range(len(graphs)), 2)
        if _alike(counts[one], counts[other]) and _rates(graphs[one]) == _rates(graphs[other])
    ]
    return [_joined([graphs[i] for i in members]) for members in joined(range(len(graphs)), pairs)]


def _alike(one: Counter[str], other: Counter[str]) -> bool:
    """Whether two fabrics serve the same machines, with as many ports each."""
    both = len(one.keys() & other.keys())
    return both > 0 and both >= ALIKE * len(one.keys() | other.keys()) and _usual(one) == _usual(other)


def _usual(counts: Counter[str]) -> int:
    return Counter(counts.values()).most_common(1)[0][0]


def _rates(graph: Graph) -> tuple[int, float]:
    """The device and the rate that most adapters of a fabric have."""
    return Counter((nic.kind, gbps(nic.rate)) for nic in graph.nics).most_common(1)[0][0]


def _joined(graphs: Sequence[Graph]) -> Graph:
    first, *others = graphs
    for graph in others:
        first.switches |= graph.switches
        first.between |= graph.between
        first.nics += graph.nics
        first.others += graph.others
        first.nameless += graph.nameless
        first.managers += graph.managers
        first.used |= graph.used
        first.aggregation += graph.aggregation
        first.initiator = first.initiator or graph.initiator
    return first
