"""An activity beats while it runs: a long one is not taken for dead."""

import asyncio
import os
import sysconfig
import uuid
from datetime import timedelta

from temporalio import activity, workflow
from temporalio.common import RetryPolicy
from temporalio.testing import WorkflowEnvironment
from temporalio.worker import UnsandboxedWorkflowRunner, Worker

from worker.beating import Beating

LIMIT = timedelta(seconds=2)


@activity.defn
async def take_long() -> int:
    """Longer than the beat may be missing; answers which try this was."""
    await asyncio.sleep(LIMIT.total_seconds() * 1.5)
    return activity.info().attempt


@workflow.defn
class Long:
    """One long activity."""

    @workflow.run
    async def run(self) -> int:
        return await workflow.execute_activity(
            take_long,
            start_to_close_timeout=timedelta(seconds=30),
            heartbeat_timeout=LIMIT,
            retry_policy=RetryPolicy(maximum_attempts=2),
        )


async def test_a_long_activity_is_not_taken_for_dead() -> None:
    server = os.path.join(sysconfig.get_path("scripts"), "temporal")
    async with (
        await WorkflowEnvironment.start_local(dev_server_existing_path=server) as env,
        Worker(
            env.client,
            task_queue="q",
            workflows=[Long],
            activities=[take_long],
            interceptors=[Beating()],
            workflow_runner=UnsandboxedWorkflowRunner(),
        ),
    ):
        assert await env.client.execute_workflow(Long.run, id=uuid.uuid4().hex, task_queue="q") == 1
