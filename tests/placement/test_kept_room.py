"""Room kept for those who wait: when it is free, that it makes a gang's rung, and that nobody else is given it."""

from dataclasses import replace
from random import Random
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from placement.drawing import GIB, applied, ask, draw

from astraeus.placement.backfill import TOGETHER_SECONDS
from astraeus.placement.planner import plan
from astraeus.placement.types import Holding, Reserved, Snapshot

many = settings(max_examples=300, deadline=None, derandomize=True)
INFINIBAND = {"link": "infiniband"}


def freed(snapshot: Snapshot, *names: str, reserved: tuple[Reserved, ...] = ()) -> Snapshot:
    """The snapshot when these runs have ended."""
    left = tuple(held for held in snapshot.holdings if held.run_name not in names)
    return replace(snapshot, holdings=left, reserved=reserved)


def beside(snapshot: Snapshot, machine: str, name: str, **values: Any) -> Snapshot:
    """The snapshot with a run of one core, one GiB and no GPU."""
    held = Holding(
        claim=9000 + len(snapshot.holdings),
        run_uid=f"uid-{name}",
        run_name=name,
        workspace="acme/vision",
        attempt=1,
        machine=machine,
        gpu_mask=0,
        cpu_cores=1.0,
        memory_bytes=GIB,
        **values,
    )
    return replace(snapshot, holdings=(*snapshot.holdings, held))


@many
@given(st.randoms(use_true_random=False))
def test_the_time_told_is_the_first_at_which_time_limits_free_the_room(dice: Random) -> None:
    lines, runs = ["rails 2"], {}
    for leaf in range(4):
        lines += [f"fabric f{leaf // 2}", f"leaf l{leaf}"]
        for machine in range(3):
            letters = dice.choice("abcdefgh") * 4 + dice.choice("....ijklmn") * 4
            lines.append(f"m{leaf}{machine} {letters} {dice.choice(['', '', 'dark:0', 'dark:1'])}")
    for letter in "abcdefghijklmn":
        runs[letter] = {"ends_at": dice.choice([None, *range(100, 1000, 100)])}
    drawn = draw("\n".join(lines), runs)
    for machine in drawn.machines:
        if dice.random() < 0.5:
            drawn = beside(drawn, machine.name, f"small-{machine.name}", ends_at=dice.choice([50.0, 950.0]))
    size = dice.randint(1, 4)
    gpus = dice.choice([4, 8]) * size
    # All cores or all memory of a machine for 8 GPUs.
    beyond = dice.choice([{}, {"cpu": 24}, {"memory": 256 * GIB}])
    gang = ask("N", 1, gpus=gpus, machines=size, **beyond, **dice.choice([{}, INFINIBAND, {"within": "leaf"}]))
    world = replace(drawn, asks=(gang,))
    decided = plan(world, 0.0)
    if decided.grants:
        return
    ends = sorted({held.ends_at for held in world.holdings if held.ends_at is not None})
    for end in ends:
        left = tuple(held for held in world.holdings if held.ends_at is None or held.ends_at > end)
        if plan(replace(world, holdings=left), end).grants:
            assert decided.waits[0].starts_by == end
            return
    assert decided.waits[0].starts_by is None


def test_a_run_that_takes_nothing_a_gang_needs_does_not_put_it_off() -> None:
    idle = beside(beside(draw("fabric f\nleaf l\n  m0 aaaaaaaa\n  m1 bbbbbbbb\n"), "m0", "x"), "m1", "y")
    world = replace(
        idle,
        holdings=tuple(replace(held, ends_at={"a": 100.0, "b": 200.0}.get(held.run_name)) for held in idle.holdings),
        asks=(ask("gang", 1, gpus=16, machines=2), ask("small", 2, gpus=8, machines=1, limit=150)),
    )
    decided = plan(world, 0.0)
    assert decided.waits[0].starts_by == 200.0
    assert not plan(freed(world, "a", reserved=decided.reserved), 100.0).grants


def test_what_runs_on_past_its_time_limit_may_end_at_once() -> None:
    drawn = draw("fabric f\nleaf l\n  m0 aaaaaaaa\n", {"a": {"ends_at": 50.0}})
    (wait,) = plan(replace(drawn, asks=(ask("N", 1, gpus=8, machines=1),)), 100.0).waits
    assert wait.starts_by == 100.0


def test_who_is_placed_on_room_kept_for_it_leaves_the_others_time_as_it_is() -> None:
    drawn = draw("fabric f\nleaf l\n  m0 ........\n  m1 aaaaaaaa\n  m2 ........\n", {"a": {"ends_at": 100.0}})
    asks = (
        ask("first", 1, gpus=8, machines=1, limit=50, priority=3),
        ask("gang", 2, gpus=24, machines=3),
        ask("long", 3, gpus=8, machines=1, limit=5000),
    )
    for reserved in ((Reserved(1, "m0", 255),), ()):
        decided = plan(replace(drawn, reserved=reserved, asks=asks), 0.0)
        assert [grant.claim for grant in decided.grants] == [1]
        assert [(wait.claim, wait.starts_by) for wait in decided.waits] == [(2, 100.0), (3, None)]


def test_room_made_that_lost_its_network_is_given_up_and_made_elsewhere() -> None:
    drawn = draw("fabric f\nleaf l\n" + "".join(f"  m{i} {c * 8}\n" for i, c in enumerate("abcd")))
    asks = (ask("hi", 1, gpus=16, machines=2, within="fabric", priority=5), ask("lo", 2, gpus=8, machines=1))
    world = replace(drawn, asks=asks)
    decided = plan(world, 0.0)
    bad = decided.reserved[1].machine
    dark = tuple(
        replace(machine, ports=tuple(port.model_copy(update={"up": machine.name != bad}) for port in machine.ports))
        for machine in world.machines
    )
    stopped = [eviction.claim for eviction in decided.evictions]
    names = [held.run_name for held in world.holdings if held.claim in stopped]
    after = replace(freed(world, *names, reserved=decided.reserved), machines=dark)
    again = plan(after, 30.0)
    assert [(grant.claim, grant.members[0].machine) for grant in again.grants] == [(2, bad)]
    assert len(again.evictions) == 1
    assert bad not in {kept.machine for kept in again.reserved}


def test_room_that_has_no_rail_in_common_any_more_is_given_up() -> None:
    drawn = draw("fabric f\nleaf l\nrails 2\n  m0 ........ dark:0\n  m1 ........ dark:1\n")
    asks = (ask("gang", 1, gpus=16, machines=2, **INFINIBAND), ask("small", 2, gpus=8, machines=1))
    kept = (Reserved(1, "m0", 255), Reserved(1, "m1", 255))
    decided = plan(replace(drawn, reserved=kept, asks=asks), 0.0)
    assert ([grant.claim for grant in decided.grants], decided.reserved) == ([2], ())


def test_machines_gathered_for_a_gang_have_a_rail_in_common() -> None:
    drawn = draw(
        "fabric f\nleaf l\nrails 2\n  m0 ........ dark:0\n  m1 ........ dark:1\n  m2 aaaaaaaa\n",
        {"a": {"ends_at": 100.0}},
    )
    asks = (ask("gang", 1, gpus=16, machines=2, **INFINIBAND), ask("small", 2, gpus=8, machines=1, limit=500))
    decided = plan(replace(drawn, asks=asks), 0.0)
    assert [(grant.claim, grant.members[0].machine) for grant in decided.grants] == [(2, "m0")]
    assert ({kept.machine for kept in decided.reserved}, decided.waits[0].starts_by) == ({"m1", "m2"}, 100.0)


def test_room_of_the_first_in_line_stays_its_own_when_who_holds_it_is_stopped_for_another() -> None:
    drawn = draw(
        "fabric f\nleaf l\n  m0 vvvvvvvv\n  m1 vvvvvvvv\n  m2 nnnnnnnn\n",
        {"v": {"priority": 0}, "n": {"preemptible": False}},
    )
    asks = (
        ask("big", 1, gpus=16, machines=2, named=["m0", "m2"], priority=5),
        ask("one", 2, gpus=8, machines=1, named=["m1"], priority=4),
        ask("late", 3, gpus=8, machines=1, priority=0),
    )
    decided = plan(replace(drawn, asks=asks), 0.0)
    assert sorted((kept.claim, kept.machine) for kept in decided.reserved) == [(1, "m0"), (1, "m2"), (2, "m1")]
    after = replace(freed(drawn, "v", reserved=decided.reserved), asks=asks)
    after = applied(after, plan(after, 30.0))
    assert {held.run_name: held.machine for held in after.holdings} == {"one": "m1", "n": "m2"}


def test_who_was_kept_room_and_is_placed_on_it_is_said_to_use_it() -> None:
    drawn = draw("fabric f\nleaf l\n  m0 ........\n  m1 ........\n")
    asks = (
        ask("p1", 1, gpus=8, machines=1, priority=3),
        ask("p2", 2, gpus=8, machines=1, priority=3),
        ask("q", 3, gpus=8, machines=1),
    )
    kept = (Reserved(1, "m0", 255), Reserved(2, "m1", 255))
    (wait,) = plan(replace(drawn, reserved=kept, asks=asks), 0.0).waits
    assert wait.blockers == ("1 in use by p1", "1 in use by p2")


def test_the_plan_says_when_what_is_kept_will_change_by_itself() -> None:
    drawn = draw(
        "fabric fa\nleaf l\n  m0 ........\n  m1 aaaaaaaa\n  m2 aaaaaaaa\n"
        "fabric fb\nleaf k\n  m3 ........\n  m4 ........\n  m5 bbbbbbbb\n",
        {"a": {"started_at": 0.0}, "b": {"started_at": -1e6}},
    )
    asks = (ask("gang", 1, gpus=24, machines=3, within="fabric"), ask("small", 2, gpus=8, machines=1, named=["m0"]))
    world = replace(drawn, asks=asks)
    world = replace(world, reserved=plan(world, 100.0).reserved)
    before, after = (plan(world, TOGETHER_SECONDS + step) for step in (-1, 0))
    assert (before.grants, before.next_change_at) == ((), TOGETHER_SECONDS)
    assert [grant.claim for grant in after.grants] == [2]
