"""A planner that remembers its last pass decides what one that starts anew would, whatever changed in between."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from itertools import count
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from placement.drawing import applied, ask, draw
from placement.fleets import allotments, asks, snapshots

from astraeus.model.machine import LEAF
from astraeus.placement.holdings import Owners
from astraeus.placement.planner import Planner, plan
from astraeus.placement.types import Machine, Plan, Snapshot

EDITS = (
    *("commit", "commit", "ask", "ask", "leave", "end", "stop", "gone", "priority", "time", "late", "same"),
    *("cordon", "drain", "gpu", "gpu", "doubt", "heal", "port", "moved", "lost", "new"),
)
EDITS_DUE = (*EDITS, "due", "due", "due")
STATES: dict[str, Callable[[Machine], dict[str, Any]]] = {
    "cordon": lambda machine: {"refusal": None if machine.refusal else "cordoned"},
    "drain": lambda _: {"refusal": "draining"},
    "gpu": lambda machine: {"broken": machine.broken ^ 2},
    "doubt": lambda machine: {"doubtful": machine.doubtful ^ 4},
    "heal": lambda _: {"broken": 0, "doubtful": 0, "refusal": None},
    "port": lambda machine: {"ports": machine.ports[1:]},
    "moved": lambda machine: {"labels": {**machine.labels, LEAF: "l0"}},
}


def edited(world: Snapshot, edit: str, last: Plan, new: Any, dice: Any) -> Snapshot:
    """The snapshot after one change; parts in which nothing changed are the same objects."""
    if edit == "commit":
        return applied(world, last)
    if edit == "gone":
        return applied(world, last, victims_gone=True)
    if edit == "ask":
        return replace(world, asks=(*world.asks, new))
    if edit == "leave" and world.asks:
        left = dice.choice(world.asks)
        return replace(world, asks=tuple(ask for ask in world.asks if ask is not left))
    if edit == "priority" and world.asks:
        moved = dice.choice(world.asks)
        changed = replace(moved, priority=dice.randrange(-2, 3))
        return replace(world, asks=tuple(changed if ask is moved else ask for ask in world.asks))
    if edit in ("end", "stop") and world.holdings:
        claim = dice.choice(world.holdings).claim
        mine = [h for h in world.holdings if h.claim == claim]
        rest = tuple(h for h in world.holdings if h.claim != claim)
        return replace(world, holdings=rest + tuple(replace(h, stopping=True) for h in mine if edit == "stop"))
    return replace(world, machines=tuple(machines_after(world.machines, edit, dice)))


def machines_after(machines: tuple[Machine, ...], edit: str, dice: Any) -> Iterable[Machine]:
    """The machines after a change to one of them."""
    chosen = dice.choice(machines)
    if edit in STATES:
        return (replace(one, **STATES[edit](one)) if one is chosen else one for one in machines)
    if edit == "lost" and len(machines) > 1:
        return (one for one in machines if one is not chosen)
    if edit == "new":
        return (*machines, replace(chosen, name=f"new-{len(machines)}"))
    return machines


LIVES = settings(
    max_examples=150,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example],
)
DICE = st.randoms(use_true_random=False)


def live(world: Snapshot, new: Any, edits: list[str], dice: Any, due: Any = None) -> None:
    """Let a planner that remembers and ones that start anew decide after every change."""
    planner, now, numbers = Planner(), 0.0, count(100)
    last = planner.plan(world, now)
    for edit in edits:
        now += {"time": 7.0, "late": 100.0}.get(edit, 0.0)
        fresh = replace(dice.choice(new), claim=next(numbers))
        world = edited(world, edit, last, fresh, dice)
        if edit == "due":
            world = replace(world, allotments=dice.choice(due))
        last = planner.plan(world, now)
        assert last == plan(replace(world, machines=(*world.machines,), holdings=(*world.holdings,)), now)


@LIVES
@given(snapshots(), asks(most=10), st.lists(st.sampled_from(EDITS), min_size=1, max_size=12), DICE)
def test_incremental_equals_fresh(world: Snapshot, new: Any, edits: list[str], dice: Any) -> None:
    live(world, new, edits, dice)


@LIVES
@given(
    snapshots(),
    asks(most=10),
    st.lists(st.sampled_from(EDITS_DUE), min_size=1, max_size=12),
    DICE,
    st.lists(allotments(), min_size=1, max_size=3),
)
def test_incremental_equals_fresh_with_quotas_and_shares(
    world: Snapshot, new: Any, edits: list[str], dice: Any, due: Any
) -> None:
    live(replace(world, allotments=due[0], half_life_seconds=60.0), new, edits, dice, due)


def test_a_pass_that_fails_leaves_nothing_behind(monkeypatch: Any) -> None:
    world = replace(draw("fabric f\nleaf l\n  a0 ........\n"), asks=(ask("n", 1, gpus=8, machines=1),))
    planner = Planner()
    with monkeypatch.context() as broken:
        broken.setattr("astraeus.placement.passing.grant_of", lambda *_: 1 / 0)
        try:
            planner.plan(world, 0.0)
        except ZeroDivisionError:
            pass
    assert planner.plan(world, 0.0) == plan(world, 0.0)


def test_names_of_runs_long_gone_are_not_kept_for_ever(monkeypatch: Any) -> None:
    monkeypatch.setattr("astraeus.placement.building.OWNERS_MOST", 3)
    world, planner = draw("fabric f\nleaf l\n  a0 ........\n"), Planner()
    for number in range(10):
        world = replace(world, asks=(ask(f"n{number}", number, gpus=8, machines=1),), holdings=())
        assert planner.plan(world, 0.0) == plan(replace(world, machines=(*world.machines,)), 0.0)
    assert len(Owners.of(planner._memories[0].fleet).names) < 10
