"""The agent protocol: reports up, the full desired state down, the attempt number on every word."""

from typing import Literal

from astraeus.model.machine import Lenient, MachineFacts
from astraeus.model.spec import ConfigFile

HEARTBEAT_SECONDS = 2.0
LOST_AFTER_SECONDS = 15.0
MISSED_BEATS = 5
KILLED_SECONDS = 60.0
"""A process that lives for so long after SIGKILL is given up on."""

ReportState = Literal["preparing", "arrived", "running", "exited", "failed"]
"""A worker only moves forward through these; `failed` ended before its command ran."""

Desired = Literal["hold", "run", "stop"]
"""hold: be ready at the gate; run: open the gate; stop: SIGTERM, grace, SIGKILL."""


class WorkerReport(Lenient):
    """What an agent saw of one worker. Ages are in seconds before the report was sent, by the machine's own clock."""

    run_uid: str
    attempt: int
    rank: int
    machine: str
    state: ReportState
    exit_code: int | None = None
    signal: int | None = None
    oom: bool = False
    error: str | None = None
    age_seconds: float = 0.0
    gate_opened_at: float | None = None
    """Seconds since the epoch, by the machine's clock; for measuring only."""


class MachineReport(Lenient):
    """One machine's part of a sync: its lease, the workers alive on it, and its facts when the server lacks them."""

    name: str
    boot_id: str
    facts: MachineFacts | None = None
    live: list[str] = []
    """Keys `<run uid>/<attempt>/<rank>` of all workers whose processes may be alive."""


class SyncRequest(Lenient):
    """One report of an agent, which is also the heartbeat of its machines.

    `seen` is the version of the desired state the agent acts on; the answer is held back up to `wait_seconds`
    while the server has nothing newer. The first sync of a session has no `seen`: it takes its machines over from
    older sessions, whose syncs are refused from then on. A worker is listed in `live` from before its process is
    made until the whole process group is dead; what `seen` does not ask for is never started. `seen` is empty when
    the agent holds the machines but asks for their whole desired state again.
    """

    session: str
    cluster: str | None = None
    """The cluster whose machines these are; None leaves it to the token."""
    machines: list[MachineReport]
    workers: list[WorkerReport] = []
    seen: str | None = None
    wait_seconds: float = 0.0
    report_only: bool = False
    """News of some of the session's machines between two beats: the agent ignores `workers` in the answer."""


class DesiredWorker(Lenient):
    """One worker that must exist on a machine. What it runs is in the attempt's `Launch`."""

    run_uid: str
    attempt: int
    rank: int
    machine: str
    name: str
    desired: Desired
    grace_seconds: float
    env: dict[str, str]
    """The injected variables of this worker; the user's own values win over them."""
    gpus: list[int] = []

    @property
    def key(self) -> str:
        """`<run uid>/<attempt>/<rank>`."""
        return f"{self.run_uid}/{self.attempt}/{self.rank}"


class DriveBind(Lenient):
    """A drive as a launch names it; `shared` drives are one directory for all machines of the cluster."""

    workspace: str
    name: str
    kind: Literal["machine", "shared"]
    path: str | None = None
    """The directory on the machine, when the drive names one; else the agent keeps one itself."""
    mount_path: str
    read_only: bool


class Launch(Lenient):
    """What every worker of an attempt runs; fetched once, never part of a report or a history. Holds secrets."""

    run_uid: str
    attempt: int
    run_name: str
    workspace: str
    image: str
    command: str
    args: list[str]
    env: dict[str, str]
    drives: list[DriveBind]
    configs: list[ConfigFile]
    memory_bytes: int = 0


class LogRequest(Lenient):
    """A reader wants a worker's log: the agent POSTs the bytes to `/agent/v1/logs/{id}` on `reply_to`.

    `tail` is how many last lines to begin with (None: all); `follow` sends until the worker has ended.
    """

    id: str
    run_uid: str
    attempt: int
    rank: int
    machine: str
    tail: int | None = None
    follow: bool = False
    reply_to: str


class SyncResponse(Lenient):
    """The full desired state of the machines asked for, or `workers: null` when `seen` is still right."""

    version: str
    workers: list[DesiredWorker] | None = None
    need_facts: list[str] = []
    logs: list[LogRequest] = []
