"""Fleets as they might be."""

import pytest

from astraeus.model.errors import NotFound
from astraeus.model.machine import FABRIC, LEAF
from astraeus.model.spec import Resources
from astraeus.placement.changed import with_machines, without
from astraeus.placement.planner import plan
from astraeus.placement.types import Ask, Holding, Machine, Reserved, Snapshot

WHOLE = 0xFF


def machine(name: str, leaf: str | None) -> Machine:
    labels = {LEAF: leaf, FABRIC: "f"} if leaf else {}
    return Machine(name, 8, "H100", 96, 2**40, labels)


def holding(claim: int, name: str) -> Holding:
    return Holding(claim, f"u{claim}", f"run-{claim}", "a/w", 1, name, WHOLE, 0, 0)


def fleet() -> Snapshot:
    machines = [machine(f"a-{i}", "leaf-a") for i in range(4)] + [machine(f"b-{i}", "leaf-b") for i in range(2)]
    held = (holding(1, "a-0"), holding(1, "b-0"), holding(2, "b-1"), holding(3, "a-1"))
    resources = Resources.model_validate({"gpu_requests": {"count": 32}, "machines": 4})
    ask = Ask(9, "u9", "wide", "a/w", 1, resources, 0, 0.0, 0.0)
    return Snapshot("lab", tuple(machines), held, (ask,), (Reserved(9, "a-2", WHOLE), Reserved(9, "b-0", WHOLE)))


def test_a_gang_that_loses_one_machine_loses_all_its_room() -> None:
    left, ended = without(fleet(), ["leaf-b"])
    assert [one.name for one in left.machines] == ["a-0", "a-1", "a-2", "a-3"]
    assert ended == ("run-1", "run-2")
    assert [one.claim for one in left.holdings] == [3]
    assert [row.machine for row in left.reserved] == ["a-2"]


def test_one_machine_by_name_and_several_at_once() -> None:
    left, ended = without(fleet(), ["a-3", "b-1"])
    assert len(left.machines) == 4
    assert ended == ("run-2",)
    assert without(fleet(), []) == (fleet(), ())
    with pytest.raises(NotFound, match="leaf-z"):
        without(fleet(), ["a-3", "leaf-z"])


def test_more_machines_are_like_the_largest_leaf_group_and_fill_leaf_groups() -> None:
    grown = with_machines(fleet(), 6)
    added = grown.machines[6:]
    assert [one.name for one in added] == [f"added-{i:05d}" for i in range(6)]
    assert [one.leaf for one in added] == ["added-0"] * 4 + ["added-1"] * 2
    assert {one.fabric for one in added} == {"f"}
    assert plan(fleet(), 0.0).waits
    assert {member.machine for member in plan(grown, 0.0).grants[0].members} == {one.name for one in added[:4]}


def test_growing_twice_and_growing_a_fleet_without_leaf_groups() -> None:
    twice = with_machines(with_machines(fleet(), 1), 1)
    assert len({one.name for one in twice.machines}) == 8
    plain = with_machines(Snapshot("lab", (machine("x", None),)), 2)
    assert [dict(one.labels) for one in plain.machines] == [{}, {}, {}]
    with pytest.raises(NotFound):
        with_machines(Snapshot("lab", ()), 1)
