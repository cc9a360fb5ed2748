"""Fabrics unlike the kept ones: racks of four rails, storage beside compute, names that nobody set, hosts on spines."""

import re

from support.fabrics import A, D, built_groups, derived, groups, ibnetdiscover, inventory, scan, text, truth

from astraeus.topology import tools
from astraeus.topology.derive import derive
from astraeus.topology.ibnetdiscover import parse
from astraeus.topology.owners import Inventory, Owned
from astraeus.topology.scan import Scan

TRAY = ("mlx5_0", "mlx5_1", "mlx5_4", "mlx5_5")
DGX = ("mlx5_0", "mlx5_3", "mlx5_4", "mlx5_5", "mlx5_6", "mlx5_9", "mlx5_10", "mlx5_11")


def names(first: int, last: int) -> list[str]:
    return [f"node{i:04}" for i in range(first, last + 1)]


def test_racks_of_eighteen_trays_with_four_rails() -> None:
    found = derived(parse(ibnetdiscover(72, group=18, pod=4, devices=TRAY)))
    assert groups(found) == [names(1, 18), names(19, 36), names(37, 54), names(55, 72)]
    (fabric,) = found.fabrics
    assert [group.name for group in fabric.groups] == [f"leaf-r0-3-g{i}" for i in range(4)]
    assert found.places["node0001"].ports == {f"{device}:1": {"rail": rail} for rail, device in enumerate(TRAY)}
    assert found.findings == ()


def test_rails_follow_the_order_of_devices_not_their_numbers() -> None:
    found = derived(parse(ibnetdiscover(8, group=8, pod=1, devices=DGX)))
    assert [found.places["node0001"].ports[f"{device}:1"]["rail"] for device in DGX] == list(range(8))


def test_agents_know_the_order_of_the_bus() -> None:
    devices = ("mlx5_5", "mlx5_0")
    adapters = {0xA088000300000000 + m * 2 + r: Owned(f"m{m}", devices[r], r) for m in range(8) for r in range(2)}
    words = ibnetdiscover(8, group=8, pod=1, devices=devices)
    found = derive(parse(words), Inventory(frozenset(f"m{m}" for m in range(8)), adapters))
    assert found.places["m0"].ports == {"mlx5_5:1": {"rail": 0}, "mlx5_0:1": {"rail": 1}}


def test_two_kinds_of_machines_on_one_fabric() -> None:
    """A leaf group of trays with four adapters beside one of machines with eight."""
    renamed = dict(zip(DGX, TRAY, strict=False))

    def tray(found: re.Match[str]) -> str:
        return f'"{found[1]} {renamed[found[2]]}"' if found[2] in renamed else '"gone"'

    words = re.sub(r'"(node00(?:1[7-9]|2\d|3[0-2])) (mlx5_\d+)"', tray, ibnetdiscover(32, group=16, pod=2, devices=DGX))
    found = derived(parse("\n".join(line for line in words.splitlines() if "gone" not in line)))
    assert groups(found) == [names(1, 16), names(17, 32)]
    assert [group.rails for group in found.fabrics[0].groups] == [(0, 7), (0, 3)]
    assert found.places["node0017"].ports["mlx5_4:1"] == {"rail": 2}
    assert not [one for one in found.findings if one.kind in ("port_missing", "miswired", "degraded")]


def test_storage_beside_compute() -> None:
    """A machine is on the fabric of most of its bandwidth; its ports on the other are not for training."""
    compute = parse(ibnetdiscover(32, group=16, pod=2, devices=DGX, number=1))
    storage = parse(ibnetdiscover(32, group=32, pod=1, devices=("mlx5_1", "mlx5_7"), number=2, rate="4xHDR"))
    found = derived(tools.together([("ibnetdiscover", storage), ("ibnetdiscover", compute)]))
    assert len(found.fabrics) == 2
    place = found.places["node0001"]
    assert place.leaf == next(
        g.name for f in found.fabrics for g in f.groups if g.rails == (0, 7) and f.adapters == 256
    )
    assert place.ports["mlx5_1:1"] == place.ports["mlx5_7:1"] == {"use": False}
    assert place.ports["mlx5_3:1"] == {"rail": 1}
    assert found.findings == ()


def test_names_that_were_never_set_are_told_by_guid_or_counted() -> None:
    words = text(f"{A}/ibnetdiscover.txt")
    unset = re.sub(r'"node00[12] (mlx5_\d)"', '"MT4129 ConnectX7   Mellanox Technologies"', words)
    whole = derived(parse(unset), inventory(A))
    assert (groups(whole), whole.findings) == (built_groups(A), ())
    blind = derived(parse(unset))
    assert groups(blind) == [built_groups(A)[0][2:], built_groups(A)[1]]
    assert {one.kind for one in blind.findings} == {"unnamed"}
    assert sum(len(one.detail["ports"]) for one in blind.findings) == 16
    assert blind.fabrics[0].nameless == 16


def test_two_machines_of_one_name_are_both_left_out() -> None:
    words = text(f"{A}/ibnetdiscover.txt").replace("node002 ", "node001 ")
    found = derived(parse(words))
    assert "node001" not in found.places
    assert [one.kind for one in found.findings] == ["duplicate_name"] * 8
    assert "node002" in derived(parse(words), inventory(A)).places


def test_a_name_that_its_machine_disowns() -> None:
    """A board that was moved and kept its old name: the agent of that machine knows its own adapters."""
    words = text(f"{A}/ibnetdiscover.txt").replace('"node002 mlx5_3"', '"node001 mlx5_9"')
    known = inventory(A)
    gone = {
        guid: owned for guid, owned in known.adapters.items() if (owned.machine, owned.device) != ("node002", "mlx5_3")
    }
    found = derived(parse(words), Inventory(known.machines, gone))
    assert {(one.kind, one.place) for one in found.findings} >= {("port_missing", "node002 mlx5_3")}
    (foreign,) = [one for one in found.findings if one.kind == "foreign_name"]
    assert foreign.machines == ("node001",)


def test_machines_that_are_registered_with_their_domain() -> None:
    known = inventory(A)
    found = derived(
        scan(f"{A}/ibnetdiscover.txt"), Inventory(frozenset(f"{name}.example.org" for name in known.machines))
    )
    assert groups(found) == [[f"{name}.example.org" for name in some] for some in built_groups(A)]
    assert found.findings == ()


def test_hosts_that_no_agent_reports_are_named_once() -> None:
    known = inventory(A)
    some = Inventory(known.machines - {"node007", "node016"}, {})
    found = derived(scan(f"{A}/ibnetdiscover.txt"), some)
    (one,) = found.findings
    assert (one.kind, one.severity, one.detail["hosts"]) == ("unknown_machine", "info", ["node007", "node016"])
    assert groups(found) == built_groups(A)


def test_a_machine_with_half_of_its_ports_elsewhere_has_no_home() -> None:
    found = scan(f"{A}/ibnetdiscover.txt")
    ends = {node.description: (guid, 1) for guid, node in found.nodes.items()}
    for i in range(4):
        one, other = ends[f"node001 mlx5_{i}"], ends[f"node009 mlx5_{i}"]
        here, there = found.peers[one], found.peers[other]
        for end, place in ((one, there), (other, here)):
            found.peers[end], found.peers[place] = place, end
    told = derived(found)
    assert {one.place for one in told.findings if one.kind == "no_home"} == {"node001", "node009"}
    assert (told.places["node001"].leaf, told.places["node001"].fabric) == (None, truth(A)["fabric"])


def with_managers(found: Scan, spines: list[int]) -> Scan:
    """A host of one adapter on each of these switches."""
    for i, spine in enumerate(spines):
        guid = 0x9000 + i
        found.node(guid, False, f"ufm-{i} mlx5_0")
        found.link((guid, 1), (spine, 64), "4xNDR")
    return found


def test_a_manager_on_every_spine_takes_no_leaf_away() -> None:
    spines = [int(truth(A)["guids"][f"spine-s{i}"], 16) for i in range(4)]
    told = derived(with_managers(scan(f"{A}/ibnetdiscover.txt"), spines))
    assert (groups(told), told.findings) == (built_groups(A), ())
    assert told.fabrics[0].others == ("ufm-0", "ufm-01", "ufm-1", "ufm-2", "ufm-3")


def test_a_machines_port_on_a_spine() -> None:
    found = scan(f"{A}/ibnetdiscover.txt")
    end = next((guid, 1) for guid, node in found.nodes.items() if node.description == "node005 mlx5_6")
    found.peers.pop(found.peers.pop(end))
    found.link(end, (int(truth(A)["guids"]["spine-s2"], 16), 60), "4xNDR")
    (one,) = derived(found).findings
    assert (one.kind, one.place, one.advice) == (
        "nic_on_spine",
        "node005 mlx5_6",
        "Move the cable to leaf-r6-g0 port 5",
    )


def test_a_leaf_that_is_away_is_one_finding() -> None:
    words = ibnetdiscover(64, group=16, pod=2)
    gone = re.compile(r'"(node00(1[7-9]|2\d|3[0-2]) mlx5_3|MF0;leaf-r3-g1:.*)"')
    found = derived(parse("\n".join(line for line in words.splitlines() if not gone.search(line))))
    (one,) = found.findings
    assert (one.kind, one.place, len(one.machines)) == ("leaf_missing", "leaf-r0-7-g1 rail 3", 16)
    assert one.cost == "gangs in leaf-r0-7-g1 get ~322 of ~368 GB/s all-reduce, without the rail"
    assert found.places["node0017"].ports["mlx5_3"] == {"rail": 3, "up": False}


def test_machines_of_two_rates_by_design_are_no_fault() -> None:
    slow = re.compile(r'("node00(?:0[1-9]|1[0-6]) mlx5_\d" lid \d+ )4xNDR')
    words = slow.sub(r"\g<1>2xNDR", ibnetdiscover(64, group=16, pod=2))
    found = derived(parse(words))
    assert found.findings == ()
    assert found.places["node0001"].ports["mlx5_0:1"] == {"rail": 0, "gbps": 200.0}


def test_speeds_newer_than_the_tool_are_no_fault() -> None:
    words = ibnetdiscover(64, group=16, pod=2)
    assert derived(parse(words.replace("4xNDR", "4xXDR"))).findings == ()
    assert derived(parse(words.replace("4xNDR", "4x???"))).findings == ()


def test_1023_machines() -> None:
    read = parse(ibnetdiscover(1023))
    assert (read.unread, sum(1 for _ in read.links())) == (0, 24568)
    found = derived(read)
    (fabric,) = found.fabrics
    assert [len(machines) for machines in groups(found)] == [32] * 31 + [31]
    assert (len(fabric.known.spine_groups), fabric.switches, found.findings) == (8, 640, ())
    assert {group.nominal for group in fabric.groups} <= {1.0, 0.97}


def test_a_large_fabric_with_everything_at_once() -> None:
    """Four links lost and one slow among 12,601."""
    words = text(f"{D}/ibnetdiscover.txt")
    gone = [f'"node{i:03} mlx5_{i % 8}"' for i in (17, 200, 333, 511)]
    kept = "\n".join(line for line in words.splitlines() if not any(name in line for name in gone))
    slow = re.sub(r'("node400 mlx5_2" lid \d+ )4xNDR', r"\1 2xNDR", kept).replace("  2xNDR", " 2xNDR")
    found = derived(parse(slow))
    assert {one.place for one in found.findings if one.kind == "port_missing"} == {name.strip('"') for name in gone}
    assert groups(found) == built_groups(D)
