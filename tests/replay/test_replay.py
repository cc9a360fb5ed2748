"""Recorded histories of runs replay on the workflow code of today: open runs survive an upgrade.

Files are named after the release that wrote them and are only ever added, never made anew. A new one comes from
`ASTRAEUS_RECORD_HISTORIES=<folder> pytest tests/lifecycle`.
"""

from collections.abc import Callable
from pathlib import Path

import pytest
from temporalio import workflow
from temporalio.client import WorkflowHistory
from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.worker import Replayer
from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner, SandboxRestrictions

from workflows.run import RunWorkflow

HISTORIES = sorted(Path(__file__).parent.glob("*.json"))


def replayer() -> Replayer:
    runner = SandboxedWorkflowRunner(restrictions=SandboxRestrictions.default.with_passthrough_modules("astraeus"))
    return Replayer(workflows=[RunWorkflow], data_converter=pydantic_data_converter, workflow_runner=runner)


def history(path: Path, change: Callable[[str], str] = str) -> WorkflowHistory:
    return WorkflowHistory.from_json(path.stem, change(path.read_text()))


@pytest.mark.parametrize("path", HISTORIES, ids=lambda path: path.stem)
async def test_a_recorded_life_replays(path: Path) -> None:
    result = await replayer().replay_workflow(history(path))
    assert result.replay_failure is None


async def test_a_changed_order_of_steps_is_noticed() -> None:
    changed = history(HISTORIES[0], lambda text: text.replace('"start_workers"', '"open_gates_first"'))
    with pytest.raises(workflow.NondeterminismError):
        await replayer().replay_workflow(changed)
