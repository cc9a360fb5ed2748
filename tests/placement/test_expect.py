"""When waiting claims start at the latest, as far as time limits tell: the planner played into the future."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from placement.drawing import ask, draw
from placement.fleets import snapshots

from astraeus.placement.expect import expected
from astraeus.placement.planner import plan
from astraeus.placement.types import Snapshot
from astraeus.simulator.engine import Simulation
from astraeus.simulator.trace import Job

NOW = 10.0
FLEET = """
fabric f
leaf l0
  a0 aaaaaaaa
  a1 bbbbbbbb
leaf l1
  b0 cccccccc
"""
ENDS = {"a": {"ends_at": 100.0}, "b": {"ends_at": 400.0}, "c": {}}

often = settings(
    max_examples=50,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example],
)


def starts(snapshot: Snapshot, **values: Any) -> dict[int, float]:
    return dict(expected(snapshot, NOW, **values).starts)


def whole(count: int, at: int, limit: int | None = None, **values: Any) -> Any:
    return ask(f"q{at}", at, gpus=8 * count, machines=count, limit=limit, **values)


def test_everyone_whose_room_has_time_limits_is_told_a_time() -> None:
    world = replace(draw(FLEET, ENDS), asks=(whole(2, 1, limit=50), whole(1, 2), whole(1, 3, limit=20), whole(1, 4)))
    assert starts(world) == {1: 400.0, 3: 100.0, 2: 450.0, 4: 450.0}


def test_a_start_that_hangs_on_a_run_without_a_limit_is_unknown_and_said_to_be_so_for_good() -> None:
    world = replace(draw(FLEET, ENDS), asks=(whole(3, 1), whole(1, 2, limit=20)))
    answer = expected(world, NOW)
    assert (answer.starts, answer.until) == ({2: 100.0}, None)
    assert answer.words_of(1, NOW) == "unknown: no time limit brings it room"


def test_a_claim_behind_one_without_a_limit_gets_only_what_that_one_leaves() -> None:
    world = replace(draw(FLEET, ENDS), asks=(whole(1, 1), whole(1, 2), whole(1, 3)))
    assert starts(world) == {1: 100.0, 2: 400.0}


def test_what_is_past_its_limit_or_being_stopped_is_gone_at_once() -> None:
    fleet = draw(FLEET, {"a": {"ends_at": 5.0}, "b": {"stopping": True}, "c": {}})
    assert starts(replace(fleet, asks=(whole(1, 1), whole(1, 2), whole(1, 3)))) == {1: NOW, 2: NOW}


def test_a_run_that_is_starting_ends_by_its_limit_from_now() -> None:
    """Its end is not known before its members run together."""
    fleet = draw(FLEET, {"a": {"time_limit_seconds": 30}, "b": {}, "c": {}})
    assert starts(replace(fleet, asks=(whole(1, 1), whole(1, 2)))) == {1: NOW + 30}


def test_the_end_of_patience_is_a_time_at_which_something_starts() -> None:
    fleet = draw("fabric f\nleaf l0\n  a0 ........\n  a1 aaaaaaaa\nleaf l1\n  b0 ........\n  b1 bbbbbbbb\n")
    assert starts(replace(fleet, asks=(whole(2, 1, patience=70),))) == {1: 70.0}


def test_a_run_that_is_stopped_for_another_waits_again_in_its_place() -> None:
    fleet = draw("fabric f\nleaf l\n  a0 llllllll\n", {"l": {"priority": 1, "ends_at": 50.0, "time_limit_seconds": 50}})
    high, low = whole(1, 1, limit=30, priority=5), whole(1, 2, limit=30)
    assert starts(replace(fleet, asks=(high, low))) == {1: NOW, 2: NOW + 30 + 50}


@pytest.mark.parametrize(("preemptible", "start"), [(True, 70.0), (False, 110.0)])
def test_a_run_that_will_have_started_is_stopped_for_another_only_if_it_may_be(preemptible: bool, start: float) -> None:
    """What a patient gang leaves free goes to others; when its patience ends, it stops whom it may."""
    drawn = "fabric f\nleaf l0\n  a0 ........\n  a1 aaaaaaaa\nleaf l1\n  b0 ........\n  b1 bbbbbbbb\n"
    fleet = draw(drawn, {name: {"preemptible": False} for name in "ab"})
    low = tuple(replace(whole(1, at, limit=100), preemptible=preemptible) for at in (2, 3))
    assert starts(replace(fleet, asks=(whole(2, 1, patience=70, priority=5), *low)))[1] == start


def test_how_far_was_looked_is_told() -> None:
    queue = tuple(whole(1, number + 1, limit=1000) for number in range(6))
    world = replace(draw(FLEET, {"a": {"ends_at": 100.0}, "b": {}, "c": {}}), asks=queue)
    short = expected(world, NOW, steps=3)
    assert (short.starts, len(short.asked), short.until) == ({1: 100.0, 2: 1100.0}, 6, 2100.0)
    few = expected(world, NOW, claims=2)
    assert (few.starts, few.asked, few.until) == ({1: 100.0, 2: 1100.0}, {1, 2}, None)
    assert [few.words_of(1, NOW), few.words_of(2, NOW), few.words_of(3, NOW), short.words_of(3, NOW)] == [
        "in 90 s at the latest, by time limits",
        "in 19 min at the latest, by time limits",
        "unknown: it is looked for of the first 2 in line",
        "unknown: not in the 35 min that were looked ahead",
    ]


def test_asked_about_one_claim_it_looks_no_further_than_its_start() -> None:
    queue = tuple(whole(1, number + 1, limit=1000) for number in range(6))
    world = replace(draw(FLEET, {"a": {"ends_at": 100.0}, "b": {}, "c": {}}), asks=queue)
    assert starts(world, only=2) == {1: 100.0, 2: 1100.0}


@often
@given(snapshots())
def test_what_the_pass_places_now_starts_now(world: Snapshot) -> None:
    placed = {grant.claim for grant in plan(world, NOW).grants}
    found = starts(world)
    assert placed <= {claim for claim, at in found.items() if at == NOW}


@often
@given(snapshots(), st.integers(1, 12))
def test_it_ends_and_answers_for_nobody_but_who_waits_and_no_time_that_is_over(world: Snapshot, steps: int) -> None:
    found = expected(world, NOW, steps=steps)
    assert found.starts.keys() <= {one.claim for one in world.asks}
    assert all(at >= NOW for at in found.starts.values())
    assert found.until is None or found.until >= NOW


@often
@given(snapshots(patient=False))
def test_the_first_in_line_starts_by_the_time_that_the_pass_tells(world: Snapshot) -> None:
    world = replace(world, holdings=tuple(replace(held, preemptible=False) for held in world.holdings))
    found = starts(world)
    for wait in plan(world, NOW).waits:
        if wait.starts_by is not None:
            assert found[wait.claim] <= wait.starts_by


@st.composite
def traces(draw: Any) -> list[Job]:
    """Jobs that all come at once and run to their limits."""
    sizes = draw(st.lists(st.tuples(st.sampled_from((1, 2, 4, 8, 16, 24)), st.integers(1, 9)), min_size=1, max_size=12))
    return [Job(0.0, gpus, float(limit * 10), 0, limit * 10) for gpus, limit in sizes]


@often
@given(traces())
def test_runs_that_stay_until_their_limits_start_exactly_then_in_the_simulator(jobs: list[Job]) -> None:
    fleet = draw(FLEET.replace("a" * 8, "." * 8).replace("b" * 8, "." * 8).replace("c" * 8, "." * 8)).machines
    queue = [
        ask(f"job-{i}", i + 1, gpus=job.gpus, machines=max(1, job.gpus // 8), at=0.0, limit=job.limit)
        for i, job in enumerate(jobs)
    ]
    found = expected(Snapshot("simulated", fleet, asks=tuple(queue)), 0.0).starts
    played = [(started.job, started.waited) for started in Simulation(fleet, jobs).run().starts]
    assert sorted(played, key=repr) == sorted([(jobs[claim - 1], at) for claim, at in found.items()], key=repr)


@often
@given(st.lists(st.integers(1, 30), min_size=1, max_size=10), st.integers(1, 3))
def test_more_machines_make_no_run_of_one_machine_later(limits: list[int], more: int) -> None:
    queue = tuple(whole(1, number + 1, limit=limit) for number, limit in enumerate(limits))
    world = replace(draw(FLEET, {"a": {"ends_at": 100.0}, "b": {"ends_at": 400.0}, "c": {"ends_at": 55.0}}), asks=queue)
    idle = draw("fabric f\nleaf l2\n" + "".join(f"  c{i} ........\n" for i in range(more))).machines
    before, after = starts(world), starts(replace(world, machines=world.machines + idle))
    assert after.keys() == before.keys()
    assert all(after[claim] <= at for claim, at in before.items())


@pytest.mark.parametrize("steps", [4, 8, 16])
def test_ends_that_lie_close_together_are_played_at_the_last_of_them(steps: int) -> None:
    drawn = "fabric f\nleaf l\n" + "".join(f"  m{i:02} {chr(97 + i) * 8}\n" for i in range(20))
    fleet = draw(drawn, {chr(97 + i): {"ends_at": 1000.0 + 7 * i} for i in range(20)})
    world = replace(fleet, asks=tuple(whole(1, number + 1) for number in range(20)))
    exact, rough = starts(world), expected(world, NOW, steps=steps)
    assert exact == {number + 1: 1000.0 + 7 * number for number in range(20)}
    assert all(exact[claim] <= at <= exact[claim] + 0.1 * (exact[claim] - NOW) for claim, at in rough.starts.items())
    assert len(rough.starts) == 20
    assert rough.starts[1] == plan(world, NOW).waits[0].starts_by == 1000.0


def test_a_run_that_is_stopped_twice_started_when_it_did() -> None:
    drawn = draw(
        "fabric f\nleaf k\n  m0 ........\n  m1 nnnnnnnn\nleaf l\n  m2 ........\n  m3 oooooooo\n",
        {"n": {"preemptible": False}, "o": {"preemptible": False}},
    )
    asks = (
        ask("low", 1, gpus=16, machines=2, limit=5000),
        ask("h1", 2, gpus=16, machines=2, limit=50, priority=5, patience=100),
        ask("h2", 3, gpus=16, machines=2, limit=50, priority=5, patience=1000),
    )
    assert expected(replace(drawn, asks=asks), 0.0).starts == {1: 0.0, 2: 100.0, 3: 1000.0}
