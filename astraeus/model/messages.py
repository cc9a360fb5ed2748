"""Messages to a run's workflow: written to the outbox with the decision they tell of, delivered at least once."""

from typing import Literal

from astraeus.model.machine import Lenient

MessageKind = Literal[
    "placed",
    "arrived",
    "failed",
    "machine_lost",
    "ended",
    "gone",
    "preempt",
    "cancel",
    "delete",
    "hold",
    "release",
    "restart",
]
"""placed: the claim was granted. arrived: every member is at the barrier. failed: the first genuine failure.
ended: every member exited 0 by itself. gone: no member has a live process any more. The rest are orders."""

SIGNAL_OF: dict[str, str] = {
    "placed": "placed",
    "preempt": "preempt",
    "cancel": "cancel",
    "delete": "cancel",
    "machine_lost": "machine_lost",
    "arrived": "gang",
    "failed": "gang",
    "ended": "gang",
    "gone": "gang",
    "hold": "order",
    "release": "order",
    "restart": "order",
}
"""The signal that carries each kind."""


HIGHER_PRIORITY = "higher priority"
"""Why of an eviction by the scheduler; its `who` is the run that gets the room. A person's own words differ."""


class RunMessage(Lenient):
    """One message; `id` is its outbox row and drops repeats, `attempt` fences it (None: whatever runs now)."""

    id: int
    kind: MessageKind
    attempt: int | None = None
    who: str | None = None
    why: str | None = None


class AttemptRef(Lenient):
    """One attempt of one run: what everything that belongs to it is keyed by."""

    run_uid: str
    attempt: int


class Situation(Lenient):
    """Where an attempt stands, read from the ledger in one go; what a lost message would have said.

    Times are seconds since the epoch by the ledger's clock. `failure` is the earliest genuine failure, in
    words (`resnet-64gpu-5 exited with code 1`), `cause` its kind. `decided_at` is when success, failure or an order to
    stop made the end certain, `ended_at` when its last member had ended, once all are gone. `missing` names members
    not yet at the barrier, `undead` those that were given up on, with their machines.
    """

    now: float
    claimed: bool = True
    """False when the ledger knows no claim of the attempt, as after it was restored from an older copy."""
    granted_at: float | None = None
    size: int = 0
    arrived: int = 0
    first_arrived_at: float | None = None
    all_arrived: bool = False
    gates_opened_at: float | None = None
    decided_at: float | None = None
    ended_at: float | None = None
    failure: str | None = None
    cause: str | None = None
    failure_machine: str | None = None
    succeeded: bool = False
    gone: bool = True
    missing: list[str] = []
    lingering: list[str] = []
    undead: list[str] = []
    grace_seconds: float = 30.0
    intent: str | None = None
    intent_by: str | None = None
    intent_why: str | None = None
    released: bool = False
