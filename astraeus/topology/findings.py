"""Faults of a network: where, what, what it costs, what to do."""

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

from astraeus.topology.counting import Reading
from astraeus.topology.graph import Nic
from astraeus.topology.identity import Names
from astraeus.topology.owners import Inventory, Owners
from astraeus.topology.rates import gbps
from astraeus.topology.scan import Scan, guid_text
from astraeus.topology.shape import Shape

Severity = Literal["error", "warning", "info"]
"""error: a port that carries nothing; warning: it works and costs something; info: good to know."""

MANAGED = re.compile(r"MF\d+;(.+):[^:;]*/U\d+")
RARE = 0.2
"""A lower rate that a larger share of the links of a kind has is how they were built, not a fault."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One fault. `place` and `kind` together are its identity from scan to scan."""

    kind: str
    severity: Severity
    fabric: str
    place: str
    message: str
    cost: str
    advice: str
    machines: tuple[str, ...] = ()
    detail: Mapping[str, Any] = field(default_factory=dict)

    @property
    def key(self) -> str:
        """Its identity."""
        return f"{self.kind}/{self.fabric}/{self.place}"


@dataclass
class Scene:
    """What the rules look at: a fabric, its names, and the scan it came from. `factor` is the leaf rung's.

    `readings` are its error counters in the order of time, this scan's the last.
    """

    scan: Scan
    shape: Shape
    names: Names
    owners: Owners
    inventory: Inventory
    factor: float
    readings: tuple[Reading, ...] = ()

    @cached_property
    def twins(self) -> set[str]:
        """Descriptions that several switches have."""
        seen = Counter(title(node.description) for node in self.shape.graph.switches.values())
        return {name for name, many in seen.items() if many > 1}

    def switch(self, guid: int) -> str:
        """A switch by the name people know, with its GUID where that is not one."""
        name = title(self.shape.graph.switches[guid].description)
        return f"{name} {guid_text(guid)}".strip() if name in self.twins or not name else name

    def at(self, guid: int, port: int | None) -> str:
        """A switch's port in words."""
        return f"{self.switch(guid)} port {port}" if port is not None else self.switch(guid)

    def should(self, host: str, rail: int | None) -> int | None:
        """The leaf a machine's port on a rail belongs on."""
        home = self.shape.home.get(host)
        if home is None or rail is None:
            return None
        rails = self.shape.groups[home].rail_of
        return next((leaf for leaf in sorted(rails) if rails[leaf] == rail), None)

    def usual_port(self, host: str) -> int | None:
        """The port number that most of a machine's cables have on the leaves of its home group."""
        home = self.shape.home.get(host)
        used = Counter(
            nic.switch_port for nic in self.shape.by_host[host] if self.shape.group_of.get(nic.switch) == home
        )
        if not used or not self.shape.rail_optimised:
            return None
        port, most = used.most_common(1)[0]
        return port if 2 * most > used.total() else None

    def bandwidth(self, rails: int, rate: float) -> float:
        """GB/s of an all-reduce over so many rails of so many Gb/s."""
        return rails * rate / 8 * self.factor

    def loss(self, host: str, slow: float) -> str:
        """What a rail of `slow` Gb/s instead of the usual costs a gang on this machine."""
        rails = len(self.shape.devices.get(host, ()))
        usual = max((gbps(nic.rate) for nic in self.shape.by_host.get(host, ())), default=0.0)
        if not rails or not usual:
            return "unknown"
        kept = self.bandwidth(rails, slow) if slow else 0.0
        left = self.bandwidth(rails - 1, usual)
        whole, best = self.bandwidth(rails, usual), max(kept, left)
        how = "with the rail" if kept >= left else "without the rail"
        return f"gangs on {host} get ~{best:.0f} of ~{whole:.0f} GB/s all-reduce, {how}"


Rule = Callable[[Scene], Iterator[Finding]]
"""Looks at a fabric and tells what it finds."""


def title(description: str) -> str:
    """The name in a switch's description; a managed one wraps it."""
    found = MANAGED.fullmatch(description.strip())
    return found[1] if found else description.strip()


def port_name(nic: Nic) -> str:
    """A machine's port in words."""
    return f"{nic.host} {nic.device}" if nic.port == 1 else f"{nic.host} {nic.device} port {nic.port}"
