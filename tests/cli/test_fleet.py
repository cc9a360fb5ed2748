"""What people and programs are shown of the fleet and its network."""

from typing import Any

import pytest
from cli.fake_api import FakeApi

from astraeus.cli import output

LEAF = "topology.astraeus.io/leaf"
NIC = {"device": "mlx5_0", "port": 1, "rail": 0, "gbps": 400, "link": "infiniband", "up": True}
MACHINE = {
    "name": "m-3",
    "cluster": "lab-a",
    "state": "Ready",
    "cordoned": True,
    "drain_reason": "bad fan",
    "drained_by": "olga",
    "gpu_model": "H100",
    "gpus": 8,
    "used_gpus": 4,
    "free_gpus": 4,
    "doubtful_gpus": [3],
    "broken_gpus": [],
    "cpu_cores": 96.0,
    "memory_bytes": 2**40,
    "labels": {LEAF: "leaf-r0-7-g0"},
    "nics": [NIC],
    "runs": ["resnet-64gpu"],
    "heard_seconds_ago": 1.2,
}


pytestmark = pytest.mark.usefixtures("utc")


def test_machines(astra: Any, api: FakeApi) -> None:
    api.items("GET /machines", [MACHINE, {**MACHINE, "name": "m-4", "drain_reason": None, "runs": []}])
    assert astra("machines", "list").output.splitlines() == [
        "NAME  CLUSTER  STATE           FREE  MODEL  LEAF          RUNS",
        "m-3   lab-a    Ready,drained   4/8   H100   leaf-r0-7-g0  resnet-64gpu",
        "m-4   lab-a    Ready,cordoned  4/8   H100   leaf-r0-7-g0  -",
    ]


def test_one_machine(astra: Any, api: FakeApi) -> None:
    api.on("GET /machines/m-3", MACHINE)
    assert astra("machines", "get", "m-3").output.splitlines() == [
        "Machine:  m-3",
        "Cluster:  lab-a",
        "State:    Ready,drained",
        "Drained:  by olga: bad fan",
        "GPUs:     8 H100, 4 free",
        "Doubtful: GPU 3",
        "CPU:      96 cores, 1024 GiB",
        "Runs:     resnet-64gpu",
        "Heard:    1 s ago",
        f"Label:    {LEAF}=leaf-r0-7-g0",
        "",
        "PORT      RAIL  GBIT/S  LINK        STATE",
        "mlx5_0:1  0     400     infiniband  up",
    ]


def test_machine_orders(astra: Any, api: FakeApi) -> None:
    for order in ("drain", "cordon", "return"):
        api.on(f"POST /machines/m-3:{order}", MACHINE)
    assert astra("machines", "drain", "m-3", "--reason", "bad fan", "--cluster", "lab-b").exit_code == 0
    assert astra("machines", "cordon", "m-3").exit_code == 0
    assert astra("machines", "return", "m-3").exit_code == 0
    assert api.requests[0]["body"] == {"reason": "bad fan"}
    assert api.requests[0]["query"] == {"cluster": ["lab-b"]}


def test_topology_is_a_tree(astra: Any, api: FakeApi) -> None:
    def count(free: int) -> dict[str, int]:
        return {"gpus": 8, "free_gpus": free}

    machine = {"name": "m-3", "state": "Down", "cordoned": True, "gpu_model": "H100", "runs": ["a"], **count(0)}
    other = {"name": "m-4", "state": "Ready", "cordoned": False, "gpu_model": "H100", "runs": [], **count(8)}
    leaf = {"name": "leaf-0", "free_machines": 1, "machines": [machine, other], "gpus": 16, "free_gpus": 8}
    loose = {"name": None, "free_machines": 0, "machines": [other], **count(0)}
    fabrics = [
        {"name": "sm-0", "spines": [{"name": "s-0", "leaves": [leaf], "gpus": 16, "free_gpus": 8}], **count(8)},
        {"name": None, "spines": [{"name": None, "leaves": [loose], **count(0)}], **count(0)},
    ]
    tree = {"cluster": "lab-a", "machines": 3, "gpus": 24, "free_gpus": 8, "fabrics": fabrics}
    api.on("GET /topology", {"clusters": [tree]})
    assert astra("topology").output.splitlines() == [
        "lab-a: 3 machines, 8 of 24 GPUs free, 1 down",
        "├─ fabric sm-0: 8 of 8 GPUs free",
        "│  └─ spine group s-0: 8 of 16 GPUs free",
        "│     └─ leaf group leaf-0: 8 of 16 GPUs free, 1 whole machine free",
        "│        ├─ m-3  0/8 H100  Down  cordoned  a",
        "│        └─ m-4  8/8 H100",
        "└─ on no fabric: 0 of 8 GPUs free",
        "   └─ in no leaf group: 0 of 8 GPUs free, 0 whole machines free",
        "      └─ m-4  8/8 H100",
    ]


def test_findings(astra: Any, api: FakeApi) -> None:
    now, without = (
        {"busbw_gbps": busbw, "words": "", "basis": f"{n} × 400 Gb/s rails"} for busbw, n in ((322.4, 7), (368.4, 8))
    )
    known = {"severity": "warning", "cost": "~322 of ~368 GB/s", "runs": ["a", "b"], "advice": "Reseat the cable"}
    known |= {"costs": [{"run": "b", "without": without, "now": now}], "place": "m-3 mlx5_0"}
    api.items(
        "GET /topology/findings",
        [{"message": "runs at 4xHDR where its peers run at 4xNDR; it is on leaf-0 port 3", **known}],
    )
    shown = [
        "warning: m-3 mlx5_0: runs at 4xHDR where its peers run at 4xNDR; it is on leaf-0",
        "  port 3",
        "  costs: ~322 of ~368 GB/s",
        "    b: 368.4 → 322.4 GB/s (7 × 400 Gb/s rails)",
        "  runs there, no slower: a",
        "  to do: Reseat the cable",
    ]
    assert astra("topology", "--findings").output.splitlines() == shown
    assert astra("topology", "findings").output.splitlines() == shown
    known["costs"] = []
    api.items("GET /topology/findings", [{"message": "runs at 4xHDR", **known}])
    assert "  runs: a, b" in astra("topology", "findings").output.splitlines()
    api.items("GET /topology/findings", [])
    assert astra("topology", "findings", "--closed").output == "Nothing was found.\n"
    assert api.requests[-1]["query"] == {"closed": ["true"]}


def test_machines_are_listed_as_people_count() -> None:
    assert sorted(["m-10", "m-9", "m-1", "x", ""], key=output.natural) == ["", "m-1", "m-9", "m-10", "x"]


def test_numbers_are_folded() -> None:
    assert output.numbers([7, 0, 1, 2, 3]) == "0-3,7"
    assert output.numbers([]) == ""
