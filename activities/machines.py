"""The cluster's watch: leases, the courier of what the outbox still holds, the sweep for missing workflows."""

import asyncio
import logging
import time

from temporalio import activity

from activities.delivery import Courier
from astraeus.ledger import changes, leases, outbox, runs, tenancy
from astraeus.ledger.core import Ledger
from astraeus.model.errors import StaleTerm

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
        while time.monotonic() < ends and not activity.is_worker_shutdown():
            activity.heartbeat()
            try:
                await self.tick(cluster, term, tick)
            except StaleTerm:
                log.info("another watch of %s took over", cluster)
                return
            tick += 1
            await asyncio.sleep(TICK_SECONDS)

    async def tick(self, cluster: str, term: int, tick: int) -> None:
        """One look at everything that could have been left behind."""
        async with self.ledger.transaction() as tx:
            await leases.expire_leases(tx, cluster, term)
            if tick % PRUNE_EVERY == 0:
                await changes.prune(tx, KEPT_SECONDS)
                await outbox.prune(tx, KEPT_SECONDS)
        await self.courier.after(tx)
        async with self.ledger.reading() as tx:
            left = await outbox.pending(tx, cluster, BATCH)
            missing = await runs.without_workflow(tx, BATCH)
            spaces = {row.workspace: await tenancy.get_workspace(tx, row.workspace) for row in missing}
        await self.courier.send(row for row in left if row.created_at < tx.now - LEFT_OVER_SECONDS)
        for row in missing:
            workspace = spaces[row.workspace]
            if workspace is not None and row.submitted_at < tx.now - LEFT_OVER_SECONDS:
                await self.courier.start(row, workspace)
