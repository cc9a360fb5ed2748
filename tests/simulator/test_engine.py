"""Replays whose outcome can be reckoned by hand, and what holds in all of them."""

from collections import defaultdict
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from astraeus.model.machine import FABRIC, LEAF, Nic
from astraeus.model.network import Rung
from astraeus.placement.types import Machine
from astraeus.simulator.engine import Options, Simulation
from astraeus.simulator.outcome import Outcome, fewest_leaves, lasting, quantile
from astraeus.simulator.trace import Job, generate

PORTS = tuple(Nic(device=f"mlx5_{i}", rail=i, gbps=400) for i in range(8))


def fleet(machines: int, leaf: int = 4) -> tuple[Machine, ...]:
    return tuple(
        Machine(f"m-{i:02d}", 8, "H100", 96, 2**40, {LEAF: f"leaf-{i // leaf}", FABRIC: "f"}, PORTS)
        for i in range(machines)
    )


def replay(machines: int, *jobs: Job, **options: Any) -> Outcome:
    return Simulation(fleet(machines), jobs, Options(**options)).run()


def test_one_after_the_other() -> None:
    outcome = replay(1, Job(0, 8, 100), Job(10, 8, 50), Job(200, 8, 10))
    assert [(start.job.submit, start.waited) for start in outcome.starts] == [(0, 0), (10, 90), (200, 0)]
    assert (outcome.finished, outcome.ended_at) == (3, 210)
    assert outcome.useful == outcome.held == 160 * 8
    assert outcome.utilisation() == pytest.approx(150 / 200)
    assert outcome.demand_met() == 1


def test_a_short_job_passes_a_gang_that_waits_and_a_long_one_does_not() -> None:
    jobs = [Job(0, 8, 100, limit=100), Job(1, 16, 50, limit=50), Job(2, 8, 30, limit=30), Job(3, 8, 500, limit=500)]
    outcome = replay(2, *jobs)
    assert {start.job.submit: start.waited + start.job.submit for start in outcome.starts} == {
        0: 0,
        1: 100,
        2: 2,
        3: 150,
    }


def test_a_limit_ends_a_job() -> None:
    outcome = replay(1, Job(0, 8, 100, limit=40), Job(0, 8, 10))
    assert outcome.ended_at == 50
    assert outcome.useful == 50 * 8


def test_a_preempted_job_keeps_what_its_checkpoint_has() -> None:
    jobs = [Job(0, 8, 100), Job(70, 8, 10, priority=5)]
    outcome = replay(1, *jobs, checkpoint_seconds=30.0, stop_seconds=5.0)
    assert outcome.preemptions == 1
    # It loses what it did since 60 s, which is 15 s with the time to stop, and goes on for 40 s at 85 s.
    assert (outcome.lost, outcome.ended_at) == (15 * 8, 125)
    assert outcome.useful == 110 * 8
    assert [start.first for start in outcome.starts] == [True, True, False]


def test_a_failed_machine_takes_its_gang_with_it_and_comes_back() -> None:
    jobs = [Job(0, 16, 4000) for _ in range(3)]
    outcome = replay(6, *jobs, failures_per_1000_days=40_000.0, repair_seconds=600.0, start_seconds=60.0, seed=3)
    assert outcome.finished == 3
    assert outcome.failures >= outcome.failed_attempts > 0
    assert outcome.useful == pytest.approx(3 * 4000 * 16)
    assert outcome.held > outcome.useful + outcome.lost
    assert 0 < outcome.goodput() < 1
    assert any(moment.down for moment in outcome.moments)


def test_room_that_no_gang_fits_in_is_demand_that_is_not_met() -> None:
    # Eight of sixteen GPUs are held for 50 s while sixteen more are waited for, then all of them for 30 s.
    outcome = replay(2, Job(0, 8, 50), Job(0, 16, 30), Job(100, 8, 10))
    assert outcome.demand_met() == pytest.approx((50 * 8 + 30 * 16) / (80 * 16))
    assert outcome.figures()["demand_met"] == pytest.approx(0.6875)


def test_what_never_fits_ends_the_replay() -> None:
    outcome = replay(2, Job(0, 999, 10), Job(0, 8, 10), Job(0, 16, 10), keep_within="machine")
    assert (outcome.too_large, outcome.finished, outcome.unplaced) == (1, 1, 1)
    assert replay(1).figures()["utilisation"] == 0


def test_what_never_fits_ends_the_replay_though_some_machine_is_always_down() -> None:
    often = {"failures_per_1000_days": 100_000.0, "repair_seconds": 86_400.0}
    outcome = replay(40, Job(0, 8 * 5, 60), Job(0, 8, 60), keep_within="leaf", **often)
    assert (outcome.finished, outcome.unplaced) == (1, 1)


def test_leaf_groups_are_compared_with_the_fewest_possible() -> None:
    assert fewest_leaves([4, 2, 4]) == [1, 1, 1, 1, 2, 2, 2, 2, 3, 3]
    # Three of each leaf are taken, so that two machines are left on two leaves.
    outcome = replay(8, Job(0, 24, 100), Job(0, 24, 100), Job(1, 16, 10))
    assert [(size, ratio) for size, ratio in outcome.leaf_ratios()] == [(3, 1), (3, 1), (2, 2)]
    assert outcome.leaf_ratio() == pytest.approx(4 / 3)
    assert (
        replay(8, Job(0, 24, 100), Job(0, 24, 100), Job(1, 16, 10), Job(1, 8, 10)).leaf_ratio(2) == outcome.leaf_ratio()
    )
    assert outcome.starts[-1].rung is Rung.FABRIC
    patient = replay(8, Job(0, 24, 100), Job(0, 24, 100), Job(1, 16, 10), patience_seconds=500)
    assert patient.leaf_ratio() == 1
    assert patient.starts[-1].waited == 99


def test_figures_in_words() -> None:
    outcome = replay(4, Job(0, 1, 7200), Job(0, 8, 10), Job(0, 12, 10), Job(1, 32, 60))
    assert [row[:2] for row in outcome.waiting_rows()] == [("1", 1), ("8", 1), ("9-64", 2)]
    assert dict(outcome.rows())["Jobs"] == "4 finished, 0 never placed, 0 larger than the fleet"
    assert [lasting(seconds) for seconds in (5, 119, 120, 7200, 200_000)] == [
        "5 s",
        "119 s",
        "2.0 min",
        "2.0 h",
        "2.3 d",
    ]
    assert quantile([1.0, 2.0, 3.0], 0.5) == 2.0


@settings(max_examples=25, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(seed=st.integers(0, 1000), failures=st.sampled_from([0.0, 2000.0]), urgent=st.sampled_from([0.0, 0.3]))
def test_every_job_ends_and_the_books_balance(seed: int, failures: float, urgent: float) -> None:
    jobs = generate(25, seed, 64, urgent)
    options = Options(failures_per_1000_days=failures, seed=seed, start_seconds=60.0)
    outcome = Simulation(fleet(8), jobs, options).run()
    assert outcome.finished == 25
    assert outcome.useful + outcome.lost <= outcome.held + 1e-6
    assert all(0 <= moment.used <= outcome.gpus for moment in outcome.moments)
    assert all(start.waited >= 0 for start in outcome.starts)
    firsts: dict[Job, int] = defaultdict(int)
    for start in outcome.starts:
        firsts[start.job] += start.first
    assert sum(firsts.values()) == 25
    again = Simulation(fleet(8), jobs, options).run()
    assert again.figures() == outcome.figures()
