"""The largest gang that fits now."""

from typing import Any

from api.console.chart import chart
from api.console.room import kept, largest
from astraeus.model.machine import FABRIC, LEAF, RACK, Nic
from astraeus.model.spec import Resources
from astraeus.placement.types import Ask, Holding, Machine, Reserved, Snapshot

PORTS = tuple(Nic(device=f"mlx5_{i}", rail=i, gbps=400) for i in range(8))


def machine(i: int, **more: Any) -> Machine:
    labels = {LEAF: f"leaf-{i // 4}", FABRIC: "fabric-0", RACK: f"r{i // 4}"}
    return Machine(f"m-{i}", 8, "H100", 96, 2**40, labels, **{"ports": PORTS, **more})


def held(i: int, mask: int) -> Holding:
    return Holding(1, "u", "a-run", "w", 1, f"m-{i}", mask, 0, 0)


def rooms(*machines: Machine, holdings: tuple[Holding, ...] = ()) -> dict[int, tuple[int, int]]:
    return {room.rung: (room.machines, room.gpus) for room in largest(Snapshot("lab-a", machines, holdings))}


def test_an_idle_cluster_has_all_its_room() -> None:
    assert rooms(*map(machine, range(8))) == {1: (1, 8), 3: (4, 8), 4: (4, 8), 5: (8, 8)}


def test_holes_make_the_gang_smaller_or_thinner() -> None:
    eight = [machine(i) for i in range(8)]
    assert rooms(*eight, holdings=(held(0, 0xFF),))[5] == (7, 8)
    assert rooms(*eight, holdings=(held(0, 0x01),))[5] == (7, 8)
    assert rooms(*eight, holdings=(held(0, 0x01), held(1, 0x01)))[5] == (8, 7)
    assert rooms(*eight, holdings=tuple(held(i, 0xFF) for i in range(8)))[5] == (0, 0)


def test_what_takes_no_work_does_not_count() -> None:
    down = [machine(0, refusal="down"), machine(1, broken=0x0F)]
    dark = machine(2, ports=tuple(port.model_copy(update={"up": False}) for port in PORTS))
    found = rooms(*down, dark)
    assert found[1] == (1, 8)
    assert found[3] == (1, 4)


def test_without_infiniband_there_is_ethernet() -> None:
    ports = (Nic(device="eth0", gbps=100, link="ethernet"),)
    plain = [Machine(f"e-{i}", 8, "H100", 96, 2**40, {RACK: "r"}, ports) for i in range(2)]
    assert rooms(*plain) == {1: (1, 8), 8: (2, 8), 9: (2, 8)}
    assert largest(Snapshot("lab-a", ())) == []


def test_room_that_is_kept_is_told_with_whom_it_is_for() -> None:
    ask = Ask(7, "u", "next-up", "w", 1, Resources(), 0, 0.0, 0.0)
    reserved = (Reserved(7, "m-0", 0xFF), Reserved(7, "m-1", 0xFF))
    snapshot = Snapshot("lab-a", (machine(0), machine(1)), (held(0, 0x0F),), (ask,), reserved)
    assert kept(snapshot) == {"next-up": 12}


def test_the_map_colours_machines_by_what_they_do() -> None:
    machines = (machine(0), machine(1), machine(2, refusal="down"), machine(4, refusal="draining"))
    holdings = (held(1, 0x0F), held(4, 0xFF))
    (fabric,) = chart(Snapshot("lab-a", (*machines, Machine("x", 8, "A100", 1, 1, refusal="cordoned")), holdings))[:1]
    assert (fabric["name"], fabric["gpus"], fabric["free"]) == ("fabric-0", 32, 12)
    leaves = [leaf for spine in fabric["spines"] for leaf in spine["leaves"]]
    assert [(leaf["name"], leaf["free"]) for leaf in leaves] == [("leaf-0", 12), ("leaf-1", 0)]
    shown = {tile[0]: (tile[1], tile[3], tile[4]) for leaf in leaves for tile in leaf["machines"]}
    assert shown == {
        "m-0": ("free", 8, []),
        "m-1": ("busy", 4, ["a-run"]),
        "m-2": ("down", 0, []),
        "m-4": ("draining", 0, ["a-run"]),
    }
    plain = chart(Snapshot("lab-a", (Machine("x", 8, "A100", 1, 1, refusal="cordoned"),)))
    assert plain[0]["spines"][0]["leaves"][0]["machines"][0][1] == "drained"
