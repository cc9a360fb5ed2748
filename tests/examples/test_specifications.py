"""The specifications under deploy/examples are good ones, and say what the recipe says."""

import json
from pathlib import Path
from typing import Any

import pytest

from astraeus.agent.fleet import default_fleet, load_fleet
from astraeus.model.faults import parse_submission

EXAMPLES = Path(__file__).parents[2] / "deploy/examples"


def read(name: str) -> Any:
    return json.loads((EXAMPLES / name).read_text())


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.json")), ids=lambda path: path.name)
def test_it_is_a_good_specification(path: Path) -> None:
    wanted = parse_submission(json.loads(path.read_text())).spec.task_template.requested_resources
    assert wanted.machines
    assert wanted.gpu_requests.count == 8 * wanted.machines


def test_the_demo_asks_for_the_recipes_machines_and_differs_in_the_command_only() -> None:
    recipe, demo = read("train-64gpu.json"), read("demo-64gpu.json")
    for spec in (recipe, demo):
        for key in ("args", "env"):
            del spec["spec"]["task_template"][key]
    assert demo == recipe


def test_the_demos_preemptor_outranks_the_gang_and_needs_the_whole_fleet() -> None:
    gang, preemptor = (parse_submission(read(name)).spec for name in ("demo-64gpu.json", "eval-release.json"))
    assert preemptor.priority > gang.priority
    fleet = load_fleet(default_fleet())
    assert preemptor.task_template.requested_resources.machines == len(fleet.machines)


def test_the_demo_saves_and_tells_so_often_that_every_part_of_it_has_steps_to_tell() -> None:
    env = read("demo-64gpu.json")["spec"]["task_template"]["env"]
    steps, save_every = int(env["STEPS"]), int(env["SAVE_EVERY"])
    assert env["LOG_EVERY"] == env["SAVE_EVERY"]
    assert 10 * save_every <= steps


@pytest.mark.parametrize("name", ["train-64gpu.json", "demo-64gpu.json", "eval-release.json"])
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
