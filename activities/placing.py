"""Claims and passes: entering a claim, planning over the whole cluster, giving room back."""

import logging
import time
from dataclasses import dataclass

from temporalio import activity

from activities.delivery import Courier
from astraeus.ledger import claims, commit, runs
from astraeus.ledger.core import Ledger, Tx
from astraeus.ledger.keeper import SnapshotKeeper
from astraeus.model.messages import AttemptRef
from astraeus.placement.planner import Planner
from astraeus.placement.types import Plan, Snapshot
from workflows.contracts import ClaimOrder, Closing, PassOrder, PassResult

log = logging.getLogger(__name__)


@dataclass
class _Mind:
    """What this process keeps of a cluster from one pass to the next: its term, the snapshot, the planner's work."""

    keeper: SnapshotKeeper
    planner: Planner
    term: int | None = None


class Placing:
    """Activities on claims; every one idempotent by (run uid, attempt)."""

    def __init__(self, ledger: Ledger, courier: Courier) -> None:
        self.ledger = ledger
        self.courier = courier
        self._minds: dict[str, _Mind] = {}

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
        if not granted and not tx.changes:
            # Whoever entered it may have died before waking anybody.
            await self.courier.ring(order.cluster)
        await self.courier.after(tx)
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
        """One pass: a snapshot under a term of this process, a plan, one commit, and the messages that follow."""
        began = time.perf_counter()
        # Only a pass whose commit took all of its plan leaves its mind to the next one.
        mind = self._minds.pop(order.cluster, None) or _Mind(SnapshotKeeper(order.cluster), Planner())
        picture, now = await self._look(mind)
        decided = mind.planner.plan(picture, now)
        granted, letters = await self._commit(order.cluster, mind.term, picture, decided)
        pause = None if decided.next_change_at is None else max(0.0, decided.next_change_at - now)
        if granted == len(decided.grants):
            self._minds[order.cluster] = mind
        else:
            # Something changed between the picture and the commit: look at all of it again, at once.
            pause = 0.0
        # The pass must not wake itself by its own commit, so only the messages are delivered.
        if letters:
            await self.courier.deliver(letters)
        log.info(
            "pass over %s: %d granted, %d waiting, %.1f ms",
            order.cluster,
            granted,
            len(decided.waits),
            (time.perf_counter() - began) * 1000,
        )
        return PassResult(granted=granted, waiting=len(decided.waits), next_change_seconds=pause)

    async def _look(self, mind: _Mind) -> tuple[Snapshot, float]:
        """The cluster as it is and the time, under a term that this process holds.

        A new term is taken only where another pass has taken one since; nothing of what was seen before it is used.
        """
        async with self.ledger.reading() as tx:
            picture = await mind.keeper.current(tx)
        if mind.term is None or mind.term != mind.keeper.term:
            async with self.ledger.transaction() as tx:
                mind.term = await claims.take_pass_term(tx, mind.keeper.cluster)
            async with self.ledger.reading() as tx:
                picture = await mind.keeper.current(tx)
        return picture, tx.now

    async def _commit(self, cluster: str, term: int | None, picture: Snapshot, decided: Plan) -> tuple[int, list[int]]:
        """Carry a plan out; how many grants took effect, and the messages to deliver."""
        assert term is not None
        if not (decided.grants or decided.waits or decided.evictions or picture.reserved or decided.reserved):
            return 0, []
        async with self.ledger.transaction() as tx:
            granted = await commit.commit_plan(tx, cluster, term, decided)
        return len(granted), tx.outbox

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
