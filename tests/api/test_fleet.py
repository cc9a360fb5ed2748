"""Machines, topology and clusters, as agents' reports make them."""

from typing import Any

from api.topology import tree
from astraeus.model.machine import FABRIC, LEAF, SPINE, MachineView


async def test_machines_appear_when_they_report(both: Any, machine: Any) -> None:
    answer = await both.sync({"name": "m-1", "boot_id": "b-1"}, machine("m-2", leaf="leaf-2"))
    assert answer["need_facts"] == ["m-1"]
    await both.sync(machine("m-1"))
    viewer = both.client("viewer")
    page = (await viewer.get("/machines", params={"limit": 1})).json()
    assert [one["name"] for one in page["items"]] == ["m-1"]
    rest = (await viewer.get("/machines", params={"cursor": page["next_cursor"]})).json()
    assert [one["name"] for one in rest["items"]] == ["m-2"]
    one = (await viewer.get("/machines/M-1")).json()
    assert (one["state"], one["gpus"], one["free_gpus"], one["gpu_model"]) == ("Ready", 8, 8, "H100")
    for path in ("/machines/m-9", "/machines/%00", "/machines/a:b"):
        assert (await viewer.get(path)).status_code == 404
    assert (await viewer.get("/machines/m-1", params={"cluster": "none"})).status_code == 404


async def test_operators_take_machines_out_and_back(both: Any, machine: Any) -> None:
    await both.sync(machine("m-1"))
    admin = both.client("admin")
    drained = await admin.post("/machines/m-1:drain", json={"reason": "fan"})
    assert drained.status_code == 200, drained.text
    assert (drained.json()["cordoned"], drained.json()["drain_reason"]) == (True, "fan")
    assert drained.json()["drained_by"] == "admin"
    assert (await admin.post("/machines/m-1:return")).json()["cordoned"] is False
    assert (await admin.post("/machines/M-1:cordon")).json()["cordoned"] is True
    assert (await admin.post("/machines/none:cordon")).status_code == 404


async def test_the_tree_and_the_clusters(world: Any, machine: Any) -> None:
    await world.sync(machine("m-1"), machine("m-2", leaf="leaf-2"))
    viewer = world.client("viewer")
    cluster = (await viewer.get("/topology")).json()["clusters"][0]
    assert (cluster["cluster"], cluster["machines"], cluster["free_gpus"]) == ("lab-a", 2, 16)
    leaves = cluster["fabrics"][0]["spines"][0]["leaves"]
    assert [(leaf["name"], leaf["free_machines"]) for leaf in leaves] == [("leaf-2", 1), ("leaf-r0-7-g0", 1)]
    assert (await viewer.get("/topology/findings")).json() == {"items": [], "next_cursor": None}
    clusters = (await viewer.get("/clusters")).json()["items"]
    assert [(one["name"], one["default"]) for one in clusters] == [("lab-a", True)]


def view(name: str, labels: dict[str, str], **more: Any) -> MachineView:
    values = {"state": "Ready", "gpus": 8, "used_gpus": 0, "free_gpus": 8, **more}
    return MachineView(
        name=name, cluster="c", gpu_model="H100", cpu_cores=1, memory_bytes=1, labels=labels, nics=[], **values
    )


def test_what_names_no_place_comes_last_and_only_working_machines_are_free() -> None:
    one = {LEAF: "l1", SPINE: "s", FABRIC: "f"}
    machines = [
        view("z", {}),
        view("b", one, used_gpus=8, free_gpus=0, runs=["resnet"]),
        view("a", one, cordoned=True),
        view("c", {**one, LEAF: "l0"}, state="Down"),
        view("d", one, used_gpus=2, free_gpus=6),
    ]
    found = tree("c", machines)
    assert (found.machines, found.gpus, found.free_gpus) == (5, 40, 14)
    assert [fabric.name for fabric in found.fabrics] == ["f", None]
    leaves = found.fabrics[0].spines[0].leaves
    assert [(leaf.name, leaf.gpus, leaf.free_gpus, leaf.free_machines) for leaf in leaves] == [
        ("l0", 8, 0, 0),
        ("l1", 24, 6, 0),
    ]
    assert [(node.name, node.free_gpus, node.runs) for node in leaves[1].machines] == [
        ("a", 0, []),
        ("b", 0, ["resnet"]),
        ("d", 6, []),
    ]


async def test_only_a_silent_machine_is_declared_lost_by_hand(world: Any, machine: Any) -> None:
    await world.sync(machine("m-1"))
    refused = await world.client("admin").post("/machines/m-1:lost")
    assert refused.status_code == 409
    assert "only a silent machine" in refused.json()["detail"]
