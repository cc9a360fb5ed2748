"""The recipe's steps 5 and 6, word for word: a gang that is preempted, and one that loses a machine."""

import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from stack.conftest import shell
from support.scripts import attempts, until
from support.stack import DevStack

from astraeus.agent import control


@pytest.fixture
def clean(stack: DevStack) -> Iterator[DevStack]:
    """The shared stack, emptied afterwards and with all its machines."""
    yield stack
    for run in stack.api("GET", "/runs").json()["items"]:
        stack.api("DELETE", f"/runs/{run['metadata']['name']}")
    stack.until(lambda: not stack.api("GET", "/runs").json()["items"], 60, "empty workspace")


def recipes(recipe: dict[str, Any], script: str) -> dict[str, Any]:
    """The recipe's specification with another script, and no patience to wait for."""
    spec = copy.deepcopy(recipe)
    spec["spec"]["task_template"]["args"] = ["-c", script]
    spec["spec"]["task_template"]["requested_resources"]["topology"]["patience_seconds"] = 0
    return spec


def test_step_5_preempted_and_back_without_a_charge(clean: DevStack, recipe: dict[str, Any], tmp_path: Path) -> None:
    trained, released = tmp_path / "trained", tmp_path / "released"
    clean.submit(shell("other", until(tmp_path / "other"), machines=8, gpus=8, preemptible=False))
    clean.reach("other", "Running")
    clean.submit(recipes(recipe, until(trained)))
    clean.reach("resnet-64gpu", "Running")
    clean.submit(shell("eval-release", until(released), machines=8, gpus=8, priority=10))
    clean.reach("eval-release", "Running")
    words = "Preempted by higher-priority work (eval-release); waiting to run again"
    run = clean.run("resnet-64gpu")
    assert (run["state"], run["reason"], run["restarts"]["left"]) == ("Pending", words, 10)
    told = clean.astra("astraeus", "runs").stdout.splitlines()
    assert told[0].split() == ["NAME", "CLUSTER", "STATE", "REASON"]
    assert any(line.split(maxsplit=3) == ["resnet-64gpu", "lab-a", "Pending", words] for line in told)
    released.touch()
    clean.reach("eval-release", "Succeeded")
    run = clean.see("resnet-64gpu", lambda run: run["state"] == "Running" and run["attempt"] == 2, 30)
    assert run["restarts"] == {"budget": 10, "left": 10, "next_earned_at": None}
    trained.touch()
    clean.reach("resnet-64gpu", "Succeeded")
    assert attempts(clean, "resnet-64gpu") == [(1, "preempted", False), (2, "succeeded", False)]


@pytest.mark.slow
def test_step_6_a_lost_machine_restarts_the_gang_elsewhere(
    clean: DevStack, recipe: dict[str, Any], tmp_path: Path
) -> None:
    trained = tmp_path / "trained"
    clean.submit(recipes(recipe, until(trained)))
    run = clean.reach("resnet-64gpu", "Running")
    lost = next(worker["machine"] for worker in run["workers"] if worker["name"] == "resnet-64gpu-5")
    control.power(clean.directory / "agent", lost, False)
    words = "Gang restart: resnet-64gpu-5 lost its machine"
    run = clean.see("resnet-64gpu", lambda run: run["state"] == "Pending", 40, "restart")
    assert (run["reason"], run["restarts"]["left"]) == (words, 9)
    line = next(line for line in clean.astra("astraeus", "runs").stdout.splitlines() if "resnet" in line)
    assert line.split(maxsplit=3) == ["resnet-64gpu", "lab-a", "Pending", words]
    assert clean.api("GET", f"/machines/{lost}").json()["state"] == "Down"
    run = clean.see("resnet-64gpu", lambda run: run["state"] == "Running" and run["attempt"] == 2, 40)
    assert lost not in {worker["machine"] for worker in run["workers"]}
    assert run["restarts"]["left"] == 9
    assert run["restarts"]["next_earned_at"]
    control.power(clean.directory / "agent", lost, True)
    clean.until(lambda: clean.api("GET", f"/machines/{lost}").json()["state"] == "Ready", 30, "machine back")
    trained.touch()
    clean.reach("resnet-64gpu", "Succeeded")
    assert attempts(clean, "resnet-64gpu") == [(1, "machine_lost", True), (2, "succeeded", False)]
