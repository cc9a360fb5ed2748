"""The network as a tree, from the machines' own labels: fabrics, spine groups, leaf groups, machines."""

from collections import defaultdict
from collections.abc import Iterable

from pydantic import BaseModel

from astraeus.model.machine import FABRIC, LEAF, NVLINK, RACK, SPINE, MachineState, MachineView
from astraeus.topology.owners import natural


class MachineNode(BaseModel):
    """One machine and who holds its GPUs."""

    name: str
    state: MachineState
    cordoned: bool
    gpu_model: str
    gpus: int
    free_gpus: int
    rack: str | None = None
    nvlink_domain: str | None = None
    runs: list[str]


class LeafNode(BaseModel):
    """A leaf group: machines whose rails meet in one hop. `name` is None for machines that name no leaf group."""

    name: str | None
    gpus: int
    free_gpus: int
    free_machines: int
    machines: list[MachineNode]


class SpineNode(BaseModel):
    """A spine group. `name` is None for leaf groups that name none."""

    name: str | None
    gpus: int
    free_gpus: int
    leaves: list[LeafNode]


class FabricNode(BaseModel):
    """A fabric: machines that reach one another over RDMA. `name` is None for machines on none."""

    name: str | None
    gpus: int
    free_gpus: int
    spines: list[SpineNode]


class ClusterTree(BaseModel):
    """A cluster's machines by fabric, spine group and leaf group, each in the order of its name."""

    cluster: str
    machines: int
    gpus: int
    free_gpus: int
    fabrics: list[FabricNode]


def tree(cluster: str, machines: Iterable[MachineView]) -> ClusterTree:
    """The tree of a cluster. GPUs count as free only on machines that take work."""
    machines = sorted(machines, key=lambda machine: natural(machine.name))
    return ClusterTree(
        cluster=cluster,
        machines=len(machines),
        gpus=_gpus(machines),
        free_gpus=_free(machines),
        fabrics=[_fabric(name, members) for name, members in _groups(machines, FABRIC)],
    )


def _fabric(name: str | None, members: list[MachineView]) -> FabricNode:
    spines = [_spine(spine, some) for spine, some in _groups(members, SPINE)]
    return FabricNode(name=name, gpus=_gpus(members), free_gpus=_free(members), spines=spines)


def _spine(name: str | None, members: list[MachineView]) -> SpineNode:
    leaves = [_leaf(leaf, some) for leaf, some in _groups(members, LEAF)]
    return SpineNode(name=name, gpus=_gpus(members), free_gpus=_free(members), leaves=leaves)


def _leaf(name: str | None, members: list[MachineView]) -> LeafNode:
    return LeafNode(
        name=name,
        gpus=_gpus(members),
        free_gpus=_free(members),
        free_machines=sum(1 for machine in members if machine.gpus and _free_on(machine) == machine.gpus),
        machines=[_machine(machine) for machine in members],
    )


def _machine(machine: MachineView) -> MachineNode:
    return MachineNode(
        name=machine.name,
        state=machine.state,
        cordoned=machine.cordoned,
        gpu_model=machine.gpu_model,
        gpus=machine.gpus,
        free_gpus=_free_on(machine),
        rack=machine.labels.get(RACK),
        nvlink_domain=machine.labels.get(NVLINK),
        runs=machine.runs,
    )


def _groups(machines: Iterable[MachineView], label: str) -> list[tuple[str | None, list[MachineView]]]:
    groups: defaultdict[str | None, list[MachineView]] = defaultdict(list)
    for machine in machines:
        groups[machine.labels.get(label)].append(machine)
    return sorted(groups.items(), key=lambda group: (group[0] is None, natural(group[0] or "")))


def _free_on(machine: MachineView) -> int:
    return machine.free_gpus if machine.state == "Ready" and not machine.cordoned else 0


def _gpus(machines: Iterable[MachineView]) -> int:
    return sum(machine.gpus for machine in machines)


def _free(machines: Iterable[MachineView]) -> int:
    return sum(_free_on(machine) for machine in machines)
