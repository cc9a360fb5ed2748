"""The replay: events in the order of simulated time, and a pass of the real planner after each."""

import heapq
import itertools
import random
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from astraeus.model.spec import Resources
from astraeus.placement.grant import held_by
from astraeus.placement.planner import Planner
from astraeus.placement.types import Ask, Grant, Holding, Machine, Plan, Reserved, Snapshot
from astraeus.simulator.outcome import Moment, Outcome, Started
from astraeus.simulator.trace import Job

DAY = 86_400.0


@dataclass(frozen=True, slots=True)
class Options:
    """What the replay assumes. Work since the last checkpoint is lost with an attempt, and the start takes its time."""

    failures_per_1000_days: float = 0.0
    repair_seconds: float = 4 * 3600.0
    checkpoint_seconds: float = 1800.0
    start_seconds: float = 0.0
    stop_seconds: float = 30.0
    patience_seconds: int = 0
    keep_within: str = "any"
    seed: int = 0


@dataclass(slots=True)
class _Run:
    job: Job
    name: str
    resources: Resources
    left: float
    attempt: int = 0
    claim: int = 0
    began: float | None = None
    started: bool = False


@dataclass
class Simulation:
    """A trace on a fleet. `run` it once."""

    machines: Sequence[Machine]
    jobs: Sequence[Job]
    options: Options = Options()
    now: float = 0.0
    outcome: Outcome = field(default_factory=Outcome)

    def __post_init__(self) -> None:
        self._planner = Planner()
        self._dice = random.Random(self.options.seed)
        self._order = itertools.count()
        self._claims = itertools.count(1)
        self._events: list[tuple[float, int, str, Any]] = []
        self._fleet = {machine.name: machine for machine in self.machines}
        self._down: set[str] = set()
        self._picture = tuple(self.machines)
        self._asks: dict[int, Ask] = {}
        self._held: dict[int, tuple[Holding, ...]] = {}
        self._runs: dict[int, _Run] = {}
        self._reserved: tuple[Reserved, ...] = ()
        self._to_come = 0
        self._per_machine = max((machine.gpus for machine in self.machines), default=0)
        self.outcome.gpus = sum(machine.gpus for machine in self.machines)
        self.outcome.fleet = tuple(self.machines)

    def run(self) -> Outcome:
        """Replay until nothing is left that could still run."""
        for number, job in enumerate(self.jobs):
            if job.gpus > self.outcome.gpus:
                self.outcome.too_large += 1
                continue
            self._to_come += 1
            self._at(job.submit, "submit", (number, job))
        self._next_failure()
        while self._events and (self._to_come or self._runs) and not self._stuck():
            self.now = self._events[0][0]
            while self._events and self._events[0][0] <= self.now:
                _, _, kind, what = heapq.heappop(self._events)
                getattr(self, f"_on_{kind}")(what)
            self._pass()
        self.outcome.unplaced = len(self._asks)
        self.outcome.ended_at = self.now
        return self.outcome

    def _stuck(self) -> bool:
        """Only what never fits is left: nothing runs, nothing comes, and repairs would not help."""
        if self._to_come or self._held or any(e[2] == "look" for e in self._events):
            return False
        repaired = Snapshot("simulated", tuple(self.machines), (), tuple(self._asks.values()))
        return not self._down or not Planner(terse=True).plan(repaired, self.now).grants

    def _at(self, when: float, kind: str, what: Any = None) -> None:
        heapq.heappush(self._events, (float(when), next(self._order), kind, what))

    def _on_submit(self, what: tuple[int, Job]) -> None:
        number, job = what
        self._to_come -= 1
        resources = _resources(job, self._per_machine, self.options)
        self._wait(_Run(job, f"job-{number}", resources, job.duration))

    def _wait(self, run: _Run) -> None:
        run.attempt += 1
        run.claim = next(self._claims)
        run.began = None
        self._runs[run.claim] = run
        self._asks[run.claim] = Ask(
            claim=run.claim,
            run_uid=run.name,
            run_name=run.name,
            workspace="trace",
            attempt=run.attempt,
            resources=run.resources,
            priority=run.job.priority,
            submitted_at=run.job.submit,
            patience_until=self.now + self.options.patience_seconds,
            time_limit_seconds=run.job.limit,
        )

    def _on_end(self, claim: int) -> None:
        run = self._runs.get(claim)
        if run is not None and not self._held[claim][0].stopping:
            self._account(run, kept=self._worked(run), lost=0.0)
            self._free(claim)
            self.outcome.finished += 1

    def _on_stopped(self, claim: int) -> None:
        if claim in self._runs:
            self._again(claim)

    def _on_look(self, _: None) -> None:
        """The planner said that it would decide otherwise by now."""

    def _on_failure(self, _: None) -> None:
        self._next_failure()
        name = self._dice.choice(self._picture).name
        if name in self._down:
            return
        self.outcome.failures += 1
        self._turn(name, "down")
        self._at(self.now + self.options.repair_seconds, "repair", name)
        for claim in [c for c, held in self._held.items() if any(one.machine == name for one in held)]:
            self.outcome.failed_attempts += 1
            self._again(claim)

    def _on_repair(self, name: str) -> None:
        self._turn(name, None)

    def _turn(self, name: str, refusal: str | None) -> None:
        (self._down.discard if refusal is None else self._down.add)(name)
        self._fleet[name] = replace(self._fleet[name], refusal=refusal)
        self._picture = tuple(self._fleet.values())

    def _next_failure(self) -> None:
        per_second = self.options.failures_per_1000_days / 1000 / DAY * len(self.machines)
        if per_second > 0:
            self._at(self.now + self._dice.expovariate(per_second), "failure")

    def _worked(self, run: _Run) -> float:
        """Seconds of work that the present attempt has done."""
        assert run.began is not None
        return min(max(self.now - run.began - self.options.start_seconds, 0.0), run.left)

    def _again(self, claim: int) -> None:
        """An attempt is over before its work is: what its last checkpoint has is kept, and it waits again."""
        run = self._runs[claim]
        worked, every = self._worked(run), self.options.checkpoint_seconds
        kept = worked // every * every if every else worked
        self._account(run, kept, worked - kept)
        run.left -= kept
        self._free(claim)
        self._wait(run)

    def _account(self, run: _Run, kept: float, lost: float) -> None:
        assert run.began is not None
        gpus = run.job.gpus
        self.outcome.useful += kept * gpus
        self.outcome.lost += lost * gpus
        self.outcome.held += (self.now - run.began) * gpus

    def _free(self, claim: int) -> None:
        del self._held[claim], self._runs[claim]

    def _pass(self) -> None:
        if self._asks:
            self._apply(self._planner.plan(self._snapshot(), self.now))
        used = sum(run.job.gpus for claim, run in self._runs.items() if claim in self._held)
        waiting = sum(self._runs[claim].job.gpus for claim in self._asks)
        self.outcome.moments.append(Moment(self.now, used, waiting, len(self._down)))

    def _snapshot(self) -> Snapshot:
        held = tuple(itertools.chain.from_iterable(self._held.values()))
        return Snapshot("simulated", self._picture, held, tuple(self._asks.values()), self._reserved)

    def _apply(self, decided: Plan) -> None:
        self.outcome.passes += 1
        for grant in decided.grants:
            self._start(grant)
        for eviction in decided.evictions:
            self.outcome.preemptions += 1
            self._held[eviction.claim] = tuple(replace(one, stopping=True) for one in self._held[eviction.claim])
            self._at(self.now + self.options.stop_seconds, "stopped", eviction.claim)
        self._reserved = decided.reserved
        if decided.next_change_at is not None and decided.next_change_at > self.now:
            self._at(decided.next_change_at, "look")

    def _start(self, grant: Grant) -> None:
        run = self._runs[grant.claim]
        ask = self._asks.pop(grant.claim)
        run.began = self.now
        names = tuple(member.machine for member in grant.members)
        self.outcome.starts.append(
            Started(run.job, self.now - run.job.submit, names, grant.rung, first=not run.started)
        )
        run.started = True
        limit = run.job.limit
        self._held[grant.claim] = held_by(grant, ask, self.now)
        runs_for = self.options.start_seconds + run.left
        self._at(self.now + (runs_for if limit is None else min(runs_for, limit)), "end", grant.claim)


def _resources(job: Job, per_machine: int, options: Options) -> Resources:
    """Whole machines where that divides evenly, part of one, or whatever shape is free."""
    gpus: dict[str, Any] = {"count": job.gpus}
    wanted: dict[str, Any] = {"gpu_requests": gpus}
    if job.gpus <= per_machine:
        wanted["machines"] = 1
    elif job.gpus % per_machine == 0:
        wanted["machines"] = job.gpus // per_machine
    else:
        gpus["min_per_machine"] = 1
    wanted["topology"] = {"keep_within": options.keep_within, "patience_seconds": options.patience_seconds}
    return Resources.model_validate(wanted)
