"""The map of a cluster, pure, from the planner's snapshot: what the page draws and nothing else."""

from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any

from astraeus.placement.types import Machine, Snapshot
from astraeus.topology.owners import natural

Tile = tuple[str, str, int, int, list[str], str, str, str]
"""A machine: name, how it is coloured, GPUs, free GPUs, runs, NVLink domain, rack, GPU model."""


def chart(snapshot: Snapshot) -> list[dict[str, Any]]:
    """Fabrics, spine groups, leaf groups and machines, each by name; those that name none come last."""
    shown = tiles(snapshot)
    return [
        {
            "name": fabric,
            **_count(machines, shown),
            "spines": [
                {"name": spine, "leaves": [_leaf(leaf, some, shown) for leaf, some in _by(group, lambda m: m.leaf)]}
                for spine, group in _by(machines, lambda m: m.spine)
            ],
        }
        for fabric, machines in _by(snapshot.machines, lambda m: m.fabric)
    ]


def tiles(snapshot: Snapshot) -> dict[str, Tile]:
    """Every machine by its name."""
    used: defaultdict[str, int] = defaultdict(int)
    runs: defaultdict[str, set[str]] = defaultdict(set)
    for holding in snapshot.holdings:
        used[holding.machine] |= holding.gpu_mask
        runs[holding.machine].add(holding.run_name)
    return {one.name: _tile(one, used[one.name], sorted(runs[one.name])) for one in snapshot.machines}


def colour(state: str, cordoned: bool, runs: list[str]) -> str:
    """How a machine is coloured: what it does, or why it takes no work."""
    if state != "ready":
        return state
    if cordoned:
        return "draining" if runs else "drained"
    return "busy" if runs else "free"


def _tile(machine: Machine, used: int, runs: list[str]) -> Tile:
    lost = machine.refusal if machine.refusal in ("down", "returning") else "ready"
    free = 0 if machine.refusal else (((1 << machine.gpus) - 1) & ~used & ~machine.broken).bit_count()
    state = colour(lost, machine.refusal is not None, runs)
    domain, rack = machine.nvlink_domain or "", machine.rack or ""
    return machine.name, state, machine.gpus, free, runs, domain, rack, machine.gpu_model


def _leaf(name: str | None, machines: list[Machine], shown: dict[str, Tile]) -> dict[str, Any]:
    return {"name": name, **_count(machines, shown), "machines": [shown[machine.name] for machine in machines]}


def _count(machines: list[Machine], shown: dict[str, Tile]) -> dict[str, int]:
    free = sum(shown[machine.name][3] for machine in machines)
    return {"free": free, "gpus": sum(machine.gpus for machine in machines)}


def _by(machines: Iterable[Machine], key: Callable[[Machine], str | None]) -> list[tuple[str | None, list[Machine]]]:
    groups: defaultdict[str | None, list[Machine]] = defaultdict(list)
    for machine in machines:
        groups[key(machine)].append(machine)
    return sorted(groups.items(), key=lambda group: (group[0] is None, natural(group[0] or "")))
