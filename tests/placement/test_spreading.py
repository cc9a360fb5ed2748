"""Which leaf groups a gang crosses into, and which machines are kept for one that must wait."""

from collections import Counter
from dataclasses import replace
from itertools import accumulate
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st
from placement.drawing import applied, ask, draw

from astraeus.placement.backfill import LONGER, TOGETHER_SECONDS
from astraeus.placement.freeing import SOONEST_SECONDS
from astraeus.placement.planner import Planner, plan
from astraeus.placement.types import Reserved, Snapshot

LEAF = 6
Runs = dict[str, dict[str, float | None]]
many = settings(max_examples=200, deadline=None, derandomize=True)
frees = st.lists(st.integers(0, LEAF), min_size=2, max_size=7)


def fleet(free: list[int], machines: int, runs: Runs | None = None, waited: float = 0.0) -> Snapshot:
    """Leaf groups of which so many machines are free, the rest held by a run each, and a gang of whole machines.

    Its patience has been over for `waited` seconds.
    """
    lines = ["fabric f", "spine s"]
    for leaf, count in enumerate(free):
        lines.append(f"leaf l{leaf}")
        lines += [f"m{leaf}-{i} {'.' * 8 if i < count else chr(ord('a') + leaf) * 8}" for i in range(LEAF)]
    snapshot = draw("\n".join(lines), runs)
    gang = ask("N", 1, gpus=8 * machines, machines=machines)
    return Snapshot(snapshot.cluster, snapshot.machines, snapshot.holdings, (replace(gang, patience_until=-waited),))


def leaves(names: list[str]) -> Counter[int]:
    return Counter(int(name[1]) for name in names)


@many
@given(frees, st.data())
def test_a_gang_crosses_into_the_fewest_leaf_groups_uses_up_remnants_and_is_even_over_them(
    free: list[int], data: st.DataObject
) -> None:
    if sum(free) <= max(free):
        return
    size = data.draw(st.integers(max(free) + 1, sum(free)))
    (grant,) = plan(fleet(free, size), 0.0).grants
    used = leaves([member.machine for member in grant.members])
    fewest = next(k for k, most in enumerate(accumulate(sorted(free, reverse=True)), 1) if most >= size)
    assert len(used) == fewest
    left_over = sum(free[leaf] for leaf in used) - size
    for leaf in used:
        for other in set(range(len(free))) - set(used):
            assert not free[leaf] > free[other] >= free[leaf] - left_over, "a smaller group would have done"
    assert all(count == free[leaf] or count >= max(used.values()) - 1 for leaf, count in used.items())


@many
@given(frees, st.data())
def test_what_is_kept_for_a_gang_is_free_in_time_and_in_the_fewest_leaf_groups(
    free: list[int], data: st.DataObject
) -> None:
    if sum(free) == LEAF * len(free):
        return
    size = data.draw(st.integers(max(2, sum(free) + 1), LEAF * len(free)))
    ends = data.draw(st.lists(st.sampled_from([10, 20, None]), min_size=len(free), max_size=len(free)))
    runs: Runs = {chr(ord("a") + leaf): {"ends_at": end} for leaf, end in enumerate(ends)}
    snapshot = fleet(free, size, runs, waited=TOGETHER_SECONDS)
    decided = plan(snapshot, 0.0)
    last = next((t for t in (10, 20) if sum(_ready(free, ends, t)) >= size), None)
    kept = leaves([row.machine for row in decided.reserved])
    assert sum(kept.values()) == size
    assert decided.waits[0].starts_by == last
    if last is None:
        ready = sum(int(row.machine[3:]) < _ready(free, ends, 20)[int(row.machine[1])] for row in decided.reserved)
        assert ready == sum(_ready(free, ends, 20)), "whatever is free or will be is kept"
    else:
        most = accumulate(sorted(_ready(free, ends, last), reverse=True))
        assert len(kept) == next(k for k, held in enumerate(most, 1) if held >= size)
    again = plan(applied(snapshot, decided), 0.0)
    assert set(again.reserved) == set(decided.reserved)


def _ready(free: list[int], ends: list[int | None], by: int) -> list[int]:
    """The machines of each leaf group that are free by a time."""
    return [LEAF if end is not None and end <= by else count for count, end in zip(free, ends, strict=True)]


@many
@given(frees, st.data())
def test_where_nobody_knows_what_ends_first_a_gang_is_kept_the_fewest_leaf_groups_that_are_not_much_later(
    free: list[int], data: st.DataObject
) -> None:
    if sum(free) == LEAF * len(free):
        return
    size = data.draw(st.integers(max(2, sum(free) + 1), LEAF * len(free)))
    ages = data.draw(st.lists(st.sampled_from([5, 700, 1_800, 9_000, 90_000]), min_size=len(free), max_size=len(free)))
    snapshot = fleet(free, size, {chr(ord("a") + leaf): {"started_at": -age} for leaf, age in enumerate(ages)})
    decided = plan(snapshot, 0.0)
    lasts = [
        [0.0] * count + [max(age, SOONEST_SECONDS)] * (LEAF - count) for count, age in zip(free, ages, strict=True)
    ]
    by = LONGER * max(sorted(time for leaf in lasts for time in leaf)[size - 1], SOONEST_SECONDS)
    kept = [(int(row.machine[1]), int(row.machine[3:])) for row in decided.reserved]
    assert len(kept) == size
    assert all(lasts[leaf][place] <= by for leaf, place in kept), "others are likely to be free much sooner"
    used = {leaf for leaf, _ in kept}
    if size <= LEAF and any(sorted(leaf)[size - 1] <= by for leaf in lasts):
        assert len(used) == 1
    for leaf in used:
        worst = max(lasts[leaf][place] for one, place in kept if one == leaf)
        others = [time for place, time in enumerate(lasts[leaf]) if (leaf, place) not in kept]
        assert all(time >= worst for time in others), "a machine of the same leaf group is likely to be free sooner"
    assert decided.waits[0].starts_by is None
    assert set(plan(applied(snapshot, decided), 0.0).reserved) == set(decided.reserved)


def kept_in(snapshot: Snapshot) -> Counter[int]:
    """The leaf groups in which machines are kept."""
    return leaves([row.machine for row in plan(snapshot, 0.0).reserved])


def test_a_gang_of_two_leaf_groups_is_kept_two_though_others_have_machines_sooner() -> None:
    runs: Runs = {
        letter: {"started_at": -age} for letter, age in zip("abcde", (1800, 1800, 1800, 700, 700), strict=True)
    }
    assert kept_in(fleet([1, 1, 1, 0, 0], 2 * LEAF, runs)) == {0: LEAF, 1: LEAF}


def test_machines_stay_kept_until_others_are_likely_to_be_free_much_sooner() -> None:
    for age, leaf in ((1_800, 1), (90_000, 0)):
        snapshot = fleet([0, 0], 4, {"a": {"started_at": -700}, "b": {"started_at": -age}})
        before = tuple(Reserved(1, f"m1-{place}", 255) for place in range(4))
        assert kept_in(replace(snapshot, reserved=before)) == {leaf: 4}


def test_a_patient_gang_is_kept_room_on_its_ideal_rung_however_much_sooner_it_has_a_looser_one() -> None:
    drawn = """
    fabric f
    leaf l0
      m0-0 ........
      m0-1 ........
      m0-2 oooooooo
    leaf l1
      m1-0 yyyyyyyy
      m1-1 oooooooo
      m1-2 oooooooo
    """
    world = draw(drawn, {"o": {"started_at": -90_000}, "y": {"started_at": -700}})
    for patience, kept in ((0, {0: 2, 1: 1}), (100, {0: 3})):
        gang = ask("N", 1, gpus=24, machines=3, patience=patience)
        assert kept_in(replace(world, asks=(gang,))) == kept


@many
@given(frees, st.integers(2, 2 * LEAF), st.randoms(use_true_random=False))
def test_the_first_in_line_starts_whatever_comes_after_it(free: list[int], size: int, dice: Random) -> None:
    if size > LEAF * len(free) or size <= sum(free):
        return
    world, hour, planner = fleet(free, size), 3600.0, Planner()
    world = replace(world, holdings=tuple(replace(held, claim=2000 + i) for i, held in enumerate(world.holdings)))
    for step in range(int(TOGETHER_SECONDS / hour) + LEAF * len(free)):
        now, names = step * hour, [f"s{step}-{i}" for i in range(size)]
        small = [ask(name, 3000 + step * 20 + i, gpus=8, machines=1, at=now) for i, name in enumerate(names)]
        decided = planner.plan(replace(world, asks=(world.asks[0], *small)), now)
        if any(grant.claim == world.asks[0].claim for grant in decided.grants):
            return
        world = applied(replace(world, asks=(world.asks[0], *small)), decided)
        ended = dice.choice(world.holdings)
        world = replace(world, holdings=tuple(held for held in world.holdings if held is not ended))
    raise AssertionError("the gang starves")
