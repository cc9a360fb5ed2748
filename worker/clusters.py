"""Every cluster has its scheduler and its watch: also one that was made just now, or whose workflow was ended."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

from temporalio.client import Client
from temporalio.common import WorkflowIDConflictPolicy
from temporalio.service import RPCError, RPCStatusCode

from astraeus.ledger import tenancy
from astraeus.ledger.core import Ledger
from astraeus.model.errors import AstraeusError
from workflows.cluster import ClusterWorkflow
from workflows.scheduler import SchedulerWorkflow

log = logging.getLogger(__name__)

LOOK_SECONDS = 10.0
RPC = timedelta(seconds=10)
KEPT: dict[str, Any] = {"scheduler": SchedulerWorkflow.run, "cluster": ClusterWorkflow.run}


@asynccontextmanager
async def clusters_kept(client: Client, ledger: Ledger, task_queue: str) -> AsyncIterator[None]:
    """For as long as the block lasts, look now and then at which workflows are missing."""
    keeping = asyncio.create_task(_keep(client, ledger, task_queue))
    try:
        yield
    finally:
        keeping.cancel()
        await asyncio.gather(keeping, return_exceptions=True)


async def _keep(client: Client, ledger: Ledger, task_queue: str) -> None:
    """Look again and again; what keeps it from that is told once, and is no reason to stop."""
    failed = False
    while True:
        try:
            await _look(client, ledger, task_queue)
            failed = False
        except Exception as error:
            if not failed:
                foreseen = isinstance(error, AstraeusError | RPCError)
                log.warning("not every cluster is looked after for now: %s", error, exc_info=not foreseen)
            failed = True
        await asyncio.sleep(LOOK_SECONDS)


async def _look(client: Client, ledger: Ledger, task_queue: str) -> None:
    """Start what is missing. Raises what stood in the way of one cluster when all had their turn."""
    async with ledger.reading() as tx:
        clusters = await tenancy.clusters(tx)
    done = [_keep_one(client, cluster.name, task_queue) for cluster in clusters]
    faults = [fault for fault in await asyncio.gather(*done, return_exceptions=True) if fault is not None]
    if faults:
        raise faults[0]


async def _keep_one(client: Client, cluster: str, task_queue: str) -> None:
    for kind, run in KEPT.items():
        # Asked first, since a start writes a history to Temporal's database even where it finds one under way.
        if not await _is_open(client, f"{kind}/{cluster}"):
            await client.start_workflow(
                run,
                cluster,
                id=f"{kind}/{cluster}",
                task_queue=task_queue,
                id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
                static_summary=f"{kind} of {cluster}",
                rpc_timeout=RPC,
            )
            log.info("started the %s workflow of %s", kind, cluster)


async def _is_open(client: Client, workflow_id: str) -> bool:
    try:
        found = await client.get_workflow_handle(workflow_id).describe(rpc_timeout=RPC)
    except RPCError as error:
        if error.status != RPCStatusCode.NOT_FOUND:
            raise
        return False
    return found.close_time is None
