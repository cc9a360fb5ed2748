"""A machine as its agent sees it: its boot, whether it has power and a network, its workers."""

import asyncio
import logging
import uuid
from dataclasses import dataclass, field
from pathlib import Path

from astraeus.agent import disk
from astraeus.agent.disk import State
from astraeus.agent.processes import Remains, Watch
from astraeus.model.agent import Desired, MachineReport, WorkerReport
from astraeus.model.machine import MachineFacts

log = logging.getLogger("astraeus.agent")


@dataclass(eq=False, slots=True)
class Worker:
    """One worker in memory; its truth is on disk."""

    run_uid: str
    attempt: int
    rank: int
    name: str
    host: "Host"
    directory: Path
    order: Desired = "hold"
    grace: float = 0.0
    state: State | None = None
    shim: tuple[int, int] | None = None
    watch: Watch | None = None
    watched: bool = False
    starting: asyncio.Task[None] | None = None
    forked: bool = False
    booted: asyncio.Event = field(default_factory=asyncio.Event)
    sent: str = ""
    fenced: bool = False
    forgotten: bool = False

    @property
    def key(self) -> str:
        """`<run uid>/<attempt>/<rank>`."""
        return f"{self.run_uid}/{self.attempt}/{self.rank}"

    @property
    def mark(self) -> str:
        """What the worker's processes carry in their environment."""
        return f"{self.key}@{self.host.directory}"

    @property
    def ended(self) -> bool:
        """Whether no process of it is left."""
        return self.state is not None and self.state.ended

    @property
    def remains(self) -> Remains | None:
        """What may be left of it without its shim; None once it has ended, or before it has a process."""
        state = self.state
        if state is None or state.ended or not state.pid or not state.pid_started:
            return None
        return Remains(state.pid, state.pid_started, self.directory, fresh=self.watched)

    def report(self, state: State, now: float) -> WorkerReport:
        """What there is to say of it in this state."""
        return WorkerReport(
            run_uid=self.run_uid,
            attempt=self.attempt,
            rank=self.rank,
            machine=self.host.name,
            state=state.state,
            exit_code=state.exit_code,
            signal=state.signal,
            oom=state.oom,
            error=state.error,
            age_seconds=max(0.0, now - state.at),
            gate_opened_at=state.gate_opened_at,
        )


class Host:
    """One machine. A virtual one remembers on disk which boot it is and whether it is off or unplugged."""

    def __init__(self, facts: MachineFacts, directory: Path, boot_id: str | None) -> None:
        self.facts = facts
        self.name = facts.name
        self.directory = directory
        self.workers: dict[str, Worker] = {}
        self.facts_due = True
        self.applied = 0
        self._fixed_boot = boot_id is not None
        self._kept = kept = disk.read_json(directory / "machine.json") or {}
        self.boot_id: str = boot_id or kept.get("boot_id") or str(uuid.uuid4())
        self.powered: bool = self._fixed_boot or kept.get("powered", True)
        self.plugged: bool = self._fixed_boot or kept.get("plugged", True)
        self.set_facts(facts)
        self._keep()

    @property
    def reachable(self) -> bool:
        """Whether anybody can hear it."""
        return self.powered and self.plugged

    def set_facts(self, facts: MachineFacts) -> None:
        """Take over facts, which are due to be told."""
        self.facts = facts.model_copy(update={"boot_id": self.boot_id})
        self.facts_due = True

    def set_power(self, powered: bool) -> None:
        """Off, or back with a new boot."""
        if powered and not self.powered:
            self.boot_id = str(uuid.uuid4())
            self.set_facts(self.facts)
        self.powered = powered
        self._keep()

    def set_plugged(self, plugged: bool) -> None:
        """Cut its network, or join it again."""
        self.plugged = plugged
        self.facts_due = True
        self._keep()

    def _keep(self) -> None:
        kept = {"boot_id": self.boot_id, "powered": self.powered, "plugged": self.plugged}
        if kept == self._kept:
            return
        try:
            self.directory.mkdir(parents=True, exist_ok=True, mode=0o700)
            disk.write_json(self.directory / "machine.json", kept)
            self._kept = kept
        except OSError as fault:
            # An agent that ended for it would lose the machine, and every gang on it.
            log.error("cannot write down how %s is; the next agent may take it for rebooted: %s", self.name, fault)

    def report(self, with_facts: bool) -> MachineReport:
        """Its part of a sync."""
        return MachineReport(
            name=self.name,
            boot_id=self.boot_id,
            facts=self.facts if with_facts else None,
            live=[key for key, worker in self.workers.items() if not worker.ended],
        )
