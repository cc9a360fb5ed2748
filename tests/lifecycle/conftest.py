import os
import sysconfig
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import pytest
from lifecycle.stage import Stage
from lifecycle.world import World
from support.clock import Clocked
from support.scene import Scene
from temporalio.api.enums.v1 import IndexedValueType
from temporalio.api.operatorservice.v1 import AddSearchAttributesRequest
from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.testing import WorkflowEnvironment
from temporalio.worker import Worker
from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner, SandboxRestrictions

from activities.delivery import PRIORITY, SEARCH_ATTRIBUTES, STATE, Courier
from astraeus.model.messages import SIGNAL_OF, RunMessage
from workflows.contracts import RunLife
from workflows.run import RunWorkflow
from workflows.scheduler import SchedulerWorkflow

KINDS = {key.name: IndexedValueType.INDEXED_VALUE_TYPE_KEYWORD for key in SEARCH_ATTRIBUTES if key is not STATE}
KINDS[PRIORITY.name] = IndexedValueType.INDEXED_VALUE_TYPE_INT

Live = Callable[..., AbstractAsyncContextManager[World]]


@pytest.fixture
async def skipping() -> AsyncIterator[WorkflowEnvironment]:
    """A time-skipping server of its own for each test: one shared by tests may stop skipping for good."""
    server = os.path.join(sysconfig.get_path("scripts"), "temporal-test-server")
    async with await WorkflowEnvironment.start_time_skipping(
        test_server_existing_path=server, data_converter=pydantic_data_converter
    ) as env:
        request = AddSearchAttributesRequest(
            namespace=env.client.namespace,
            search_attributes={"AstraeusState": IndexedValueType.INDEXED_VALUE_TYPE_KEYWORD},
        )
        await env.client.operator_service.add_search_attributes(request)
        yield env


@pytest.fixture
def live(skipping: WorkflowEnvironment, request: pytest.FixtureRequest) -> Live:
    """`async with live(on_open=[...], life={...}) as world`: a run's workflow under way there; it has heard `first`."""

    @asynccontextmanager
    async def begin(
        life: dict[str, object] | None = None, first: RunMessage | None = None, **acts: object
    ) -> AsyncIterator[World]:
        world = World(skipping, **acts)  # type: ignore[arg-type]
        facts = {"run_uid": "u1", "workspace": "acme/vision", "name": world.name, "cluster": "lab-a", **(life or {})}
        runner = SandboxedWorkflowRunner(restrictions=SandboxRestrictions.default.with_passthrough_modules("astraeus"))
        async with Worker(
            skipping.client,
            task_queue="q",
            workflows=[RunWorkflow],
            activities=world.activities,
            workflow_runner=runner,
        ):
            handle = skipping.client.get_workflow_handle_for(RunWorkflow.run, "run/u1")
            world.handle = handle
            # Only a handle that `start_workflow` returns makes the server skip time while its result is awaited.
            world.started = await skipping.client.start_workflow(
                RunWorkflow.run,
                RunLife.model_validate(facts),
                id="run/u1",
                task_queue="q",
                start_signal=first and SIGNAL_OF[first.kind],
                start_signal_args=[first] if first else [],
            )
            yield world
            if folder := os.environ.get("ASTRAEUS_RECORD_HISTORIES"):
                assert world.started is not None
                history = await world.started.fetch_history()
                (Path(folder) / f"{request.node.name.removeprefix('test_')}.json").write_text(history.to_json())

    return begin


@pytest.fixture
async def stage(skipping: WorkflowEnvironment, sqlite_ledger_url: str) -> AsyncIterator[Stage]:
    """A cluster of three machines with its scheduler."""
    wanted = AddSearchAttributesRequest(namespace=skipping.client.namespace, search_attributes=KINDS)
    await skipping.client.operator_service.add_search_attributes(wanted)
    ledger = Clocked(sqlite_ledger_url)
    scene = await Scene.start(ledger, machines=3, heard_at=0.0)
    stage = Stage(scene, skipping, Courier(ledger, skipping.client, "q"))
    runner = SandboxedWorkflowRunner(restrictions=SandboxRestrictions.default.with_passthrough_modules("astraeus"))
    async with Worker(
        skipping.client,
        task_queue="q",
        workflows=[RunWorkflow, SchedulerWorkflow],
        activities=stage.activities,
        workflow_runner=runner,
    ):
        yield stage
    await ledger.close()
