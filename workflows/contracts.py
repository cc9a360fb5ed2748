"""The messages between workflows and activities, and the stubs by which workflows call activities.

A stub carries the name and the types of an activity; the effect behind it is in `activities/`. Payloads carry
ids and small values, never specs, configs or environments.
"""

from typing import Literal

from pydantic import BaseModel, ConfigDict
from temporalio import activity

from astraeus.model.messages import AttemptRef, RunMessage, Situation


class Message(BaseModel):
    """Base of what travels through Temporal: unknown fields are ignored, so that older code reads newer histories."""

    model_config = ConfigDict(extra="ignore")


Phase = Literal["queue", "start", "run", "stop", "close", "backoff", "held", "over"]


class StopOrder(Message):
    """Stop an attempt's members; the intent (`cause`, by whom and why) is recorded before the first signal.

    `cause` is None when the attempt ended by a failure of its own: then there is no intent to record.
    """

    ref: AttemptRef
    cause: str | None
    who: str
    why: str | None = None
    failure: str | None = None


class RunLife(Message):
    """Everything RunWorkflow knows; one value, passed on when it continues as new.

    `phase` is where the state machine stands. Times are seconds since the epoch on the workflow's clock.
    `charged` and `earned_seconds` are the restart budget's. `heeded` is the message of the last hold or release.
    `alone` is for one worker of a run that starts `Independent`: such a worker lives a run's life of its own.
    """

    run_uid: str
    workspace: str
    name: str
    cluster: str
    priority: int = 0
    patience_seconds: int = 0
    time_limit_seconds: int | None = None
    failure_rule: str = "RestartJob"
    alone: bool = False
    budget_size: int | None = 10
    charged: int = 0
    earned_seconds: float = 0.0
    free_restarts: dict[str, int] = {}
    phase: Phase = "queue"
    attempt: int = 0
    avoid: list[str] = []
    headline: str | None = None
    held_by: str | None = None
    heeded: int = 0
    wait_until: float | None = None
    undead: list[str] = []
    stop: StopOrder | None = None
    situation: Situation | None = None
    unread: list[RunMessage] = []
    seen: list[int] = []


class ClaimOrder(Message):
    """Enter a claim for an attempt. `headline` is the reason to keep showing until it is placed."""

    ref: AttemptRef
    cluster: str
    patience_seconds: int
    avoid: list[str] = []
    headline: str | None = None


class Closing(Message):
    """The end of an attempt: room released, cause and charge recorded, and what the run is next."""

    ref: AttemptRef
    cluster: str
    cause: str
    detail: str
    charged: bool
    state: str
    reason: str
    budget_left: int | None
    next_earned_seconds: float | None = None
    actor: str = "scheduler"


class RunNote(Message):
    """A state and reason to show, between attempts or at the very end."""

    run_uid: str
    state: str
    reason: str
    held: bool = False
    actor: str = "astraeus"


class GateOrder(Message):
    """Open an attempt's gates; the budget is shown with the run from here on."""

    ref: AttemptRef
    budget_left: int | None
    next_earned_seconds: float | None = None


class PassOrder(Message):
    """Ask for one scheduling pass over a cluster."""

    cluster: str


class PassResult(Message):
    """What a pass did; `next_change_seconds` is when a pass would decide otherwise by itself, None: never."""

    granted: int = 0
    waiting: int = 0
    next_change_seconds: float | None = None


@activity.defn
async def enter_claim(order: ClaimOrder) -> bool:
    """Write the attempt's claim, idempotent by (run uid, attempt), and wake the scheduler; whether it is granted."""
    raise NotImplementedError


@activity.defn
async def widen_claim(ref: AttemptRef) -> None:
    """End the claim's patience and wake the scheduler."""
    raise NotImplementedError


@activity.defn
async def start_workers(ref: AttemptRef) -> Situation:
    """Ask the executor for the attempt's workers, held at their gates."""
    raise NotImplementedError


@activity.defn
async def open_gates(order: GateOrder) -> Situation:
    """Let every member go together; the run is Running from here."""
    raise NotImplementedError


@activity.defn
async def stop_gang(order: StopOrder) -> Situation:
    """Record the intent, then have every member stopped. A success or failure recorded earlier stands."""
    raise NotImplementedError


@activity.defn
async def gang_situation(ref: AttemptRef) -> Situation:
    """Read where the attempt stands, in case a message was lost."""
    raise NotImplementedError


@activity.defn
async def disown_undead(ref: AttemptRef) -> list[str]:
    """Give up on members that survive SIGKILL, and keep their machines out of new work; names all of the attempt."""
    raise NotImplementedError


@activity.defn
async def close_attempt(closing: Closing) -> None:
    """Release the attempt's room, record its end, and wake the scheduler."""
    raise NotImplementedError


@activity.defn
async def note_run(note: RunNote) -> None:
    """Show a state and reason."""
    raise NotImplementedError


@activity.defn
async def scheduling_pass(order: PassOrder) -> PassResult:
    """Plan on a fresh snapshot, commit the plan in one transaction, tell the runs it concerns."""
    raise NotImplementedError


@activity.defn
async def watch_cluster(cluster: str) -> None:
    """Watch leases, deliver what the outbox still holds, start workflows that are missing; returns after a while."""
    raise NotImplementedError
