"""A cluster as its machines' labels tell it: fabric, spine group, leaf group, machine, and who holds what."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from astraeus.model.machine import FABRIC, LEAF, NVLINK, RACK, ROCE, SPINE, Lenient


class Located(Protocol):
    """A machine with labels: the ledger's view of it and the planner's value both are."""

    @property
    def name(self) -> str:
        """Its name."""

    @property
    def labels(self) -> Mapping[str, str]:
        """Its labels."""

    @property
    def gpus(self) -> int:
        """How many GPUs it has."""


class Held(Protocol):
    """GPUs of a machine that a run holds."""

    @property
    def machine(self) -> str:
        """The machine's name."""

    @property
    def run_name(self) -> str:
        """The run's name."""

    @property
    def gpu_mask(self) -> int:
        """The GPUs as a bitmask."""


class HolderNode(Lenient):
    """A run on a machine and the GPU indices it holds there."""

    run: str
    gpus: list[int]


class MachineNode(Lenient):
    """A machine in the tree."""

    name: str
    gpus: int
    free_gpus: int
    rack: str | None = None
    nvlink_domain: str | None = None
    holders: list[HolderNode]


class LeafNode(Lenient):
    """A leaf group; `leaf` is None for machines that name none."""

    leaf: str | None
    gpus: int
    free_gpus: int
    idle_machines: int
    machines: list[MachineNode]


class SpineNode(Lenient):
    """A spine group; `spine` is None for machines that name none."""

    spine: str | None
    gpus: int
    free_gpus: int
    idle_machines: int
    leaves: list[LeafNode]


class FabricNode(Lenient):
    """A fabric: an InfiniBand fabric, a RoCE network, or, with neither, plain Ethernet."""

    fabric: str | None
    kind: str
    gpus: int
    free_gpus: int
    idle_machines: int
    spines: list[SpineNode]


def tree(machines: Iterable[Located], holdings: Iterable[Held]) -> list[FabricNode]:
    """The machines of a cluster by fabric, spine group and leaf group, each level in the order of its ids."""
    held: dict[str, list[Held]] = defaultdict(list)
    for holding in holdings:
        held[holding.machine].append(holding)
    fabrics: dict[tuple[str, str | None], list[Located]] = defaultdict(list)
    for machine in machines:
        fabrics[_fabric(machine.labels)].append(machine)
    return [
        _fabric_node(kind, name, fabrics[kind, name], held)
        for kind, name in sorted(fabrics, key=lambda key: (key[1] is None, key[0], key[1] or ""))
    ]


def _fabric(labels: Mapping[str, str]) -> tuple[str, str | None]:
    if labels.get(FABRIC):
        return "infiniband", labels[FABRIC]
    if labels.get(ROCE):
        return "roce", labels[ROCE]
    return "ethernet", None


def _fabric_node(
    kind: str, name: str | None, machines: Sequence[Located], held: Mapping[str, Sequence[Held]]
) -> FabricNode:
    spines = []
    for spine, under in _by(SPINE, machines):
        leaves = [_leaf_node(leaf, group, held) for leaf, group in _by(LEAF, under)]
        spines.append(
            SpineNode(
                spine=spine,
                gpus=sum(node.gpus for node in leaves),
                free_gpus=sum(node.free_gpus for node in leaves),
                idle_machines=sum(node.idle_machines for node in leaves),
                leaves=leaves,
            )
        )
    return FabricNode(
        fabric=name,
        kind=kind,
        gpus=sum(node.gpus for node in spines),
        free_gpus=sum(node.free_gpus for node in spines),
        idle_machines=sum(node.idle_machines for node in spines),
        spines=spines,
    )


def _by(label: str, machines: Sequence[Located]) -> list[tuple[str | None, list[Located]]]:
    groups: dict[str | None, list[Located]] = defaultdict(list)
    for machine in machines:
        groups[machine.labels.get(label) or None].append(machine)
    return sorted(groups.items(), key=lambda item: (item[0] is None, item[0] or ""))


def _leaf_node(leaf: str | None, machines: Sequence[Located], held: Mapping[str, Sequence[Held]]) -> LeafNode:
    nodes = [_machine_node(machine, held.get(machine.name, ())) for machine in sorted(machines, key=lambda m: m.name)]
    return LeafNode(
        leaf=leaf,
        gpus=sum(node.gpus for node in nodes),
        free_gpus=sum(node.free_gpus for node in nodes),
        idle_machines=sum(not node.holders for node in nodes),
        machines=nodes,
    )


def _machine_node(machine: Located, held: Sequence[Held]) -> MachineNode:
    used = 0
    for holding in held:
        used |= holding.gpu_mask
    return MachineNode(
        name=machine.name,
        gpus=machine.gpus,
        free_gpus=machine.gpus - used.bit_count(),
        rack=machine.labels.get(RACK),
        nvlink_domain=machine.labels.get(NVLINK),
        holders=[
            HolderNode(run=holding.run_name, gpus=[i for i in range(machine.gpus) if holding.gpu_mask >> i & 1])
            for holding in sorted(held, key=lambda h: (h.run_name, h.gpu_mask))
        ],
    )
