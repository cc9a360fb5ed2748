"""Whose adapter is it: by the GUIDs that the machines' own agents report, by its description only as a hint."""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from astraeus.topology.scan import Node

DEVICE = r"HCA-\d+|mlx\d_\w+|(?:ib|roce)[pP]?\w*\d\w*|[a-z]+\d*_[a-z]*\d+|[a-z]+\d+|[a-z]+_bond_?\d+"
NAMED = re.compile(
    rf"(['\"]?)([A-Za-z0-9][\w.-]*?)(?:\s+|\s*[:/]\s*|-(?=mlx\d_|HCA-))({DEVICE})(?:\s*\((mlx\d_\w+)\))?\1"
)
ADDRESS = re.compile(r"\d+(?:\.\d+){3}")
NAMELESS = frozenset({"localhost", "localhost6", "none", "node", "ubuntu", "debian"})
AGGREGATION_DEVICE = 0xCF09
DIGITS = re.compile(r"(\d+)")


@dataclass(frozen=True, slots=True)
class Owned:
    """A port as its machine's agent describes it."""

    machine: str
    device: str
    rail: int


@dataclass(frozen=True)
class Inventory:
    """The machines of a cluster and, where their agents report them, the GUIDs of their adapters."""

    machines: frozenset[str] = frozenset()
    adapters: Mapping[int, Owned] = field(default_factory=dict)


@dataclass(slots=True)
class Owners:
    """Machine and device of every adapter that can be told, and the adapters that cannot."""

    of: dict[int, tuple[str, str]] = field(default_factory=dict)
    unset: list[Node] = field(default_factory=list)
    foreign: list[Node] = field(default_factory=list)
    doubled: dict[tuple[str, str], list[Node]] = field(default_factory=dict)


def owners(adapters: Iterable[Node], inventory: Inventory) -> Owners:
    """Name these adapters. Nothing is guessed: two adapters of one name are both left unnamed."""
    found = Owners()
    reporting = {owned.machine for owned in inventory.adapters.values()}
    full = _full_names(inventory.machines)
    hinted: dict[tuple[str, str], list[Node]] = defaultdict(list)
    for node in adapters:
        name = described(node.description)
        name = name and (full.get(name[0], name[0]), name[1])
        owned = _owned(node.guid, name, inventory)
        if owned is not None:
            found.of[node.guid] = owned.machine, owned.device
        elif name is None:
            found.unset.append(node)
        elif name[0] in reporting:
            found.foreign.append(node)
        else:
            hinted[name].append(node)
    for name, nodes in hinted.items():
        if len(nodes) > 1:
            found.doubled[name] = nodes
        else:
            found.of[nodes[0].guid] = name
    return found


def _full_names(machines: Iterable[str]) -> dict[str, str]:
    """Machines that are registered under a name with a domain, by the name without it where one alone has it."""
    found: dict[str, list[str]] = defaultdict(list)
    for name in machines:
        found[short(name)].append(name)
    return {host: names[0] for host, names in found.items() if len(names) == 1}


def _owned(guid: int, name: tuple[str, str] | None, inventory: Inventory) -> Owned | None:
    """By GUID; some outputs give an adapter's port GUID only, which on old cards is the node's and one."""
    owned = inventory.adapters.get(guid)
    if owned is None and (near := inventory.adapters.get(guid - 1)) and name and name[0] == near.machine:
        return near
    return owned


def described(description: str) -> tuple[str, str] | None:
    """The host and device that a description names; None for one that was never set."""
    found = NAMED.fullmatch(description.strip())
    if found is None:
        return None
    host = short(found[2])
    return None if host in NAMELESS else (host, found[4] or device_name(found[3]))


def short(name: str) -> str:
    """A host's name without its domain."""
    return name if ADDRESS.fullmatch(name) else name.partition(".")[0].lower()


def device_name(name: str) -> str:
    """The kernel's name of a device; the old descriptions count from one: `HCA-6` is `mlx5_5`."""
    number = name.removeprefix("HCA-")
    return f"mlx5_{int(number) - 1}" if number != name and int(number) > 0 else name


def is_aggregation(node: Node, peer: Node) -> bool:
    """Whether an adapter is the aggregation node inside a switch."""
    inside = bool(node.system) and node.system == peer.system
    return inside or node.device == AGGREGATION_DEVICE or "aggregation node" in node.description.lower()


Natural = tuple[tuple[tuple[int, int, str], ...], str]
LAST: Natural = (((9, 0, ""),), "")
"""After every name."""


def natural(text: str) -> Natural:
    """A key that sorts `mlx5_9` before `mlx5_10`."""
    parts = tuple((0, int(part), "") if part.isdigit() else (1, 0, part) for part in DIGITS.split(text) if part)
    return parts, text
