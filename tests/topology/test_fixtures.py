"""What is derived from real tools' outputs is what was built, and what is found is what was broken."""

from typing import Any

import pytest
from support.fabrics import (
    C1,
    C2,
    A,
    B,
    D,
    E,
    built_groups,
    derived,
    everything,
    groups,
    inventory,
    scan,
    truth,
    with_counters,
)

from astraeus.topology.derive import Derived
from astraeus.topology.findings import Finding
from astraeus.topology.owners import Inventory

FORMS = ("ibnetdiscover.txt", "ibnetdiscover-full.txt", "ibnetdiscover-p.txt", "iblinkinfo-l.txt", "iblinkinfo.txt")
SMALL = (A, B, C1, C2, E)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("folder", SMALL)
def test_groups_come_out_as_built_from_every_form(folder: str, form: str) -> None:
    found = scan(f"{folder}/{form}")
    assert found.unread == 0
    assert groups(derived(found)) == built_groups(folder)


@pytest.mark.parametrize("form", ["ibnetdiscover.txt", "iblinkinfo.txt"])
def test_511_machines(form: str) -> None:
    found = derived(scan(f"{D}/{form}"))
    assert groups(found) == built_groups(D)
    (fabric,) = found.fabrics
    pods = [pod["leaf_groups"] for pod in truth(D)["pods"]]
    spines: dict[str, list[str]] = {}
    for group in fabric.groups:
        spines.setdefault(group.spine, []).append(group.name.replace("leaf-r0-7-", ""))
    assert sorted(spines.values()) == sorted(pods)
    assert found.findings == ()


@pytest.mark.parametrize("folder", [A, C1, C2, E])
def test_nothing_is_found_where_nothing_was_broken(folder: str) -> None:
    assert derived(with_counters(folder), inventory(folder)).findings == ()
    assert derived(everything(folder)).findings == ()


@pytest.mark.parametrize("folder", SMALL)
def test_fabric_spine_groups_and_oversubscription(folder: str) -> None:
    built = truth(folder)
    (fabric,) = derived(everything(folder), inventory(folder)).fabrics
    assert fabric.known.name == built["fabric"]
    assert len(fabric.known.spine_groups) == len(built["pods"])
    above = {built["guids"][name] for name in built["pods"][0]["spines"]}
    (switches,) = fabric.known.spine_groups.values()
    assert {f"0x{guid:016x}" for guid in switches} == above
    assert {group.nominal for group in fabric.groups} == {built["oversubscription"]}
    assert fabric.rail_optimised == (built["kind"] == "rail")
    assert {group.rails for group in fabric.groups} == {(0, 7) if built["kind"] == "rail" else None}


def test_two_fabrics_with_equal_lids_and_prefixes_stay_two() -> None:
    both = derived(scan(*(f"{folder}/{name}" for folder in (C1, C2) for name in ("ibnetdiscover.txt", "sminfo.txt"))))
    assert [fabric.known.name for fabric in both.fabrics] == [truth(C1)["fabric"], truth(C2)["fabric"]]
    assert groups(both) == built_groups(C1) + built_groups(C2)
    names = [group.name for fabric in both.fabrics for group in fabric.groups]
    assert names == ["leaf-r0-7-g0", "leaf-r0-7-g1"]
    assert both.places["node001"].fabric != both.places["node009"].fabric


def findings(found: Derived, kind: str) -> dict[str, Finding]:
    return {one.place: one for one in found.findings if one.kind == kind}


@pytest.mark.parametrize("known", [Inventory(), inventory(B)], ids=["by description", "by GUID"])
def test_every_fault_of_b_is_found_and_none_invented(known: Inventory) -> None:
    found = derived(with_counters(B), known)
    faults: list[dict[str, Any]] = truth(B)["faults"]
    assert len(found.findings) == len(faults) == 9
    slow = findings(found, "degraded")
    for fault in faults[:2]:
        one = slow[fault["nic"].replace("/", " ")]
        assert (one.detail["is"], one.detail["should"]) == (fault["is_"], fault["should"])
        assert (one.detail["leaf"], one.detail["port"]) == (fault["leaf"], fault["leaf_port"])
        assert one.cost == f"gangs on {one.machines[0]} get ~322 of ~368 GB/s all-reduce, without the rail"
    leaf, port, spine, spine_port = faults[2]["uplink"]
    uplink = findings(found, "degraded_uplink")[f"{leaf} port {port}"]
    assert (uplink.detail["peer"], uplink.detail["peer_port"], uplink.detail["is"]) == (spine, spine_port, "1xNDR")
    missing = findings(found, "port_missing")["node004 mlx5_7"]
    assert (missing.detail["leaf"], missing.detail["port"]) == (faults[3]["leaf"], faults[3]["leaf_port"])
    assert missing.severity == "error"
    assert "is down too" in missing.message
    leaf, port, spine, _ = faults[4]["uplink"]
    gone = findings(found, "uplink_down")[leaf]
    assert (gone.detail["to"], gone.detail["ports"]) == ([spine], [port])


def test_a_swap_is_one_finding_and_the_other_group_names_where_the_cable_belongs() -> None:
    found = derived(with_counters(B))
    swap, stray = truth(B)["faults"][5:7]
    miswired = findings(found, "miswired")
    assert len(miswired) == 2
    one = miswired["node005 mlx5_2 and mlx5_3"]
    assert (one.detail["how"], one.detail["is"]) == ("swap", swap["is_"])
    other = miswired["node009 mlx5_6"]
    assert (other.detail["how"], other.detail["is"], other.detail["port"]) == ("other_group", stray["is_"], 9)
    assert other.detail["should"] == stray["should"]
    assert other.advice == "Move the cable to leaf-r6-g1 port 1"


def test_counters_name_the_machine_behind_the_port() -> None:
    found = derived(with_counters(B))
    errors, congested = truth(B)["faults"][7:]
    one = findings(found, "errors")[f"{errors['leaf']} port {errors['leaf_port']}"]
    assert (one.detail["counters"], one.machines) == (errors["counters"], ("node012",))
    leaf, port = congested["uplink"]
    other = findings(found, "congested")[f"{leaf} port {port}"]
    assert (other.detail["counters"], other.severity) == (congested["counters"], "info")


def test_ports_say_what_the_planner_needs() -> None:
    places = derived(with_counters(B)).places
    assert places["node003"].ports["mlx5_4:1"] == {"rail": 4, "gbps": 200.0}
    assert places["node004"].ports["mlx5_7"] == {"rail": 7, "up": False}
    assert places["node005"].ports["mlx5_2:1"] == {"rail": 2}
    assert (places["node009"].leaf, places["node009"].spine) == ("leaf-r0-7-g1", "spine-g0")


def test_a_pulled_cable() -> None:
    before, after = (derived(scan(f"events-cable-pulled/ibnetdiscover-{when}.txt")) for when in ("before", "after"))
    assert before.findings == ()
    (one,) = after.findings
    assert (one.kind, one.place, one.detail["leaf"], one.detail["port"]) == (
        "port_missing",
        "node004 mlx5_7",
        "leaf-r7-g0",
        4,
    )
    assert len(before.fabrics[0].links - after.fabrics[0].links) == 1


def test_a_machine_without_guids_in_its_facts_is_told_by_its_descriptions() -> None:
    some = inventory(B, without=frozenset({"node001", "node012"}))
    assert groups(derived(scan(f"{B}/ibnetdiscover.txt"), some)) == built_groups(B)
    assert groups(derived(scan(f"{B}/ibnetdiscover-p.txt"), inventory(B))) == built_groups(B)
