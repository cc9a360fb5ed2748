"""The cluster's watch: leases, the courier of what the outbox still holds, the sweep for missing workflows."""

import asyncio
import logging
import time

from temporalio import activity
from temporalio.service import RPCError

from activities.delivery import Courier
from astraeus.ledger import changes, leases, outbox, runs, tenancy
from astraeus.ledger.core import Ledger
from astraeus.model.errors import AstraeusError, StaleTerm

log = logging.getLogger(__name__)

TICK_SECONDS = 1.0
WATCH_SECONDS = 600.0
LEFT_OVER_SECONDS = 1.0
BATCH = 500
PRUNE_EVERY = 60
KEPT_SECONDS = 3600.0


class Watch:
    """The activity that ClusterWorkflow keeps alive; its term keeps a second one from deciding anything."""

    def __init__(self, ledger: Ledger, courier: Courier) -> None:
        self.ledger = ledger
        self.courier = courier

    @activity.defn
    async def watch_cluster(self, cluster: str) -> None:
        """Tick once a second for ten minutes, heartbeating; ends early when another watch took over."""
        async with self.ledger.transaction() as tx:
            term = await leases.resume_watch(tx, cluster)
        ends = time.monotonic() + WATCH_SECONDS
        tick = 0
        carrying = asyncio.create_task(self._carry_on(cluster))
        try:
            while time.monotonic() < ends and not activity.is_worker_shutdown():
                activity.heartbeat()
                await self.look(cluster, term, tick)
                tick += 1
                await asyncio.sleep(TICK_SECONDS)
        except StaleTerm:
            log.info("another watch of %s took over", cluster)
        finally:
            carrying.cancel()
            await asyncio.gather(carrying, return_exceptions=True)

    async def look(self, cluster: str, term: int, tick: int) -> None:
        """One look at the leases."""
        async with self.ledger.transaction() as tx:
            await leases.expire_leases(tx, cluster, term)
            if tick % PRUNE_EVERY == 0:
                await changes.prune(tx, KEPT_SECONDS)
                await outbox.prune(tx, KEPT_SECONDS)
        await self.courier.after(tx)

    async def _carry_on(self, cluster: str) -> None:
        """Carry for as long as it takes: a thousand messages after an outage must not keep the leases waiting."""
        while True:
            try:
                await self.carry(cluster)
            except (AstraeusError, RPCError) as error:
                log.warning("what is left of %s waits: %s", cluster, error)
            except Exception:
                # Nobody waits for this task: its end would be noticed when the watch is renewed, minutes later.
                log.exception("what is left of %s waits", cluster)
            await asyncio.sleep(TICK_SECONDS)

    async def carry(self, cluster: str) -> None:
        """Deliver what others left in the outbox and start the workflows that are missing."""
        async with self.ledger.reading() as tx:
            left = await outbox.pending(tx, cluster, BATCH)
            missing = await runs.without_workflow(tx, BATCH)
            spaces = {row.workspace: await tenancy.get_workspace(tx, row.workspace) for row in missing}
        await self.courier.send(row for row in left if row.created_at < tx.now - LEFT_OVER_SECONDS)
        for row in missing:
            if row.submitted_at < tx.now - LEFT_OVER_SECONDS:
                try:
                    await self.courier.start(row, spaces[row.workspace])
                except (RPCError, ValueError) as error:
                    # One run that cannot be started must not keep the others from it.
                    log.warning("the workflow of run %s waits: %s", row.uid, error)
