"""The tree of GET /topology, from labels alone."""

from astraeus.model.machine import FABRIC, LEAF, RACK, ROCE, SPINE
from astraeus.placement.types import Holding, Machine
from astraeus.topology.tree import tree


def machine(name: str, **labels: str) -> Machine:
    keys = {"leaf": LEAF, "spine": SPINE, "fabric": FABRIC, "rack": RACK, "roce": ROCE}
    return Machine(name, 8, "H100", 1, 1, labels={keys[key]: value for key, value in labels.items()})


def holding(machine: str, mask: int) -> Holding:
    return Holding(1, "uid", "resnet", "acme/vision", 1, machine, mask, 1, 1)


def test_machines_stand_under_their_leaf_spine_and_fabric() -> None:
    machines = [
        machine("m-2", fabric="f", spine="s", leaf="l2"),
        machine("m-1", fabric="f", spine="s", leaf="l1", rack="r1"),
        machine("m-0", fabric="f", spine="s", leaf="l1"),
    ]
    (fabric,) = tree(machines, [holding("m-0", 0b1001)])
    assert (fabric.fabric, fabric.kind, fabric.gpus, fabric.free_gpus) == ("f", "infiniband", 24, 22)
    (spine,) = fabric.spines
    assert [(leaf.leaf, [m.name for m in leaf.machines]) for leaf in spine.leaves] == [
        ("l1", ["m-0", "m-1"]),
        ("l2", ["m-2"]),
    ]
    first = spine.leaves[0]
    assert (first.free_gpus, first.idle_machines) == (14, 1)
    assert first.machines[0].holders[0].model_dump() == {"run": "resnet", "gpus": [0, 3]}
    assert first.machines[1].rack == "r1"


def test_machines_without_labels_are_shown_last_and_not_dropped() -> None:
    fabrics = tree([machine("bare"), machine("roce", roce="net"), machine("ib", fabric="f")], [])
    assert [(fabric.kind, fabric.fabric) for fabric in fabrics] == [
        ("infiniband", "f"),
        ("roce", "net"),
        ("ethernet", None),
    ]
    assert fabrics[-1].spines[0].leaves[0].machines[0].name == "bare"


def test_levels_with_one_id_on_two_fabrics_stay_apart() -> None:
    fabrics = tree([machine("a", fabric="f1", leaf="l"), machine("b", fabric="f2", leaf="l")], [])
    assert [len(fabric.spines[0].leaves[0].machines) for fabric in fabrics] == [1, 1]


def test_order_of_machines_changes_nothing() -> None:
    machines = [machine(f"m-{i}", fabric="f", leaf=f"l{i % 3}") for i in range(9)]
    assert tree(machines, []) == tree(machines[::-1], [])
