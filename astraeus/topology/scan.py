"""What the tools saw of the network: nodes, links, port states, counters, and what could not be read."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

PROBLEMS_KEPT = 200

End = tuple[int, int]
"""A port: the GUID of its node and its number."""


@dataclass(slots=True)
class Node:
    """A switch or a channel adapter. `system` and `device` are 0 where the tool did not say."""

    guid: int
    switch: bool
    description: str = ""
    system: int = 0
    device: int = 0
    ports: int = 0


@dataclass(frozen=True, slots=True)
class Problem:
    """A line that could not be read."""

    source: str
    line: int
    text: str


@dataclass(slots=True)
class Scan:
    """One or more outputs taken together. Adapters may be known by a port's GUID only; `aliases` leads to the node's.

    `links` has each link once, under both of its ends. `down` are switch ports seen without a link, `better` links
    that could be faster by what both ends support, `counters` the error counters of a port.
    """

    nodes: dict[int, Node] = field(default_factory=dict)
    peers: dict[End, End] = field(default_factory=dict)
    rates: dict[End, str] = field(default_factory=dict)
    aliases: dict[int, int] = field(default_factory=dict)
    down: set[End] = field(default_factory=set)
    better: dict[End, str] = field(default_factory=dict)
    counters: dict[End, dict[str, int]] = field(default_factory=dict)
    managers: list[int] = field(default_factory=list)
    initiator: int | None = None
    problems: list[Problem] = field(default_factory=list)
    unread: int = 0
    counted: bool = False
    """Whether error counters were looked at."""

    def node(self, guid: int, switch: bool, description: str = "") -> Node:
        """The node of that GUID, made when it is new."""
        found = self.nodes.get(guid)
        if found is None:
            found = self.nodes[guid] = Node(guid, switch, description)
        elif description and not found.description:
            found.description = description
        return found

    def link(self, one: End, other: End, rate: str) -> None:
        """Two ports that are joined; of contradicting words about a port the first counts."""
        if one == other or self.peers.get(one, other) != other or self.peers.get(other, one) != one:
            return
        self.peers[one], self.peers[other] = other, one
        if "?" in self.rates.get(one, "?"):
            self.rates[one] = self.rates[other] = rate

    def puzzled(self, source: str, line: int, text: str) -> None:
        """Note a line that could not be read."""
        self.unread += 1
        if len(self.problems) < PROBLEMS_KEPT:
            self.problems.append(Problem(source, line, text[:200]))

    def resolve(self, guid: int) -> int:
        """The GUID of the node that this is the node's or a port's GUID of."""
        return guid if guid in self.nodes else self.aliases.get(guid, guid)

    def links(self) -> Iterator[tuple[End, End, str]]:
        """Every link once."""
        for one, other in self.peers.items():
            if one < other:
                yield one, other, self.rates.get(one, "")


def merged(scans: Iterable[Scan]) -> Scan:
    """Several outputs as one, the first the most trusted; a port's GUID is led to its node where one of them tells."""
    found = Scan()
    scans = list(scans)
    for scan in scans:
        found.aliases.update(scan.aliases)
    for scan in scans:
        _take(found, scan)
    return found


def _take(found: Scan, scan: Scan) -> None:
    known = found.aliases
    # A GUID can be a node's own and, elsewhere, a port's; a node that some output describes is itself.
    own = {guid: guid if guid in found.nodes else known.get(guid, guid) for guid in scan.nodes}
    for guid, node in scan.nodes.items():
        here = found.node(own[guid], node.switch, node.description)
        here.system = here.system or node.system
        here.device = here.device or node.device
        here.ports = max(here.ports, node.ports)

    def end(port: End) -> End:
        guid = port[0]
        return own[guid] if guid in own else found.resolve(guid), port[1]

    for one, other, rate in scan.links():
        found.link(end(one), end(other), rate)
    found.down.update(end(port) for port in scan.down)
    found.better.update((end(port), text) for port, text in scan.better.items())
    for port, counters in scan.counters.items():
        found.counters.setdefault(end(port), {}).update(counters)
    found.managers.extend(guid for guid in scan.managers if guid not in found.managers)
    found.initiator = found.initiator or scan.initiator
    found.unread += scan.unread
    found.problems.extend(scan.problems[: PROBLEMS_KEPT - len(found.problems)])
    found.counted = found.counted or scan.counted


def guid_of(text: str) -> int | None:
    """A GUID as the tools, the kernel (`a088:c203:004d:9c10`) and people write it; None when it is none."""
    digits = text.strip().lower().removeprefix("0x").replace(":", "").replace("-", "")
    if not 1 <= len(digits) <= 16 or not all(c in "0123456789abcdef" for c in digits):
        return None
    return int(digits, 16) or None


def guid_text(guid: int) -> str:
    """A GUID as `0x` and 16 digits."""
    return f"0x{guid:016x}"
