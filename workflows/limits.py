"""The clocks of an attempt, as pure functions of what the ledger says: the barrier's limits and the time limit."""

from datetime import timedelta

from astraeus.model.messages import Situation
from workflows.contracts import RunLife

ALIVE = timedelta(seconds=5)
"""Every activity beats while it runs, so one whose worker process died is tried again after this."""

BARRIER_SECONDS = 900.0
PLACEMENT_SECONDS = 1800.0


def barrier_left(situation: Situation) -> float:
    """Seconds until the barrier times out: 15 minutes from the first arrival, 30 from the placement."""
    limit = (situation.granted_at or situation.now) + PLACEMENT_SECONDS
    if situation.first_arrived_at is not None:
        limit = min(limit, situation.first_arrived_at + BARRIER_SECONDS)
    return limit - situation.now


def time_limit_left(life: RunLife, situation: Situation) -> float:
    """Seconds of running left to the attempt, counted from the opening of its gates; infinite without a limit."""
    if life.time_limit_seconds is None or situation.gates_opened_at is None:
        return float("inf")
    return situation.gates_opened_at + life.time_limit_seconds - situation.now
