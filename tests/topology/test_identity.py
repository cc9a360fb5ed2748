"""Names stay what they are: through failovers of the subnet manager, lost machines, replaced switches."""

import random

from support.fabrics import C1, C2, A, E, derived, everything, scan, spoiled, text, truth

from astraeus.topology import tools
from astraeus.topology.derive import Derived, derive
from astraeus.topology.identity import Known, matched
from astraeus.topology.owners import Inventory
from astraeus.topology.scan import Scan, guid_of

NOBODY = Inventory()


def known(found: Derived) -> list[Known]:
    return [fabric.known for fabric in found.fabrics]


def managed(scan: Scan, text_of_sminfo: str) -> Scan:
    return tools.together([("ibnetdiscover", scan), ("sminfo", tools.parse_manager(text_of_sminfo))])


def test_a_failover_of_the_subnet_manager_renames_nothing() -> None:
    plain = scan(f"{A}/ibnetdiscover.txt")
    first = derive(managed(plain, text("sm-failover/sm-before.txt")), NOBODY)
    second = derive(managed(plain, text("sm-failover/sm-after.txt")), NOBODY, known(first))
    third = derive(managed(plain, text("sm-failover/sm-before.txt")), NOBODY, known(second))
    assert first.fabrics[0].known.name == truth(A)["fabric"]
    assert second.places == first.places == third.places
    aliases = tuple(guid_of(guid) for guid in ("0x2c90300a1b2c3", "0xa088c203004d9c11"))
    assert second.fabrics[0].known.managers == third.fabrics[0].known.managers == aliases


def test_groups_keep_their_names_when_the_first_machines_are_gone() -> None:
    first = derived(everything(A))
    less = scan(f"{A}/ibnetdiscover.txt")
    for guid, node in list(less.nodes.items()):
        if node.description.startswith(tuple(f"node00{i} " for i in range(1, 9))):
            less.peers.pop(less.peers.pop((guid, 1)))
    second = derive(less, NOBODY, known(first))
    assert [group.name for group in second.fabrics[0].groups] == ["leaf-r0-7-g1"]
    gone = {one.place for one in second.findings if one.kind == "machine_missing"}
    assert gone == {f"node00{i}" for i in range(1, 9)}


def test_groups_keep_their_names_when_cables_move() -> None:
    first = derived(everything(A))
    for seed in range(20):
        again = derive(spoiled(everything(A), random.Random(seed), 0.05, 0.05), NOBODY, known(first))
        assert {host: (at.fabric, at.leaf, at.spine) for host, at in again.places.items()} == {
            host: (at.fabric, at.leaf, at.spine) for host, at in first.places.items()
        }


def test_a_second_fabric_gets_numbers_that_are_free() -> None:
    first = derived(everything(C1))
    second = derive(everything(C2), NOBODY, known(first))
    assert [group.name for group in second.fabrics[0].groups] == ["leaf-r0-7-g1"]
    assert [group.spine for group in second.fabrics[0].groups] == ["spine-g1"]
    assert second.fabrics[0].known.name != first.fabrics[0].known.name


def test_without_a_subnet_manager_known_the_switches_give_the_name() -> None:
    plain = scan(f"{E}/ibnetdiscover.txt")
    plain.initiator = None
    (fabric,) = derived(plain).fabrics
    assert fabric.known.name == f"ib-0x{min(fabric.known.switches):016x}"


def test_sets_are_matched_by_what_they_share() -> None:
    assert matched([{1, 2, 3, 4}], [{1, 2}, {3, 4, 5, 6, 7}]) == {0: 0}
    assert matched([{1, 2}, {3, 4}], [{1, 2, 3, 4}]) == {0: 0}
    assert matched([{9}], [{1}]) == {}
