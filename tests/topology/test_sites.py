"""Networks as files: ours and others' are read, Slurm's and Kueue's are written, and both directions agree."""

import re
from dataclasses import dataclass, field

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from support.fabrics import A, B, D, derived, scan, text

from astraeus.model.machine import FABRIC, LEAF, NVLINK, RACK, ROCE, SPINE
from astraeus.topology import exports, sites
from astraeus.topology.hostlist import compress, expand


@dataclass
class Box:
    name: str
    labels: dict[str, str] = field(default_factory=dict)
    gpus: int = 8


def boxes(folder: str) -> list[Box]:
    """The machines of a fixture with the labels a scan gives them."""
    places = derived(scan(f"{folder}/ibnetdiscover.txt")).places
    return [
        Box(name, {LEAF: at.leaf, SPINE: at.spine, FABRIC: at.fabric})
        for name, at in places.items()
        if at.leaf and at.spine
    ]


@pytest.mark.parametrize(
    ("short", "names"),
    [
        ("node[001-003,010]", ["node001", "node002", "node003", "node010"]),
        ("n[1-2]r[1-2]", ["n1r1", "n1r2", "n2r1", "n2r2"]),
        ("a,b", ["a", "b"]),
        ("n[9-11]", ["n9", "n10", "n11"]),
        ("", []),
    ],
)
def test_hostlists(short: str, names: list[str]) -> None:
    assert expand(short) == names


def test_hostlists_are_folded() -> None:
    assert compress(["node010", "node001", "node003", "node002"]) == "node[001-003,010]"
    assert compress([f"n{i}" for i in range(1, 12)]) == "n[1-11]"
    assert compress(["login", "n1"]) == "login,n1"


@given(
    st.sets(
        st.builds(
            lambda head, number, width: f"{head}{number:0{width}}",
            st.sampled_from(["n", "x-"]),
            st.integers(0, 1200),
            st.integers(1, 4),
        ),
        max_size=40,
    )
)
def test_folding_loses_nothing(names: set[str]) -> None:
    assert sorted(expand(compress(names))) == sorted(names)


@pytest.mark.parametrize("words", ["n[1-", "n]1[", "n[x]", "n[1-99999999]", "n[[1]]"])
def test_bad_hostlists_are_refused(words: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        expand(words)


def test_ours() -> None:
    site = sites.parse("""
fabrics:
- name: fab
  spines:
  - name: s0
    leaves:
    - {name: l0, machines: "node[1-2]"}
    - {name: l1, machines: [node3]}
- name: net
  kind: roce
  leaves: [{name: l9, machines: node9}]
racks: {r1: "node[1-3]"}
nvlink_domains: {d1: node1}
""")
    assert site.problems == []
    assert site.places["node1"] == {LEAF: "l0", SPINE: "s0", FABRIC: "fab", RACK: "r1", NVLINK: "d1"}
    assert site.places["node9"] == {LEAF: "l9", ROCE: "net"}


def test_topographs_graph() -> None:
    site = sites.parse('{"instances": [{"id": "n1", "network_layers": ["l", "s", "c"], "labels": {}}]}')
    assert site.places == {"n1": {LEAF: "l", SPINE: "s", FABRIC: "c"}}


@pytest.mark.parametrize(("folder", "name"), [(A, "a.tree.conf"), (B, "b.tree.conf"), (D, "d511.tree.conf")])
def test_a_topology_conf_that_slurm_took_says_what_the_scan_says(folder: str, name: str) -> None:
    site = sites.parse(text(f"slurm/{name}"))
    assert site.problems == []
    told = {machine: labels[LEAF].replace("lg-", "leaf-r0-7-") for machine, labels in site.places.items()}
    assert told == {box.name: box.labels[LEAF] for box in boxes(folder)}
    spines = {labels[SPINE] for labels in site.places.values()}
    assert len(spines) == len({box.labels[SPINE] for box in boxes(folder)})


def test_blocks_and_naive_trees() -> None:
    assert sites.parse(text("slurm/b.block.conf")).places["node009"] == {LEAF: "b1"}
    naive = sites.parse(text("slurm/naive.tree.conf"))
    assert "has both leaf" in naive.problems[0]


@pytest.mark.parametrize("folder", [A, D])
def test_what_is_written_for_slurm_is_read_back(folder: str) -> None:
    machines = boxes(folder)
    for written in (exports.slurm_conf(machines), exports.slurm_yaml(machines)):
        site = sites.parse(written)
        assert site.problems == []
        assert site.places == {box.name: box.labels for box in machines}


def test_the_tree_for_slurm() -> None:
    assert exports.slurm_conf([*boxes(A), Box("bare")]) == (
        "# in no leaf group, left out: bare\n"
        "SwitchName=leaf-r0-7-g0 Nodes=node[001-008]\n"
        "SwitchName=leaf-r0-7-g1 Nodes=node[009-016]\n"
        "SwitchName=spine-g0 Switches=leaf-r0-7-g0,leaf-r0-7-g1\n"
        "SwitchName=sm-0x0002c90300a1b2c3 Switches=spine-g0\n"
    )
    assert exports.slurm_blocks(boxes(A)).splitlines() == [
        "BlockName=leaf-r0-7-g0 Nodes=node[001-008]",
        "BlockName=leaf-r0-7-g1 Nodes=node[009-016]",
        "BlockSizes=8,16",
    ]


def test_leaves_of_one_name_on_two_fabrics_stay_two_switches() -> None:
    machines = [Box(f"n{i}", {LEAF: "l", SPINE: "s", FABRIC: f"f{i}"}) for i in (1, 2)]
    names = [line.split()[0] for line in exports.slurm_conf(machines).splitlines()]
    assert len(set(names)) == len(names) == 6


def test_tiers_of_one_name_stay_two_switches() -> None:
    machines = [Box(f"n{i}", {LEAF: f"l{i}", SPINE: "pod", FABRIC: "pod"}) for i in (1, 2)]
    machines.append(Box("n3", {LEAF: "top", FABRIC: "top"}))
    assert exports.slurm_conf(machines).splitlines() == [
        "SwitchName=l1 Nodes=n1",
        "SwitchName=l2 Nodes=n2",
        "SwitchName=top Nodes=n3",
        "SwitchName=pod Switches=l1,l2",
        "SwitchName=pod-up Switches=pod",
        "SwitchName=top-up Switches=top",
    ]


def test_kueue() -> None:
    topology, *nodes = yaml.safe_load_all(exports.kueue(boxes(A)))
    levels = [level["nodeLabel"] for level in topology["spec"]["levels"]]
    assert (topology["apiVersion"], levels) == (
        "kueue.x-k8s.io/v1beta2",
        [FABRIC, SPINE, LEAF, "kubernetes.io/hostname"],
    )
    assert nodes[0]["metadata"]["labels"][LEAF] == "leaf-r0-7-g0"
    topology, *_ = yaml.safe_load_all(exports.kueue([Box("n", {LEAF: "l"})]))
    assert [level["nodeLabel"] for level in topology["spec"]["levels"]] == [LEAF, "kubernetes.io/hostname"]


def test_labels_are_such_as_kubernetes_takes_and_stay_apart() -> None:
    names = ["leaf 1", "leaf/1", "x" * 70, "x" * 71, "-leaf-", "ä"]
    _, *nodes = yaml.safe_load_all(exports.kueue([Box(f"n{i}", {LEAF: name}) for i, name in enumerate(names)]))
    labels = [node["metadata"]["labels"][LEAF] for node in nodes]
    assert len(set(labels)) == len(names)
    assert all(re.fullmatch(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?", label) for label in labels)


@settings(max_examples=150, deadline=None)
@given(st.text(max_size=300) | st.lists(st.sampled_from(text("slurm/d511.tree.conf").splitlines())).map("\n".join))
def test_any_file(words: str) -> None:
    sites.parse(words)
    sites.parse_slurm(words)
    sites.looks_like(words)


@given(
    st.recursive(
        st.none() | st.text(max_size=5) | st.integers(),
        lambda deeper: (
            st.lists(deeper, max_size=3)
            | st.dictionaries(
                st.sampled_from(
                    [
                        "fabrics",
                        "spines",
                        "leaves",
                        "machines",
                        "name",
                        "tree",
                        "switches",
                        "block",
                        "blocks",
                        "instances",
                        "network_layers",
                        "id",
                        "racks",
                    ]
                ),
                deeper,
                max_size=4,
            )
        ),
    )
)
def test_any_document(document: object) -> None:
    sites.parse(yaml.safe_dump(document))
