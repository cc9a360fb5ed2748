"""A gang's workers: start them at their gates, open the gates, stop them, look at them."""

from temporalio import activity

from activities.delivery import Courier
from astraeus.executors.base import Executor
from astraeus.ledger import gangs, undead
from astraeus.ledger.core import Ledger
from astraeus.model.messages import AttemptRef, Situation
from workflows.contracts import GateOrder, StopOrder


class Gang:
    """Activities on one attempt's workers, through the cluster's executor."""

    def __init__(self, ledger: Ledger, courier: Courier, executor: Executor) -> None:
        self.ledger = ledger
        self.courier = courier
        self.executor = executor

    @activity.defn
    async def start_workers(self, ref: AttemptRef) -> Situation:
        """Have every member started and held at its gate."""
        await self.executor.start(ref)
        return await self.gang_situation(ref)

    @activity.defn
    async def open_gates(self, order: GateOrder) -> Situation:
        """Open every gate of the attempt at once, unless its end is already in the ledger."""
        await self.executor.open(order.ref, order.budget_left, order.next_earned_seconds)
        return await self.gang_situation(order.ref)

    @activity.defn
    async def stop_gang(self, order: StopOrder) -> Situation:
        """Record the intent, then have every member stopped."""
        await self.executor.stop(order.ref, order.cause, order.who, order.why)
        return await self.gang_situation(order.ref)

    @activity.defn
    async def disown_undead(self, ref: AttemptRef) -> list[str]:
        """Give up on members that survive SIGKILL; names them with their machines."""
        async with self.ledger.transaction() as tx:
            named = await undead.disown(tx, ref)
        await self.courier.after(tx)
        return named

    @activity.defn
    async def gang_situation(self, ref: AttemptRef) -> Situation:
        """Where the attempt stands."""
        async with self.ledger.reading() as tx:
            return await gangs.situation(tx, ref)
