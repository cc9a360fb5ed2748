"""A run, its workers, attempts and events, as the API returns them."""

from datetime import datetime
from typing import Any, Literal

from astraeus.model.machine import Lenient
from astraeus.model.network import NetworkPlace

RunState = Literal["Pending", "Starting", "Running", "Stopping", "Succeeded", "Failed", "Cancelled"]
FINAL: frozenset[str] = frozenset({"Succeeded", "Failed", "Cancelled"})

WorkerState = Literal["Waiting", "Preparing", "Ready", "Running", "Stopping", "Exited", "Failed", "Lost"]
"""Ready has arrived at the barrier, Exited ended by itself or was stopped, Failed could not start.

Lost went with its machine.
"""

Cause = Literal[
    "exited",
    "oom",
    "start_failed",
    "machine_lost",
    "barrier_timeout",
    "preempted",
    "drained",
    "restarted",
    "never_started",
    "time_limit",
    "cancelled",
    "succeeded",
    "held",
]
"""Why an attempt ended. The first five are genuine failures and are charged; see design of the restart budget."""

CHARGED: frozenset[str] = frozenset({"exited", "oom", "start_failed", "machine_lost", "barrier_timeout"})


class WorkerView(Lenient):
    """One worker, of the latest attempt. A run that starts `Independent` shows a `reason` for each of its workers,
    also for those without a machine.
    """

    name: str
    rank: int
    attempt: int
    state: WorkerState
    machine: str | None
    gpus: list[int]
    leaf: str | None = None
    reason: str | None = None
    exit_code: int | None = None
    signal: int | None = None
    error: str | None = None
    arrived_at: datetime | None = None
    started_at: datetime | None = None
    ended_at: datetime | None = None


class Restarts(Lenient):
    """The restart budget as users see it; None stands for unlimited."""

    budget: int | None
    left: int | None
    next_earned_at: datetime | None = None


class RunView(Lenient):
    """A run as `GET /runs/{name}` returns it."""

    metadata: dict[str, Any]
    spec: dict[str, Any]
    cluster: str
    state: RunState
    reason: str
    network: NetworkPlace | None = None
    attempt: int
    restarts: Restarts
    workers: list[WorkerView] = []
    held: bool = False
    submitted_at: datetime
    started_at: datetime | None = None
    finished_at: datetime | None = None


class AttemptView(Lenient):
    """One placing and start of the gang: how it ended, whom it is blamed on, and whether it was charged.

    `worker` is whose it was, in a run that starts `Independent`.
    """

    attempt: int
    worker: str | None = None
    network: NetworkPlace | None = None
    machines: list[str] = []
    entered_at: datetime
    placed_at: datetime | None = None
    running_at: datetime | None = None
    ended_at: datetime | None = None
    cause: Cause | None = None
    detail: str | None = None
    charged: bool = False


class EventView(Lenient):
    """One thing that happened; `actor` is a token's name, or the part of Astraeus that decided it."""

    id: int
    at: datetime
    kind: str
    run: str | None = None
    run_uid: str | None = None
    worker: str | None = None
    attempt: int | None = None
    actor: str
    message: str
