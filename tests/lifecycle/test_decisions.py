"""What an attempt's end means, as a pure function."""

from astraeus.model.messages import Situation
from workflows.contracts import RunLife
from workflows.decide import outcome


def life(**facts: object) -> RunLife:
    known = {"run_uid": "u1", "workspace": "acme/vision", "name": "a", "cluster": "lab-a"}
    return RunLife.model_validate(known | facts)


def test_the_pause_before_another_try_to_start_stays_bounded_however_often() -> None:
    again = outcome(life(free_restarts={"never_started": 5000}), Situation(now=0.0, intent="never_started"))
    assert (again.pause_seconds, again.charged, again.phase) == (60.0, False, "backoff")


def test_only_running_earns_and_not_the_time_it_takes_to_stop() -> None:
    stopped = Situation(now=2000.0, gates_opened_at=0.0, decided_at=599.0, intent="preempted", intent_by="bob")
    assert outcome(life(charged=3), stopped).budget.charged == 3
    assert outcome(life(charged=3), stopped.model_copy(update={"decided_at": 600.0})).budget.charged == 2
