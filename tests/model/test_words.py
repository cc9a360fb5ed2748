"""The words users read, in exactly the forms of the recipe."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from astraeus.model import words
from astraeus.model.budget import RestartBudget


def test_the_recipes_sentences() -> None:
    assert words.starting(6, 8) == "Starting together: 6 of 8 ready"
    assert words.preempted("eval-release") == ("Preempted by higher-priority work (eval-release); waiting to run again")
    assert words.gang_restart(words.lost_machine("resnet-64gpu-5")) == "Gang restart: resnet-64gpu-5 lost its machine"
    assert words.barrier_timed_out(["a-1"]).startswith("Gang barrier timed out waiting for all members")
    assert words.waiting_for_tighter(
        25 * 60,
        "one leaf switch (leaf-r0-7-g0)",
        368.4,
        "InfiniBand fabric sm-0x0002c90300a1b2c3",
        313.2,
    ) == (
        "Waiting up to 25 min more for one leaf switch (leaf-r0-7-g0), ~368 GB/s all-reduce "
        "(could start now on InfiniBand fabric sm-0x0002c90300a1b2c3, ~313 GB/s all-reduce)"
    )


def test_a_restart_that_was_charged_says_when_and_how_many_are_left() -> None:
    budget = RestartBudget().charge().charge()
    failure = words.exited("resnet-64gpu-5", 1, None)
    assert words.gang_restart(failure, budget.backoff_seconds, budget) == (
        "Gang restart: resnet-64gpu-5 exited with code 1; restarting in 20 s (8 of 10 restarts left)"
    )


def test_the_final_failure() -> None:
    assert words.budget_spent("resnet-64gpu-5 exited with code 1", RestartBudget()) == (
        "resnet-64gpu-5 exited with code 1: restart budget (10) spent; the gang does not run without it"
    )


@given(st.integers(0, 10_000), st.integers(0, 10_000))
def test_progress_is_read_back_from_its_sentence(ready: int, size: int) -> None:
    assert words.starting_progress(words.starting(ready, size)) == (ready, size)


@pytest.mark.parametrize(
    "reason", ["", "Waiting", "Starting together: 6 of 8 ready, soon", "starting together: 1 of 2"]
)
def test_other_reasons_are_no_progress(reason: str) -> None:
    assert words.starting_progress(reason) is None


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(0.2, "1 s"), (90, "90 s"), (91, "2 min"), (1500, "25 min"), (5400, "90 min"), (5401, "2 h"), (86_400, "24 h")],
)
def test_waits_are_rounded_up(seconds: float, said: str) -> None:
    assert words.minutes_left(seconds) == said


@pytest.mark.parametrize(
    ("code", "signal", "oom", "said"),
    [
        (1, None, False, "w-0 exited with code 1"),
        (None, 9, False, "w-0 was ended by signal 9"),
        (137, 9, True, "w-0 ran out of memory"),
    ],
)
def test_how_a_worker_ended(code: int | None, signal: int | None, oom: bool, said: str) -> None:
    assert words.exited("w-0", code, signal, oom) == said


def test_many_missing_members_are_counted() -> None:
    missing = [f"w-{i}" for i in range(1000)]
    said = words.barrier_timed_out(missing)
    assert said.endswith("w-7 and 992 more)")
    assert len(said) < 200
