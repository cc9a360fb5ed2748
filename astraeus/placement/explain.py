"""Questions to the planner: why a claim waits, and what would happen to a run that is not yet submitted."""

from dataclasses import replace

from astraeus.model.spec import Resources
from astraeus.placement.types import Ask, Grant, Plan, Snapshot, Wait

WHAT_IF_CLAIM = 2**62
"""The claim number of a run that is only asked about; after all real ones."""


def answer(decided: Plan, claim: int) -> Grant | Wait | None:
    """What a plan says of a claim; None where it knows nothing of it."""
    answers: tuple[Grant | Wait, ...] = (*decided.grants, *decided.waits)
    return next((answer for answer in answers if answer.claim == claim), None)


def why(decided: Plan, claim: int) -> Wait | None:
    """Why a claim waits; for one that the next pass places, that it does."""
    found = answer(decided, claim)
    if isinstance(found, Grant):
        return Wait(claim, found.run_uid, f"Can start now on {found.place.words} ({found.place.network})")
    return found


def asking(
    snapshot: Snapshot, resources: Resources, priority: int, now: float, limit: int | None = None, workspace: str = ""
) -> tuple[Snapshot, Ask]:
    """The snapshot with the claim of a run of these resources and this time limit, submitted now by a workspace."""
    asked, (ask,) = asking_each(snapshot, resources, 1, priority, now, limit, workspace)
    return asked, ask


def asking_each(
    snapshot: Snapshot,
    resources: Resources,
    size: int,
    priority: int,
    now: float,
    limit: int | None = None,
    workspace: str = "",
) -> tuple[Snapshot, list[Ask]]:
    """The same with the claims of so many workers of these resources that start one by one."""
    asks = [
        Ask(
            claim=WHAT_IF_CLAIM + rank,
            run_uid="",
            run_name="this run",
            workspace=workspace,
            attempt=1,
            resources=resources,
            priority=priority,
            submitted_at=now,
            patience_until=now + resources.topology.patience_seconds,
            time_limit_seconds=limit,
        )
        for rank in range(size)
    ]
    return replace(snapshot, asks=(*snapshot.asks, *asks)), asks
