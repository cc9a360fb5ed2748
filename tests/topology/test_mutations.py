"""Groups come out as built when cables are missing and in the wrong place, in every one of 200 trials."""

import random

import pytest
from support.fabrics import A, B, E, built_groups, derived, groups, inventory, scan, spoiled, truth

from astraeus.topology.graph import graphs
from astraeus.topology.owners import Inventory
from astraeus.topology.shape import shape_of

TRIALS = 200
MORE = [(0.05, 0.0), (0.0, 0.005), (0.0, 0.01), (0.0, 0.02), (0.0, 0.05), (0.05, 0.05)]


@pytest.mark.parametrize("folder", [A, B])
@pytest.mark.parametrize(("missing", "miswired"), MORE)
def test_leaf_groups_survive(folder: str, missing: float, miswired: float) -> None:
    found, built = scan(f"{folder}/ibnetdiscover.txt"), built_groups(folder)
    wrong = []
    for seed in range(TRIALS):
        (graph,), _ = graphs(spoiled(found, random.Random(seed), missing, miswired), Inventory())
        shape = shape_of(graph, {})
        if [group.machines for group in shape.groups] != built or len(shape.spines) != 1:
            wrong.append(seed)
    assert not wrong


@pytest.mark.parametrize(("missing", "miswired"), [(0.05, 0.0), (0.0, 0.05)])
def test_a_plain_fat_tree_survives(missing: float, miswired: float) -> None:
    found, built = scan(f"{E}/ibnetdiscover.txt"), built_groups(E)
    for seed in range(TRIALS):
        assert groups(derived(spoiled(found, random.Random(seed), missing, miswired))) == built


@pytest.mark.parametrize("seed", range(40))
def test_what_is_found_is_what_was_spoiled(seed: int) -> None:
    """Every missing cable is named, with the right leaf port; every finding is about a port that was touched."""
    dice = random.Random(seed)
    found = scan(f"{A}/ibnetdiscover.txt")
    spoilt = spoiled(found, dice, 0.02, 0.0)
    names = truth(A)["nic_guids"]
    gone = {
        names[f"0x{end[0]:016x}"].replace("/", " "): peer
        for end, peer in found.peers.items()
        if not found.nodes[end[0]].switch and end not in spoilt.peers and f"0x{end[0]:016x}" in names
    }
    told = {one.place: one for one in derived(spoilt, inventory(A)).findings if one.kind == "port_missing"}
    assert told.keys() == gone.keys()
    leaves = {guid: name for name, guid in truth(A)["guids"].items()}
    for place, one in told.items():
        switch, port = gone[place]
        assert (one.detail["leaf"], one.detail["port"]) == (leaves[f"0x{switch:016x}"], port)


@pytest.mark.parametrize("seed", range(40))
def test_swapped_cables_are_found(seed: int) -> None:
    dice = random.Random(seed)
    found = scan(f"{A}/ibnetdiscover.txt")
    spoilt = spoiled(found, dice, 0.0, 0.0)
    machine = dice.choice(truth(A)["machines"])
    mine = {node.description: guid for guid, node in found.nodes.items() if node.description.startswith(f"{machine} ")}
    one, other = sorted(dice.sample(sorted(mine), 2))
    first, second = (mine[one], 1), (mine[other], 1)
    for end, place in ((first, found.peers[second]), (second, found.peers[first])):
        spoilt.peers[end], spoilt.peers[place] = place, end
    (told,) = derived(spoilt).findings
    assert (told.kind, told.detail["how"], told.place) == (
        "miswired",
        "swap",
        f"{one} and {other.partition(' ')[2]}",
    )
