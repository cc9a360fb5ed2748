"""Questions to the planner: why a claim waits, and what would happen to a run that is not yet submitted."""

from dataclasses import replace

from astraeus.model.spec import Resources
from astraeus.placement.planner import plan
from astraeus.placement.types import Ask, Grant, Snapshot, Wait

WHAT_IF_CLAIM = 2**62
"""The claim number of a run that is only asked about; after all real ones."""


def why(snapshot: Snapshot, ask: Ask, now: float) -> Wait:
    """Why a claim waits; for one that the next pass places, that it does."""
    others = tuple(other for other in snapshot.asks if other.claim != ask.claim)
    answer = _answer(replace(snapshot, asks=(*others, ask)), ask.claim, now)
    if isinstance(answer, Wait):
        return answer
    return Wait(ask.claim, ask.run_uid, f"Can start now on {answer.place.words} ({answer.place.network})")


def what_if(snapshot: Snapshot, resources: Resources, priority: int, now: float) -> Grant | Wait:
    """What the next pass would do with a run of these resources that was submitted now."""
    ask = Ask(
        claim=WHAT_IF_CLAIM,
        run_uid="",
        run_name="this run",
        workspace="",
        attempt=1,
        resources=resources,
        priority=priority,
        submitted_at=now,
        patience_until=now + resources.topology.patience_seconds,
    )
    return _answer(replace(snapshot, asks=(*snapshot.asks, ask)), ask.claim, now)


def _answer(snapshot: Snapshot, claim: int, now: float) -> Grant | Wait:
    decided = plan(snapshot, now)
    answers: tuple[Grant | Wait, ...] = (*decided.grants, *decided.waits)
    return next(answer for answer in answers if answer.claim == claim)
