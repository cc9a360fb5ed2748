"""The specifications under deploy/examples are good ones, and say what the recipe says."""

import json
from pathlib import Path
from typing import Any

import pytest

from astraeus.model.faults import parse_submission

EXAMPLES = Path(__file__).parents[2] / "deploy/examples"


def read(name: str) -> Any:
    return json.loads((EXAMPLES / name).read_text())


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.json")), ids=lambda path: path.name)
def test_it_is_a_good_specification(path: Path) -> None:
    submission = parse_submission(json.loads(path.read_text()))
    assert submission.spec.task_template.requested_resources.gpu_requests.count == 64


def test_the_demo_asks_for_the_recipes_machines_and_differs_in_the_command_only() -> None:
    recipe, demo = read("train-64gpu.json"), read("demo-64gpu.json")
    for spec in (recipe, demo):
        for key in ("args", "env"):
            del spec["spec"]["task_template"][key]
    assert demo == recipe


@pytest.mark.parametrize("name", ["train-64gpu.json", "demo-64gpu.json"])
def test_the_command_is_run_by_exec_so_that_the_signal_arrives(name: str) -> None:
    task = read(name)["spec"]["task_template"]
    assert task["command"] == "bash"
    assert task["args"][0] == "-c"
    assert task["args"][1].startswith("exec ")


@pytest.mark.parametrize("script", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.name)
def test_a_script_fits_into_a_config(script: Path) -> None:
    spec = read("train-64gpu.json")
    spec["spec"]["task_template"]["configs"] = [{"mounts": [f"/app/{script.name}"], "value": script.read_text()}]
    parse_submission(spec)
