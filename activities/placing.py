"""Claims and passes: entering a claim, planning over the whole cluster, giving room back."""

import logging
import time

from temporalio import activity

from activities.delivery import Courier
from astraeus.ledger import claims, commit, runs
from astraeus.ledger.core import Ledger, Tx
from astraeus.ledger.keeper import SnapshotKeeper
from astraeus.model.messages import AttemptRef
from astraeus.placement.planner import plan
from workflows.contracts import ClaimOrder, Closing, PassOrder, PassResult

log = logging.getLogger(__name__)


class Placing:
    """Activities on claims; every one idempotent by (run uid, attempt)."""

    def __init__(self, ledger: Ledger, courier: Courier) -> None:
        self.ledger = ledger
        self.courier = courier
        self._kept: dict[str, SnapshotKeeper] = {}

    @activity.defn
    async def enter_claim(self, order: ClaimOrder) -> bool:
        """Write the attempt's claim and wake the scheduler; whether the claim is granted already."""
        async with self.ledger.transaction() as tx:
            granted = await claims.enter(
                tx,
                order.ref.run_uid,
                order.ref.attempt,
                cluster=order.cluster,
                patience_seconds=order.patience_seconds,
                avoid=order.avoid,
                headline=order.headline,
            )
        await self._after(tx, order.cluster)
        return granted

    @activity.defn
    async def widen_claim(self, ref: AttemptRef) -> None:
        """End the claim's patience and wake the scheduler."""
        async with self.ledger.transaction() as tx:
            await claims.widen(tx, ref)
            row = await runs.by_uid(tx, ref.run_uid)
        await self._after(tx, row.cluster if row else None)

    @activity.defn
    async def scheduling_pass(self, order: PassOrder) -> PassResult:
        """One pass: a term, a snapshot, a plan, one commit, and the messages that follow from it."""
        began = time.perf_counter()
        async with self.ledger.transaction() as tx:
            term = await claims.take_pass_term(tx, order.cluster)
        keeper = self._kept.setdefault(order.cluster, SnapshotKeeper(order.cluster))
        async with self.ledger.reading() as tx:
            picture = await keeper.current(tx)
        decided = plan(picture, tx.now)
        granted = 0
        if decided.grants or decided.waits or decided.evictions or picture.reserved or decided.reserved:
            async with self.ledger.transaction() as tx:
                granted = len(await commit.commit_plan(tx, order.cluster, term, decided))
            # The pass must not wake itself by its own commit, so only the messages are delivered.
            if tx.outbox:
                await self.courier.deliver(tx.outbox)
        log.info(
            "pass over %s: %d granted, %d waiting, %.1f ms",
            order.cluster,
            granted,
            len(decided.waits),
            (time.perf_counter() - began) * 1000,
        )
        pause = None if decided.next_change_at is None else max(0.0, decided.next_change_at - tx.now)
        if granted < len(decided.grants):
            # Something changed between the picture and the commit: look at all of it again, at once.
            self._kept.pop(order.cluster, None)
            pause = 0.0
        return PassResult(granted=granted, waiting=len(decided.waits), next_change_seconds=pause)

    @activity.defn
    async def close_attempt(self, closing: Closing) -> None:
        """Release the attempt's room, record its end, and wake the scheduler."""
        async with self.ledger.transaction() as tx:
            await claims.release(tx, closing.ref, **closing.model_dump(exclude={"ref", "cluster"}))
        await self._after(tx, closing.cluster)

    async def _after(self, tx: Tx, cluster: str | None) -> None:
        """Deliver and wake. A try that died after its commit left nothing to change, so a later one wakes anyway."""
        if cluster is not None and activity.info().attempt > 1:
            await self.courier.ring(cluster)
        await self.courier.after(tx)
