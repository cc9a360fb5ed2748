"""Networks of other designs come out as they were built, and nothing is found where nothing is broken."""

from itertools import combinations

import pytest
from support.designs import CX6, HDR, XDR, Design, rails
from support.fabrics import derived, groups

from astraeus.topology import tools
from astraeus.topology.derive import Derived, derive
from astraeus.topology.ibnetdiscover import parse
from astraeus.topology.owners import Inventory

TRAY = ("mlx5_0", "mlx5_1", "mlx5_4", "mlx5_5")


def names(prefix: str, count: int) -> list[str]:
    return [f"{prefix}{i:02}" for i in range(count)]


def of(*designs: Design) -> Derived:
    found = [parse(design.text()) for design in designs]
    assert [one.unread for one in found] == [0] * len(found)
    return derived(tools.together([("ibnetdiscover", one) for one in found]))


def spread(found: Derived) -> list[int]:
    """How many leaf groups are under each spine group."""
    seen = [group.spine for fabric in found.fabrics for group in fabric.groups]
    return [seen.count(spine) for spine in dict.fromkeys(seen)]


def test_two_leaves_a_rack_with_half_of_the_ports_each() -> None:
    built = Design()
    spines = built.switches("s0", "s1")
    for rack in range(4):
        leaves = built.switches(f"tor{rack}a", f"tor{rack}b")
        for name in names(f"r{rack}n", 8):
            for i in range(8):
                built.adapter(f"{name} mlx5_{i}", leaves[i // 4])
        built.uplinks(leaves, spines, 4)
    found = of(built)
    assert groups(found) == [names(f"r{rack}n", 8) for rack in range(4)]
    assert ({group.rails for group in found.fabrics[0].groups}, spread(found), found.findings) == ({None}, [4], ())


@pytest.mark.parametrize("adapters", [1, 4])
def test_a_leaf_a_rack_in_three_tiers(adapters: int) -> None:
    built = Design()
    cores = built.switches("c0", "c1", "c2")
    for pod in range(3):
        spines = built.switches(f"p{pod}s0", f"p{pod}s1")
        built.uplinks(spines, cores, 2)
        for rack in range(3):
            leaf = built.switch(f"p{pod}l{rack}")
            for name in names(f"p{pod}r{rack}n", 12):
                for i in range(adapters):
                    built.adapter(f"{name} mlx5_{i}", leaf)
            built.uplinks([leaf], spines, 4)
    found = of(built)
    assert groups(found) == [names(f"p{pod}r{rack}n", 12) for pod in range(3) for rack in range(3)]
    assert (spread(found), found.findings) == ([3, 3, 3], ())


def test_groups_whose_spines_are_all_joined() -> None:
    """Dragonfly+: no core, every group's spines have cables to every other group's."""
    built = Design()
    above = [built.switches(*(f"g{g}s{i}" for i in range(4))) for g in range(4)]
    for g, spines in enumerate(above):
        rails(built, names(f"g{g}n", 16), spines)
    for one, other in combinations(above, 2):
        built.uplinks(one, other)
    found = of(built)
    assert groups(found) == [names(f"g{g}n", 16) for g in range(4)]
    assert (spread(found), found.findings) == ([1, 1, 1, 1], ())


def test_a_single_switch_and_two_that_are_joined() -> None:
    built = Design()
    one = built.switch("one")
    for name in names("n", 6):
        for i in range(8):
            built.adapter(f"{name} mlx5_{i}", one)
    assert (groups(of(built)), of(built).findings) == ([names("n", 6)], ())
    two = built.switch("two")
    for name in names("z", 6):
        for i in range(8):
            built.adapter(f"{name} mlx5_{i}", two)
    built.cable(one, two, times=16)
    assert (groups(of(built)), spread(of(built)), of(built).findings) == ([names("n", 6), names("z", 6)], [2], ())


def test_planes_without_a_link_between_them_are_one_fabric() -> None:
    built = Design()
    for i in range(8):
        spines = built.switches(f"r{i}s0", f"r{i}s1")
        for g in range(2):
            rails(built, names(f"g{g}n", 16), spines, [f"mlx5_{i}"])
    found = of(built)
    (fabric,) = found.fabrics
    assert (groups(found), fabric.rail_optimised, found.findings) == ([names("g0n", 16), names("g1n", 16)], True, ())
    assert found.places["g0n00"].ports == {f"mlx5_{i}:1": {"rail": i} for i in range(8)}
    again = derive(parse(built.text()), Inventory(), [fabric.known])
    assert [one.known.name for one in again.fabrics] == [fabric.known.name]


def test_racks_that_share_their_leaves_and_one_domain_each() -> None:
    built = Design()
    spines = built.switches(*(f"s{i}" for i in range(4)))
    for pair in range(2):
        rails(built, names(f"r{2 * pair}t", 18) + names(f"r{2 * pair + 1}t", 18), spines, TRAY, XDR, 2)
    found = of(built)
    assert [len(machines) for machines in groups(found)] == [36, 36]
    assert (spread(found), found.findings) == ([2], ())


def test_adapters_with_two_ports() -> None:
    built = Design()
    spines, leaves = built.switches("s0", "s1"), built.switches("l0", "l1", "l2", "l3")
    for name in names("n", 16):
        for i in range(2):
            card = built.node("H", f"{name} mlx5_{i}", 0x1017, 2)
            for port in (1, 2):
                built.cable(card, leaves[2 * i + port - 1], port=port)
    built.uplinks(leaves, spines, 4)
    found = of(built)
    (group,) = found.fabrics[0].groups
    assert (len(group.machines), group.nominal, group.live, found.findings) == (16, 2.0, 2.0, ())
    assert found.places["n00"].ports["mlx5_1:2"] == {"rail": 1}


def test_storage_with_leaves_and_servers_of_its_own_on_the_same_spines() -> None:
    built = Design()
    spines = built.switches("s0", "s1")
    machines = [names("a", 16), names("b", 16)]
    for some in machines:
        rails(built, some, spines)
    for k, some in enumerate(machines):
        leaf = built.switch(f"storage{k}")
        for name in some:
            built.adapter(f"{name} mlx5_8", leaf, HDR, CX6)
        for i in range(4):
            built.adapter(f"oss{k}{i} mlx5_0", leaf, HDR, CX6)
        built.uplinks([leaf], spines, 2)
    found = of(built)
    assert (groups(found), found.findings) == (machines, ())
    assert "oss00" in found.fabrics[0].others


def test_storage_in_the_same_machines_is_no_plane_of_the_network() -> None:
    compute, storage = Design(1), Design(2)
    rails(compute, names("n", 16), compute.switches("s0", "s1"))
    rails(storage, [*names("n", 16), "oss0", "oss1", "oss2", "oss3"], storage.switches("t0"), ["mlx5_8"])
    found = of(compute, storage)
    assert len(found.fabrics) == 2
    assert found.places["n00"].ports["mlx5_8:1"] == {"use": False}
    assert [found.places["n00"].ports[f"mlx5_{i}:1"]["rail"] for i in range(8)] == list(range(8))


def test_routers_and_aggregation_nodes_are_no_machines() -> None:
    built = Design()
    leaves = rails(built, names("n", 16), built.switches("s0", "s1"))
    for leaf in leaves:
        node = built.node("H", "Mellanox Technologies Aggregation Node", 0xCF09, 1, leaf)
        built.cable(node, leaf)
    router = built.node("R", "router", 0xD2F3, 2)
    built.cable(router, leaves[0])
    found = of(built)
    assert (groups(found), found.findings, found.fabrics[0].aggregation_nodes) == ([names("n", 16)], (), 8)


def test_a_machine_that_reaches_no_other() -> None:
    built = Design()
    rails(built, names("n", 16), built.switches("s0"))
    alone = built.switch("alone")
    for i in range(8):
        built.adapter(f"lone mlx5_{i}", alone)
    (one,) = of(built).findings
    assert (one.kind, one.place, one.advice) == ("isolated", "lone", "Check the uplinks of alone")


def test_one_leaf_with_fewer_uplinks_than_its_siblings_is_still_a_fault() -> None:
    built = Design()
    spines = built.switches("s0", "s1")
    rails(built, names("a", 16), spines)
    leaf = rails(built, names("b", 16), spines, ["mlx5_0"], times=2)[0]
    rails(built, names("b", 16), spines, [f"mlx5_{i}" for i in range(1, 8)])
    (one,) = of(built).findings
    assert (one.kind, one.place) == ("uplink_down", built.nodes[leaf].description)


def test_a_group_most_of_whose_leaves_have_no_uplink() -> None:
    built = Design()
    spines = built.switches("s0")
    rails(built, names("a", 8), spines, ["mlx5_0"])
    rails(built, names("a", 8), (), ["mlx5_1", "mlx5_2"])
    rails(built, names("a", 8), spines, ["mlx5_3"])
    found = of(built)
    assert {len(machines) for machines in groups(found)} == {8}
