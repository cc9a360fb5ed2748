"""RunWorkflow: one run's whole life as a state machine of signals, timers and short activities.

Every phase is idempotent: it may be entered again after a crash or a continue-as-new, and goes on where it was.
"""

from collections.abc import Awaitable, Callable

from temporalio import workflow
from temporalio.exceptions import ActivityError, is_cancelled_exception

with workflow.unsafe.imports_passed_through():
    from astraeus.model.agent import KILLED_SECONDS
    from astraeus.model.messages import RunMessage, Situation
    from workflows import contracts
    from workflows.contracts import ClaimOrder, Closing, GateOrder, RunLife, RunNote, StopOrder
    from workflows.decide import Outcome, budget_of, outcome
    from workflows.limits import BARRIER_SECONDS, barrier_left, time_limit_left
    from workflows.steps import BOUNDED, HOLDS, Steps, any_of, now

RECONCILE_SECONDS = 300.0
RECONCILE_MOST = 3600.0
HEARD_SECONDS = 0.5
"""A pause counts from the last member's end, at most so long before that is written: to hear of it costs nothing."""

STOPS: dict[str, str] = {"cancel": "cancelled", "delete": "cancelled", "preempt": "preempted", "restart": "restarted"}
LEDGER_AHEAD = "ledger-ahead"
"""Since this change the ledger may be ahead of the workflow: the first claim is entered when the run is submitted, and
a grant asks for its members. So an order against a claim that waits is carried out as against a gang's, and a workflow
that begins, or is made anew, asks for its next claim before it reads what was ordered."""

OF_AN_ATTEMPT = frozenset({"preempt", "restart"})
CANCELLED_IN_TEMPORAL = RunMessage(id=0, kind="cancel", who="an operator in Temporal")
"""What a cancellation of the workflow itself means; outbox rows have ids from 1."""

HELD_BEFORE = RunMessage(id=-1, kind="hold", who=None)
"""What a run's own row says of a hold."""


@workflow.defn
class RunWorkflow(Steps):
    """The life of one run, from its first claim to its final state."""

    @workflow.init
    def __init__(self, life: RunLife) -> None:
        super().__init__(life)
        self.fresh = workflow.info().continued_run_id is None
        self.phases: dict[str, Callable[[], Awaitable[None]]] = {
            "queue": self.queue,
            "start": self.start,
            "run": self.running,
            "stop": self.stop,
            "close": self.close,
            "backoff": self.backoff,
            "held": self.held,
        }

    @workflow.run
    async def run(self, life: RunLife) -> str:
        """Walk the phases until the run is over; answers its final state."""
        while self.life.phase != "over":
            if workflow.info().is_continue_as_new_suggested():
                await workflow.wait_condition(workflow.all_handlers_finished)
                workflow.continue_as_new(self.life)
            try:
                await self.phases[self.life.phase]()
            except BaseException as error:
                if not is_cancelled_exception(error):
                    raise
                # Ending here would leave the gang and its room behind: it is the same as a person's order.
                self.inbox.put(CANCELLED_IN_TEMPORAL)
        await workflow.wait_condition(workflow.all_handlers_finished)
        return self.shown

    async def queue(self) -> None:
        """Enter the next attempt's claim and wait until it is granted."""
        life = self.life
        fresh, self.fresh = self.fresh, False
        if fresh and workflow.patched(LEDGER_AHEAD):
            self.hold_claim()
        elif await self.heeded():
            return
        if life.wait_until is None:
            life.attempt += 1
            life.stop = life.situation = None
            life.wait_until = now() + life.patience_seconds
        self.show("Pending", life.headline or "waiting to be placed")
        message = None if await self.enter_claim() else await self.wait_placed()
        life.wait_until = None
        if message is not None and message.kind != "placed":
            held = message.kind == "hold"
            if held:
                self.heed(message)
            self.end("held" if held else "cancelled", message.who or "a person", message.why)
            if not workflow.patched(LEDGER_AHEAD):
                life.phase = "close"
            return
        # An order against an attempt is on its claim in the ledger once that is granted; earlier ones had no object.
        self.inbox.forget(OF_AN_ATTEMPT)
        life.phase = "start"

    def hold_claim(self) -> None:
        """A run that was held before its workflow began may have a claim in the ledger: withdraw that."""
        if self.life.held_by:
            self.inbox.put(HELD_BEFORE.model_copy(update={"who": self.life.held_by}))
            self.life.held_by = None

    async def heeded(self) -> bool:
        """Obey what was ordered before the next claim; whether there is to be none for now."""
        life = self.life
        if life.wait_until is None and (order := self.inbox.take(life.attempt, any_of("cancel", "delete"))):
            await self.between_attempts(order)
            return True
        self.heed_holds()
        if life.held_by:
            life.phase = "held"
        return life.held_by is not None

    def heed_holds(self) -> None:
        """A hold never stops a running attempt: it is read here, before the next claim."""
        while (message := self.inbox.take(self.life.attempt, any_of(*HOLDS))) is not None:
            self.heed(message)

    def heed(self, message: RunMessage) -> None:
        """Obey a hold or release. The later word counts, so whatever was ordered before it is forgotten."""
        self.life.heeded = message.id
        self.life.held_by = (message.who or "a person") if message.kind == "hold" else None
        self.inbox.forget(HOLDS, message.id)

    async def enter_claim(self) -> bool:
        """Ask the ledger for room; idempotent. Whether it was granted before, which a workflow made anew missed."""
        life = self.life
        order = ClaimOrder(
            ref=self.ref,
            cluster=life.cluster,
            patience_seconds=life.patience_seconds,
            avoid=life.avoid,
            headline=life.headline,
        )
        return await self.act(contracts.enter_claim, order, f"attempt {life.attempt}: enter the claim")

    async def wait_placed(self) -> RunMessage | None:
        """Wait for the grant or an order against it; widens the claim when patience ends."""
        life = self.life
        wanted = any_of("placed", "cancel", "delete", "hold")
        if life.patience_seconds and life.wait_until and life.wait_until > now():
            message = await self.wait(wanted, life.wait_until, "patience: a tighter rung than the one free now")
            if message is not None:
                return message
            await self.act(contracts.widen_claim, self.ref, "patience is over: take what is free")
        pause = RECONCILE_SECONDS
        while (message := await self.wait(wanted, now() + pause, "wait for room")) is None:
            situation = await self.look()
            if situation.granted_at is not None:
                return None
            if not situation.claimed:
                await self.enter_claim()
            pause = min(pause * 2, RECONCILE_MOST)
        return message

    async def start(self) -> None:
        """Have every member started and held at its gate, and wait until all have arrived."""
        self.show("Starting", "members start and gather at the barrier")
        try:
            situation = await self.act(
                contracts.start_workers, self.ref, f"attempt {self.life.attempt}: start the workers", BOUNDED
            )
        except ActivityError as error:
            if is_cancelled_exception(error):
                raise
            self.end("never_started", "astraeus", str(error.cause or error))
            return
        wanted = any_of("arrived", "failed", "machine_lost", "cancel", "delete", "preempt", "restart")
        while not self.decided(situation):
            if situation.all_arrived:
                self.life.phase = "run"
                return
            left = barrier_left(situation)
            if left <= 0:
                self.end("barrier_timeout", "astraeus", None)
                return
            message = await self.wait(wanted, now() + min(left, BARRIER_SECONDS), "barrier: all members arrive")
            if message is None:
                situation = await self.look()
            elif message.kind == "arrived":
                self.life.phase = "run"
                return
            else:
                self.end_by(message)
                return

    async def running(self) -> None:
        """Open the gates together and wait for the end, whoever brings it."""
        life = self.life
        budget = budget_of(life)
        order = GateOrder(ref=self.ref, budget_left=budget.left, next_earned_seconds=budget.next_earned_seconds)
        situation = await self.act(contracts.open_gates, order, f"attempt {life.attempt}: open the gates")
        self.show("Running", "all members go")
        wanted = any_of("ended", "failed", "machine_lost", "cancel", "delete", "preempt", "restart")
        pause = RECONCILE_SECONDS
        while not self.decided(situation):
            limit = time_limit_left(life, situation)
            if limit <= 0:
                self.end("time_limit", "astraeus", None)
                return
            message = await self.wait(wanted, now() + min(limit, pause), "running: time limit or a look")
            if message is not None and message.kind != "ended":
                self.end_by(message)
                return
            situation = await self.look()
            pause = min(pause * 2, RECONCILE_MOST)
            if workflow.info().is_continue_as_new_suggested():
                return

    def decided(self, situation: Situation) -> bool:
        """Whether the ledger already holds the attempt's end; then the phase is set accordingly."""
        if situation.succeeded and situation.gone:
            self.life.situation, self.life.phase = situation, "close"
        elif situation.succeeded or situation.failure or situation.intent or situation.released:
            self.end(situation.intent, situation.intent_by or "astraeus", situation.intent_why)
        else:
            return False
        return True

    def end_by(self, message: RunMessage) -> None:
        """Go to the stop because of a message."""
        if message.kind in ("failed", "machine_lost"):
            self.end(None, "astraeus", None)
        else:
            self.end(STOPS[message.kind], message.who or "astraeus", message.why)

    def end(self, cause: str | None, who: str, why: str | None) -> None:
        """Go to the stop; `cause` is None for a failure of the attempt's own."""
        self.life.stop = StopOrder(ref=self.ref, cause=cause, who=who, why=why)
        self.life.phase = "stop"

    async def stop(self) -> None:
        """Have every member stopped and wait until the last is confirmed gone."""
        life = self.life
        assert life.stop is not None
        self.show("Stopping", life.stop.cause or "a member failed")
        situation = await self.act(
            contracts.stop_gang, life.stop, f"attempt {life.attempt}: stop ({life.stop.cause or 'failure'})"
        )
        if life.stop.cause == "barrier_timeout" and situation.all_arrived and not situation.intent:
            # The last one came between the last look and the stop, which then stopped nobody.
            life.phase = "run"
            return
        pause = situation.grace_seconds + KILLED_SECONDS
        while not situation.gone:
            message = await self.wait(any_of("gone", "machine_lost"), now() + pause, "stop: SIGTERM, grace, SIGKILL")
            situation = await self.look()
            if message is None and not situation.gone:
                life.undead = list(dict.fromkeys([*life.undead, *await self.disown()]))
                situation = await self.look()
                pause = min(pause, RECONCILE_SECONDS)
            if not situation.gone and workflow.info().is_continue_as_new_suggested():
                return
        life.situation = situation
        life.phase = "close"

    async def disown(self) -> list[str]:
        """Give up on members whose machines still show them alive long after SIGKILL; none while that is too early.

        A machine may have heard of the stop long after it was ordered, so this is asked again and again.
        """
        return await self.act(contracts.disown_undead, self.ref, "members that survived SIGKILL")

    async def close(self) -> None:
        """Give the room back, record how the attempt ended and whether it is charged, and go on from there."""
        life = self.life
        situation = life.situation or await self.look()
        decision = outcome(life, situation)
        over = now() - (situation.now - (situation.ended_at or situation.now))
        await self.record(decision)
        life.charged, life.earned_seconds = decision.budget.charged, decision.budget.earned_seconds
        life.headline = decision.headline
        life.avoid = [decision.avoid] if decision.avoid else life.avoid
        if decision.state == "Pending" and not decision.charged:
            life.free_restarts[decision.cause] = life.free_restarts.get(decision.cause, 0) + 1
        life.phase = decision.phase
        begun = max(over, now() - HEARD_SECONDS)
        life.wait_until = begun + decision.pause_seconds if decision.phase == "backoff" else None
        self.show(decision.state, decision.reason)

    async def record(self, decision: Outcome) -> None:
        """Write the attempt's end to the ledger; idempotent by attempt."""
        closing = Closing(
            ref=self.ref,
            cluster=self.life.cluster,
            cause=decision.cause,
            detail=decision.detail,
            charged=decision.charged,
            state=decision.state,
            reason=decision.reason,
            budget_left=decision.budget.left,
            next_earned_seconds=decision.budget.next_earned_seconds,
            actor=decision.actor,
        )
        await self.act(contracts.close_attempt, closing, f"attempt {self.life.attempt} ended: {decision.detail}")

    async def backoff(self) -> None:
        """Sleep out the pause before the next claim; a restart order ends it early."""
        life = self.life
        message = await self.wait(any_of("cancel", "delete", "hold", "restart"), life.wait_until, "backoff")
        life.wait_until = None
        life.phase = "queue"
        if message is not None:
            await self.between_attempts(message)

    async def held(self) -> None:
        """Wait, holding nothing, until a person releases or cancels the run."""
        life = self.life
        await self.note("Pending", f"Held by {life.held_by}", held=True)
        message = await self.wait(any_of("hold", "release", "cancel", "delete"), None, "held")
        if message is None:
            return
        if message.kind == "hold":
            self.heed(message)
            return
        life.phase = "queue"
        if message.kind == "release":
            self.heed(message)
            await self.note("Pending", life.headline or "Released; waiting to be placed", held=False)
        else:
            await self.between_attempts(message)

    async def between_attempts(self, message: RunMessage) -> None:
        """An order that arrives while there is no attempt."""
        if message.kind == "hold":
            self.heed(message)
        elif message.kind in ("cancel", "delete"):
            who = message.who or "a person"
            await self.note("Cancelled", f"Cancelled by {who}", held=False, actor=who)
            self.life.phase = "over"

    async def note(self, state: str, reason: str, held: bool, actor: str = "astraeus") -> None:
        """Show a state and reason outside an attempt."""
        await self.act(
            contracts.note_run,
            RunNote(run_uid=self.life.run_uid, state=state, reason=reason, held=held, actor=actor),
            reason,
        )
        self.show(state, reason)
