"""What a run's workflow is built of: messages heard, waits for the next one that matters, activities, what is shown.

The phases that are made of these are in `workflows.run`.
"""

from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import TypeVar

from temporalio import workflow
from temporalio.common import RetryPolicy, SearchAttributeKey

with workflow.unsafe.imports_passed_through():
    from astraeus.model.messages import AttemptRef, RunMessage, Situation
    from workflows import contracts
    from workflows.contracts import RunLife
    from workflows.inbox import Inbox
    from workflows.limits import ALIVE

STATE = SearchAttributeKey.for_keyword("AstraeusState")
SHORT = timedelta(seconds=30)
PATIENT = RetryPolicy(initial_interval=timedelta(seconds=1), maximum_interval=timedelta(seconds=10))
"""The ledger may be away for long and must not end a run, so these retry until it is back, at most 10 s apart."""
BOUNDED = RetryPolicy(initial_interval=timedelta(seconds=1), maximum_attempts=4)
"""Starting may be refused for good: after four tries the attempt ends as never started, which is free."""

T = TypeVar("T")
R = TypeVar("R")
Wanted = Callable[[RunMessage], bool]
HOLDS = frozenset({"hold", "release"})


def any_of(*kinds: str) -> Wanted:
    """Messages of these kinds."""
    return lambda message: message.kind in kinds


class Steps:
    """The run's one value and its inbox, and the steps that every phase takes."""

    def __init__(self, life: RunLife) -> None:
        self.life = life
        self.inbox = Inbox(life.unread, life.seen)
        self.shown = ""

    @workflow.signal(description="the claim was granted")
    def placed(self, message: RunMessage) -> None:
        """The scheduler granted the claim."""
        self.inbox.put(message)

    @workflow.signal(description="the room is needed, by the scheduler or a person")
    def preempt(self, message: RunMessage) -> None:
        """Give the room back and wait again, free of charge."""
        self.inbox.put(message)

    @workflow.signal(description="end the run for good")
    def cancel(self, message: RunMessage) -> None:
        """Stop and end as Cancelled."""
        self.inbox.put(message)

    @workflow.signal(description="a machine of the gang was lost")
    def machine_lost(self, message: RunMessage) -> None:
        """A machine under the gang was declared lost."""
        self.inbox.put(message)

    @workflow.signal(description="the gang's situation changed")
    def gang(self, message: RunMessage) -> None:
        """All arrived, first failure, all ended, or all gone."""
        self.inbox.put(message)

    @workflow.signal(description="hold, release or restart")
    def order(self, message: RunMessage) -> None:
        """A person's order; a hold or release that was overtaken by a later one is none any more."""
        if message.kind not in HOLDS or message.id > self.life.heeded:
            self.inbox.put(message)

    @workflow.query(description="the run's state machine, without its spec")
    def state(self) -> RunLife:
        """Where the run stands; for debugging, since the ledger has what users see."""
        return self.life

    @property
    def ref(self) -> AttemptRef:
        """The present attempt."""
        return AttemptRef(run_uid=self.life.run_uid, attempt=self.life.attempt)

    async def act(
        self, stub: Callable[[T], Awaitable[R]], argument: T, summary: str, retry: RetryPolicy = PATIENT
    ) -> R:
        """Run one short activity; `summary` names it in Temporal's UI."""
        return await workflow.execute_activity(
            stub,
            argument,
            start_to_close_timeout=SHORT,
            heartbeat_timeout=ALIVE,
            retry_policy=retry,
            summary=summary[:200],
        )

    async def look(self) -> Situation:
        """Where the attempt stands in the ledger, in case a message was lost."""
        return await self.act(contracts.gang_situation, self.ref, "look at the ledger")

    async def wait(self, wanted: Wanted, until: float | None, what: str) -> RunMessage | None:
        """The next wanted message, or None when `until` comes first; `what` names the timer in Temporal's UI."""
        if not self.inbox.holds(self.life.attempt, wanted):
            timeout = None if until is None else timedelta(seconds=max(until - now(), 0.001))
            try:
                await workflow.wait_condition(
                    lambda: self.inbox.holds(self.life.attempt, wanted), timeout=timeout, timeout_summary=what
                )
            except TimeoutError:
                return None
        return self.inbox.take(self.life.attempt, wanted)

    def show(self, state: str, reason: str) -> None:
        """State and reason for Temporal's own UI."""
        workflow.set_current_details(f"**{state}**: {reason}\n\nattempt {self.life.attempt} on {self.life.cluster}")
        if state != self.shown:
            self.shown = state
            workflow.upsert_search_attributes([STATE.value_set(state)])


def now() -> float:
    """Seconds since the epoch on the workflow's clock."""
    return workflow.now().timestamp()
