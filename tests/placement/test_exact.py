"""How near the planner is to the best that an exact solver finds on small fleets."""

import random

import pytest

pytest.importorskip("ortools")

from placement.exact import case, fewest_leaf_groups, gap


def test_the_solver_itself() -> None:
    assert fewest_leaf_groups([4, 4], [4, 4]) == 2
    assert fewest_leaf_groups([3, 3, 2], [4, 2]) == 3
    assert fewest_leaf_groups([3, 3], [3, 2, 1]) == 3
    assert fewest_leaf_groups([1, 1], [3]) is None


@pytest.mark.parametrize("seed", range(40))
def test_one_gang_gets_the_fewest_leaf_groups_there_are(seed: int) -> None:
    dice = random.Random(seed)
    one = case(dice)
    first = one.snapshot.asks[dice.randrange(len(one.sizes))]
    alone = type(one)(
        type(one.snapshot)("small", one.snapshot.machines, one.snapshot.holdings, (first,)), one.free, (0,)
    )
    assert alone.planned() == fewest_leaf_groups(one.free, [first.resources.machines or 0])


def test_a_queue_is_within_a_few_per_cent_of_the_best_for_all_of_it() -> None:
    dice = random.Random(11)
    assert 0 <= gap([case(dice) for _ in range(25)]) <= 10
