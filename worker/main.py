"""The worker process: runs workflows and activities. Stateless; any number may run."""

import asyncio
import logging
import signal
from datetime import timedelta

import pydantic
from temporalio.client import Client
from temporalio.worker import Worker
from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner, SandboxRestrictions

from activities.delivery import Courier
from activities.gang import Gang
from activities.machines import Watch
from activities.placing import Placing
from activities.records import Records
from astraeus.executors.agent import AgentExecutor
from astraeus.ledger import migrate
from astraeus.ledger.core import Ledger
from worker.beating import Beating
from worker.clusters import clusters_kept
from worker.config import Settings, log_to_stderr
from worker.temporal import connect, prepare
from workflows.cluster import ClusterWorkflow
from workflows.run import RunWorkflow
from workflows.scheduler import SchedulerWorkflow

log = logging.getLogger(__name__)

WORKFLOWS = (RunWorkflow, SchedulerWorkflow, ClusterWorkflow)
CACHED = 12_000
STICKY = timedelta(seconds=2)
GRACE = timedelta(seconds=5)


def activities_of(ledger: Ledger, courier: Courier) -> list[object]:
    """Every activity, as bound methods over its ports."""
    placing, records, watch = Placing(ledger, courier), Records(ledger, courier), Watch(ledger, courier)
    gang = Gang(ledger, courier, AgentExecutor(ledger))
    return [
        placing.enter_claim,
        placing.widen_claim,
        placing.scheduling_pass,
        placing.close_attempt,
        gang.start_workers,
        gang.open_gates,
        gang.stop_gang,
        gang.gang_situation,
        gang.disown_undead,
        records.note_run,
        watch.watch_cluster,
    ]


def worker_of(client: Client, ledger: Ledger, courier: Courier, task_queue: str) -> Worker:
    """The Temporal worker with the project's settings; see the Temporal notes in ARCHITECTURE.md."""
    restrictions = SandboxRestrictions.default.with_passthrough_modules("astraeus")
    return Worker(
        client,
        task_queue=task_queue,
        workflows=list(WORKFLOWS),
        activities=activities_of(ledger, courier),  # type: ignore[arg-type]
        workflow_runner=SandboxedWorkflowRunner(restrictions=restrictions),
        interceptors=[Beating()],
        max_cached_workflows=CACHED,
        sticky_queue_schedule_to_start_timeout=STICKY,
        graceful_shutdown_timeout=GRACE,
        max_heartbeat_throttle_interval=timedelta(seconds=1),
        workflow_failure_exception_types=[pydantic.ValidationError],
    )


async def serve(settings: Settings) -> None:
    """Run until SIGTERM or SIGINT."""
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    ledger = Ledger(settings.ledger_url)
    try:
        await migrate.upgrade(ledger)
        client = await connect(settings)
        await prepare(client)
        courier = Courier(ledger, client, settings.task_queue)
        async with (
            worker_of(client, ledger, courier, settings.task_queue),
            clusters_kept(client, ledger, settings.task_queue),
        ):
            log.info("worker process ready on task queue %s", settings.task_queue)
            await stop.wait()
    finally:
        await ledger.close()


def main() -> None:
    """Entry point of `python -m worker.main`."""
    settings = Settings.from_environment()
    log_to_stderr(settings.log_level)
    asyncio.run(serve(settings))


if __name__ == "__main__":
    main()
