import itertools
import math

from hypothesis import given
from hypothesis import strategies as st

from astraeus.model.budget import BACKOFF_FIRST, BACKOFF_MOST, EARN_SECONDS, RestartBudget

sizes = st.integers(0, 1000)
seconds = st.floats(0, 10**7, allow_nan=False)
lives = st.lists(st.one_of(st.just("charge"), seconds), max_size=60)


def lived(budget: RestartBudget, life: list[str | float]) -> RestartBudget:
    """A run's life: failures while there is budget left, and spans of running."""
    for step in life:
        if not isinstance(step, str):
            budget = budget.ran(step)
        elif not budget.spent:
            budget = budget.charge()
    return budget


@given(size=sizes, life=lives)
def test_what_is_left_is_never_negative_nor_more_than_the_budget(size: int, life: list[str | float]) -> None:
    budget = lived(RestartBudget(size), life)
    assert budget.left is not None
    assert 0 <= budget.left <= size
    assert budget.spent == (budget.left == 0)


@given(size=sizes, life=lives, first=seconds, second=seconds)
def test_running_adds_up(size: int, life: list[str | float], first: float, second: float) -> None:
    budget = lived(RestartBudget(size), life)
    parts, whole = budget.ran(first).ran(second), budget.ran(first + second)
    done = [(one.charged - 1) * EARN_SECONDS + EARN_SECONDS - one.earned_seconds for one in (parts, whole)]
    assert math.isclose(*(max(0.0, one) for one in done), rel_tol=1e-9, abs_tol=1e-4)


@given(charges=st.integers(1, 60))
def test_the_pause_doubles_up_to_five_minutes(charges: int) -> None:
    pauses = [RestartBudget(None, charged).backoff_seconds for charged in range(1, charges + 1)]
    assert pauses[0] == BACKOFF_FIRST
    for shorter, longer in itertools.pairwise(pauses):
        assert longer == min(2 * shorter, BACKOFF_MOST)


@given(size=sizes, life=lives)
def test_ten_minutes_of_running_earn_one_restart_back_up_to_the_budget(size: int, life: list[str | float]) -> None:
    budget = lived(RestartBudget(size), life)
    after = budget.ran(EARN_SECONDS)
    assert after.left == min(size, (budget.left or 0) + 1)
    assert budget.ran(EARN_SECONDS * (size + 1)) == RestartBudget(size)


@given(life=lives)
def test_an_unlimited_budget_is_never_spent(life: list[str | float]) -> None:
    budget = lived(RestartBudget(None), life)
    assert budget.left is None
    assert not budget.spent


@given(size=sizes, life=lives)
def test_the_next_restart_is_earned_exactly_when_announced(size: int, life: list[str | float]) -> None:
    budget = lived(RestartBudget(size), life)
    due = budget.next_earned_seconds
    if due is None:
        assert budget.charged == 0
        return
    assert 0 < due <= EARN_SECONDS
    assert budget.ran(due + 1e-3).charged == budget.charged - 1


def test_time_before_a_failure_earns_nothing() -> None:
    budget = RestartBudget(3).ran(10 * EARN_SECONDS).charge()
    assert (budget.left, budget.next_earned_seconds) == (2, EARN_SECONDS)


def test_a_budget_of_none_restarts_nothing() -> None:
    assert RestartBudget(0).spent
