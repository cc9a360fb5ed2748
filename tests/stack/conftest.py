import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.stack import DevStack

EXAMPLES = Path(__file__).parents[2] / "deploy" / "examples"


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DevStack]:
    """A whole stack with the default fleet, shared by a module's tests."""
    with DevStack(tmp_path_factory.mktemp("stack")) as stack:
        yield stack


@pytest.fixture(scope="session")
def recipe() -> dict[str, Any]:
    """The recipe's specification, word for word."""
    found: dict[str, Any] = json.loads((EXAMPLES / "train-64gpu.json").read_text())
    return found


def small(
    name: str,
    command: list[str],
    machines: int = 1,
    gpus: int = 1,
    task: dict[str, Any] | None = None,
    resources: dict[str, Any] | None = None,
    **spec: Any,
) -> dict[str, Any]:
    """A gang of `machines` workers of `gpus` GPUs each."""
    wanted = {"gpu_requests": {"count": machines * gpus}, "machines": machines, **(resources or {})}
    body = {"command": command[0], "args": command[1:], "requested_resources": wanted, **(task or {})}
    return {"metadata": {"name": name}, "spec": {"task_template": body, **spec}}


def shell(name: str, script: str, **more: Any) -> dict[str, Any]:
    """A gang whose members run a line of shell."""
    return small(name, ["bash", "-c", script], **more)


def logs(stack: DevStack, worker: str, **query: Any) -> bytes:
    """A worker's log as the API gives it."""
    run = worker.rpartition("-")[0]
    answer = stack.api("GET", f"/runs/{run}/logs/{worker}", params=query)
    assert answer.status_code == 200, answer.text
    return answer.content
