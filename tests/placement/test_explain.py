"""What the planner answers to questions: why a claim waits, and what would happen to a run not yet submitted."""

from dataclasses import replace

import pytest
from placement.drawing import applied, ask, draw, need

from astraeus.model.spec import Resources
from astraeus.placement.explain import answer as answer_to
from astraeus.placement.explain import asking, why
from astraeus.placement.planner import plan
from astraeus.placement.types import Grant, Snapshot, Wait

FLEET = """
fabric f
leaf l0
  a0 ........
  a1 aaaaaaaa
"""


def what_if(snapshot: Snapshot, resources: Resources, priority: int, now: float) -> Grant | Wait | None:
    asked, ask = asking(snapshot, resources, priority, now)
    return answer_to(plan(asked, now), ask.claim)


@pytest.fixture
def snapshot() -> Snapshot:
    return draw(FLEET)


def test_a_run_that_fits_is_told_its_place_before_it_is_submitted(snapshot: Snapshot) -> None:
    answer = what_if(snapshot, need(gpus=8, machines=1), 0, 100.0)
    assert isinstance(answer, Grant)
    assert answer.place.network == "machine:a0"
    assert answer.place.estimate is not None


def test_a_run_that_does_not_fit_is_told_the_blockers(snapshot: Snapshot) -> None:
    answer = what_if(snapshot, need(gpus=16, machines=2), 0, 100.0)
    assert isinstance(answer, Wait)
    assert answer.blockers == ("1 in use by a",)


def test_a_run_that_would_stop_others_is_told_whom(snapshot: Snapshot) -> None:
    answer = what_if(snapshot, need(gpus=16, machines=2), 1, 100.0)
    assert isinstance(answer, Wait)
    assert answer.reason == "Waiting for a to make room"
    assert answer.victims == ("a",)
    assert answer.starts_by is None


def test_the_first_in_line_is_told_by_when_time_limits_free_its_room() -> None:
    fleet = draw(FLEET, {"a": {"ends_at": 700.0}})
    queue = replace(fleet, asks=(ask("x", 1, gpus=16, machines=2), ask("y", 2, gpus=24, machines=3)))
    first, second = plan(queue, 100.0).waits
    assert (first.starts_by, second.starts_by) == (700.0, None)
    answer = what_if(fleet, need(gpus=16, machines=2), 0, 100.0)
    assert isinstance(answer, Wait)
    assert answer.starts_by == 700.0
    assert answer.victims == ()


def test_the_queue_comes_first(snapshot: Snapshot) -> None:
    waiting = replace(snapshot, asks=(ask("w", 1, gpus=8, machines=1),))
    answer = what_if(waiting, need(gpus=8, machines=1), 0, 100.0)
    assert isinstance(answer, Wait)
    assert answer.position == 1


def test_the_same_need_gets_the_same_answer_as_a_submitted_run(snapshot: Snapshot) -> None:
    answer = what_if(snapshot, need(gpus=16, machines=2), 0, 100.0)
    submitted = replace(snapshot, asks=(ask("n", 1, gpus=16, machines=2),))
    assert isinstance(answer, Wait)
    assert plan(submitted, 100.0).waits[0].reason == answer.reason


def test_why_answers_for_a_claim_in_its_place_in_the_queue(snapshot: Snapshot) -> None:
    decided = plan(replace(snapshot, asks=(ask("x", 1, gpus=16, machines=2), ask("y", 2, gpus=16, machines=2))), 0.0)
    assert [why(decided, claim).position for claim in (2, 1)] == [2, 1]
    assert why(decided, 3) is None


def test_why_of_a_claim_that_can_start_says_so(snapshot: Snapshot) -> None:
    decided = plan(replace(snapshot, asks=(ask("x", 1, gpus=8, machines=1),)), 0.0)
    assert why(decided, 1).reason == "Can start now on one machine (machine:a0)"


def test_a_run_that_ends_before_the_first_in_line_needs_the_room_can_start_now(snapshot: Snapshot) -> None:
    """A run that is asked about is asked about with its time limit."""
    first = replace(draw(FLEET, {"a": {"ends_at": 700.0}}), asks=(ask("x", 1, gpus=16, machines=2),))
    for limit, kind in ((600, Grant), (601, Wait), (None, Wait)):
        asked, new = asking(first, need(gpus=8, machines=1), 0, 100.0, limit)
        assert isinstance(answer_to(plan(asked, 100.0), new.claim), kind)


def test_a_group_of_size_zero_ends_the_pass_all_the_same() -> None:
    """SZ14: nothing is asked, so nothing is refused; the run is placed and holds no GPU."""
    decided = plan(replace(draw(FLEET), asks=(ask("z", 1, gpus=0),)), 0.0)
    assert decided.grants[0].members[0].gpu_mask == 0


def test_an_empty_cluster_says_that_it_has_nothing() -> None:
    decided = plan(Snapshot("lab-a", (), asks=(ask("n", 1, gpus=8, machines=1),)), 0.0)
    assert decided.waits[0].reason == "Needs 1 machine with 8 free GPUs; lab-a has 0"


def test_a_reservation_of_a_claim_that_is_gone_holds_nothing() -> None:
    """PR4, the other side: a preemptor that withdraws leaves its room to the queue."""
    fleet = draw("fabric f\nleaf l\n  a0 llllllll\n")
    first = replace(fleet, asks=(ask("h", 1, gpus=8, machines=1, priority=5),))
    stopped = applied(first, plan(first, 0.0), victims_gone=True)
    other = replace(stopped, asks=(ask("o", 2, gpus=8, machines=1),))
    assert [grant.claim for grant in plan(other, 0.0).grants] == [2]


def test_an_older_equal_claim_does_not_take_what_was_freed_for_another() -> None:
    """PR1: the freed room carries the preemptor's name until it is placed."""
    fleet = draw("fabric f\nleaf l\n  a0 llllllll\n  a1 pppppppp\n", {"p": {"preemptible": False}})
    older = ask("o", 1, gpus=8, machines=1, priority=5, models=["A100"], at=0.0)
    preemptor = ask("h", 2, gpus=8, machines=1, priority=5, at=1.0)
    snapshot = replace(fleet, asks=(older, preemptor))
    stopped = applied(snapshot, plan(snapshot, 0.0), victims_gone=True)
    changed = replace(stopped, asks=(ask("o", 1, gpus=8, machines=1, priority=5, at=0.0), preemptor))
    assert [grant.claim for grant in plan(changed, 0.0).grants] == [2]


def test_a_higher_claim_takes_kept_room_rather_than_stop_more_runs() -> None:
    fleet = draw("fabric f\nleaf l\n  a0 llllllll\n  a1 mmmmmmmm\n")
    first = replace(fleet, asks=(ask("h", 1, gpus=8, machines=1, priority=5),))
    stopping = applied(first, plan(first, 0.0))
    urgent = replace(stopping, asks=(*stopping.asks, ask("u", 2, gpus=8, machines=1, priority=9)))
    decided = plan(urgent, 0.0)
    assert {eviction.for_run for eviction in decided.evictions} == {"h"}
    assert [(row.claim, row.machine) for row in decided.reserved] == [(2, "a0"), (1, "a1")]
