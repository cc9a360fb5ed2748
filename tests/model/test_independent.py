"""What a run that starts `Independent` is by its workers, and what each of them asks for."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from astraeus.model.independent import WORKERS_MOST, counted, one_worker, standing, worker_uid
from astraeus.model.run import FINAL, RunState
from astraeus.model.spec import GpuRequests, Resources

STATES = RunState.__args__  # type: ignore[attr-defined]
RULES = ("RestartWorker", "RestartJob", "Fail")
COUNTS = st.dictionaries(st.sampled_from(STATES), st.integers(0, 5)).filter(lambda counts: sum(counts.values()) > 0)
REASONS = {"Pending": "no room", "Failed": "sweep-1 exited with code 1", "Cancelled": "Cancelled by ada"}


@pytest.mark.parametrize(
    ("counts", "rule", "state", "reason"),
    [
        ({"Pending": 8}, "RestartWorker", "Pending", "8 workers waiting: no room"),
        ({"Pending": 1}, "RestartWorker", "Pending", "1 worker waiting: no room"),
        ({"Running": 5, "Pending": 3}, "Fail", "Running", "5 of 8 workers running; 3 waiting: no room"),
        ({"Running": 8}, "RestartWorker", "Running", "8 workers running"),
        (
            {"Running": 1, "Starting": 2, "Succeeded": 3, "Failed": 1, "Pending": 1},
            "RestartWorker",
            "Running",
            "1 of 8 workers running; 2 starting; 3 succeeded; 1 failed; 1 waiting: no room",
        ),
        ({"Succeeded": 3, "Pending": 5}, "RestartWorker", "Pending", "3 of 8 workers succeeded; 5 waiting: no room"),
        ({"Stopping": 1, "Cancelled": 7}, "Fail", "Stopping", "1 of 8 workers stopping; 7 cancelled"),
        ({"Succeeded": 8}, "RestartWorker", "Succeeded", "All 8 workers exited with code 0"),
        ({"Succeeded": 1}, "RestartWorker", "Succeeded", "The worker exited with code 0"),
        ({"Succeeded": 7, "Failed": 1}, "RestartWorker", "Failed", f"1 of 8 workers failed: {REASONS['Failed']}"),
        ({"Failed": 1, "Cancelled": 1}, "RestartWorker", "Cancelled", "Cancelled by ada"),
        ({"Failed": 1, "Cancelled": 7}, "Fail", "Failed", REASONS["Failed"]),
        ({"Failed": 1, "Cancelled": 7}, "RestartJob", "Failed", REASONS["Failed"]),
        ({"Succeeded": 1, "Cancelled": 7}, "RestartJob", "Cancelled", "Cancelled by ada"),
    ],
)
def test_a_run_is_what_its_workers_are(counts: dict[str, int], rule: str, state: str, reason: str) -> None:
    assert standing(counts, rule, REASONS) == (state, reason)


@given(COUNTS, st.sampled_from(RULES))
def test_a_run_is_over_exactly_when_all_its_workers_are(counts: dict[str, int], rule: str) -> None:
    state, reason = standing(counts, rule, REASONS)
    assert (state in FINAL) == all(known in FINAL for known, count in counts.items() if count)
    assert reason


@given(COUNTS, st.sampled_from(RULES))
def test_a_run_succeeds_only_with_every_worker(counts: dict[str, int], rule: str) -> None:
    succeeded = counts.get("Succeeded", 0) == sum(counts.values())
    assert (standing(counts, rule, REASONS)[0] == "Succeeded") == succeeded


def test_counts_say_how_many_of_how_many() -> None:
    assert counted([(5, "can start now"), (3, "would wait")], "no room") == (
        "5 of 8 workers can start now; 3 would wait: no room"
    )
    assert counted([(0, "can start now"), (2, "would wait")], "no room") == "2 workers would wait: no room"


def test_each_worker_asks_for_one_machine_and_its_even_part() -> None:
    whole = Resources(machines=8, gpu_requests=GpuRequests(count=32, models=["H100"]))
    one = one_worker(whole, 8)
    assert (one.machines, one.gpu_requests.count, one.gpu_requests.models) == (1, 4, ["H100"])
    assert one_worker(Resources(machines=3), 3).gpu_requests.count == 0


def test_workers_are_known_by_uids_in_the_order_of_their_ranks_and_by_no_other() -> None:
    uid = "0123456789abcdef" * 2
    uids = [worker_uid(uid, rank) for rank in range(WORKERS_MOST)]
    assert uids == sorted(set(uids))
    assert {len(one) for one in uids} == {32}
    assert all(one.isalnum() and "w" in one for one in uids)
