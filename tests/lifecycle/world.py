"""A small world around a run's workflow: activities that keep a ledger in memory and answer by signals.

The world's clock is the test server's, so that skipped time is seen by both sides.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from temporalio import activity
from temporalio.client import WorkflowHandle
from temporalio.testing import WorkflowEnvironment

from astraeus.model.errors import Away
from astraeus.model.messages import SIGNAL_OF, AttemptRef, RunMessage, Situation
from workflows.contracts import ClaimOrder, Closing, GateOrder, RunNote, StopOrder
from workflows.run import RunWorkflow

Act = Callable[["World", int], Awaitable[None]]


async def nothing(world: "World", attempt: int) -> None:
    """A step that tells nobody anything."""


async def place(world: "World", attempt: int) -> None:
    """There is room."""
    world.at(attempt).granted_at = await world.now()
    await world.tell("placed", attempt)


async def arrive(world: "World", attempt: int) -> None:
    """Every member arrives."""
    situation = world.at(attempt)
    situation.first_arrived_at = await world.now()
    situation.arrived, situation.all_arrived, situation.missing, situation.gone = situation.size, True, [], False
    await world.tell("arrived", attempt)


async def succeed(world: "World", attempt: int) -> None:
    """Every member exits 0."""
    world.at(attempt).succeeded = world.at(attempt).gone = True
    await world.tell("ended", attempt)


async def fail(world: "World", attempt: int) -> None:
    """Worker 5 exits 1."""
    situation = world.at(attempt)
    situation.failure, situation.cause, situation.failure_machine = (
        f"{world.name}-5 exited with code 1",
        "exited",
        "m-5",
    )
    await world.tell("failed", attempt)


async def lose_machine(world: "World", attempt: int) -> None:
    """Worker 5's machine is lost."""
    situation = world.at(attempt)
    situation.failure, situation.cause = f"{world.name}-5 lost its machine", "machine_lost"
    situation.failure_machine = "m-5"
    await world.tell("machine_lost", attempt)


async def vanish(world: "World", attempt: int) -> None:
    """Every member is gone after the stop."""
    world.at(attempt).gone = True
    await world.tell("gone", attempt)


@dataclass
class Known:
    """A situation that can be written to."""

    size: int = 8
    claimed: bool = True
    granted_at: float | None = None
    arrived: int = 0
    first_arrived_at: float | None = None
    all_arrived: bool = False
    gates_opened_at: float | None = None
    ended_at: float | None = None
    failure: str | None = None
    cause: str | None = None
    failure_machine: str | None = None
    succeeded: bool = False
    gone: bool = True
    missing: list[str] = field(default_factory=list)
    intent: str | None = None
    intent_by: str | None = None
    intent_why: str | None = None
    undead: list[str] = field(default_factory=list)


@dataclass
class World:
    """What the workflow's activities do; each step is a list, one entry an attempt, the last one repeating."""

    env: WorkflowEnvironment
    name: str = "resnet-64gpu"
    on_enter: Sequence[Act] = (place,)
    on_widen: Sequence[Act] = (place,)
    on_start: Sequence[Act] = (arrive,)
    on_open: Sequence[Act] = (succeed,)
    on_stop: Sequence[Act] = (vanish,)
    after_look: Act = nothing
    handle: WorkflowHandle[Any, str] | None = None
    started: WorkflowHandle[Any, str] | None = None
    attempts: dict[int, Known] = field(default_factory=dict)
    calls: list[tuple[str, float]] = field(default_factory=list)
    closed: list[Closing] = field(default_factory=list)
    stops: list[StopOrder] = field(default_factory=list)
    notes: list[RunNote] = field(default_factory=list)
    claims: list[ClaimOrder] = field(default_factory=list)
    messages: int = 0
    undead_shown: bool = True
    close_fails: int = 0

    async def now(self) -> float:
        return (await self.env.get_current_time()).timestamp()

    def at(self, attempt: int) -> Known:
        return self.attempts.setdefault(attempt, Known())

    async def tell(self, kind: str, attempt: int | None = None, who: str | None = None, why: str | None = None) -> None:
        """Signal the workflow, as the courier would."""
        self.messages += 1
        message = RunMessage(id=self.messages, kind=kind, attempt=attempt, who=who, why=why)  # type: ignore[arg-type]
        assert self.handle is not None
        await self.handle.signal(SIGNAL_OF[kind], message)

    async def order(self, kind: str, who: str = "alice", why: str | None = None) -> None:
        """A person's order, its intent on record as the ledger would keep it."""
        known = self.at(max(self.attempts, default=1))
        intent = {"cancel": "cancelled", "delete": "cancelled", "preempt": "preempted", "restart": "restarted"}.get(
            kind
        )
        if intent and known.granted_at and not known.intent and not known.succeeded and not known.failure:
            known.intent, known.intent_by, known.intent_why = intent, who, why
        await self.tell(kind, None, who, why)

    async def _step(self, name: str, acts: Sequence[Act], attempt: int) -> None:
        self.calls.append((name, await self.now()))
        await acts[min(attempt, len(acts)) - 1](self, attempt)

    @activity.defn
    async def enter_claim(self, order: ClaimOrder) -> bool:
        granted = self.at(order.ref.attempt).granted_at is not None
        if order not in self.claims:
            self.claims.append(order)
        await self._step("enter_claim", self.on_enter, order.ref.attempt)
        return granted

    @activity.defn
    async def widen_claim(self, ref: AttemptRef) -> None:
        await self._step("widen_claim", self.on_widen, ref.attempt)

    @activity.defn
    async def start_workers(self, ref: AttemptRef) -> Situation:
        known = self.at(ref.attempt)
        known.missing = [f"{self.name}-{rank}" for rank in range(known.size)]
        await self._step("start_workers", self.on_start, ref.attempt)
        return await self.gang_situation(ref)

    @activity.defn
    async def open_gates(self, order: GateOrder) -> Situation:
        self.at(order.ref.attempt).gates_opened_at = await self.now()
        await self._step("open_gates", self.on_open, order.ref.attempt)
        return await self.gang_situation(order.ref)

    @activity.defn
    async def stop_gang(self, order: StopOrder) -> Situation:
        self.stops.append(order)
        known = self.at(order.ref.attempt)
        if order.cause == "barrier_timeout" and known.all_arrived:
            return await self.gang_situation(order.ref)
        if order.cause and not known.intent and not known.failure and not known.succeeded:
            known.intent, known.intent_by, known.intent_why = order.cause, order.who, order.why
        await self._step("stop_gang", self.on_stop, order.ref.attempt)
        return await self.gang_situation(order.ref)

    @activity.defn
    async def gang_situation(self, ref: AttemptRef) -> Situation:
        seen = Situation(now=await self.now(), **vars(self.at(ref.attempt)))
        await self.after_look(self, ref.attempt)
        return seen

    @activity.defn
    async def disown_undead(self, ref: AttemptRef) -> list[str]:
        self.calls.append(("disown_undead", await self.now()))
        known = self.at(ref.attempt)
        known.gone = known.gone or self.undead_shown
        known.undead = [f"{self.name}-3 on m-3"] if self.undead_shown else []
        return known.undead

    @activity.defn
    async def close_attempt(self, closing: Closing) -> None:
        if self.close_fails:
            self.close_fails -= 1
            raise Away("the ledger does not answer")
        self.closed.append(closing)
        self.calls.append(("close_attempt", await self.now()))

    @activity.defn
    async def note_run(self, note: RunNote) -> None:
        self.notes.append(note)

    @property
    def activities(self) -> list[Callable[..., Any]]:
        return [
            self.enter_claim,
            self.widen_claim,
            self.start_workers,
            self.open_gates,
            self.stop_gang,
            self.gang_situation,
            self.disown_undead,
            self.close_attempt,
            self.note_run,
        ]

    def when(self, name: str) -> list[float]:
        """The times at which an activity ran."""
        return [at for call, at in self.calls if call == name]


async def state_of(world: World) -> str:
    """The final state, with time skipped up to it."""
    assert world.started is not None
    return await world.started.result()


async def reach(world: World, phase: str) -> None:
    """Wait, without skipping time, until the workflow is in a phase and has nothing left to do in it."""
    assert world.handle is not None
    for _ in range(400):
        life = await world.handle.query(RunWorkflow.state)
        described = await world.handle.describe()
        if life.phase == phase and not described.raw_description.pending_activities:
            return
    raise AssertionError(f"never reached {phase}, is in {life.phase}")
