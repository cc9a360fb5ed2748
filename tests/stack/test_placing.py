"""Gangs that contend: whole or waiting, never halves; kept within a fabric; patient; pinned."""

import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from stack.conftest import shell
from support.stack import DevStack

HOLD = "trap 'exit 0' TERM; sleep 600 & wait"
FLEETS = Path(__file__).parents[2] / "deploy" / "fleets"


def eight(name: str, script: str = HOLD, **more: Any) -> dict[str, Any]:
    """A gang of eight whole machines."""
    return shell(name, script, machines=8, gpus=8, **more)


def pinned(level: str, name: str) -> dict[str, Any]:
    """Only machines of one leaf group, fabric or the like."""
    return {"machine_selection": {"mode": "Any", "match_labels": {f"topology.astraeus.io/{level}": name}}}


def recipe_like(recipe: dict[str, Any], name: str, patience: int) -> dict[str, Any]:
    spec = copy.deepcopy(recipe)
    spec["metadata"]["name"] = name
    task = spec["spec"]["task_template"]
    task["args"] = ["-c", "true"]
    task["requested_resources"]["topology"]["patience_seconds"] = patience
    return spec


@pytest.fixture
def clean(stack: DevStack) -> Iterator[DevStack]:
    """The shared stack, emptied afterwards."""
    yield stack
    names = [run["metadata"]["name"] for run in stack.api("GET", "/runs").json()["items"]]
    for name in names:
        stack.api("DELETE", f"/runs/{name}")
    stack.until(lambda: not stack.api("GET", "/runs").json()["items"], 60, "empty workspace")


def test_two_gangs_that_want_the_last_eight_machines(clean: DevStack) -> None:
    clean.submit(eight("ahead"))
    clean.reach("ahead", "Running")
    clean.submit(eight("first"))
    clean.submit(eight("second"))
    clean.reach("first", "Running")
    waiting = clean.see("second", lambda run: run["reason"].startswith("Needs"), 30, "blockers")
    assert (waiting["state"], waiting["workers"]) == ("Pending", [])
    machines = clean.api("GET", "/machines").json()["items"]
    assert sum(machine["used_gpus"] for machine in machines) == 128
    clean.api("POST", "/runs/first:cancel")
    assert clean.reach("second", "Running")["state"] == "Running"


def test_patience_that_runs_out_takes_what_is_free(clean: DevStack, recipe: dict[str, Any]) -> None:
    for leaf in (0, 1):
        clean.submit(shell(f"half-{leaf}", HOLD, machines=4, gpus=8, resources=pinned("leaf", f"leaf-r0-7-g{leaf}")))
        clean.reach(f"half-{leaf}", "Running")
    clean.submit(recipe_like(recipe, "patient", 4))
    waiting = clean.see("patient", lambda run: run["reason"].startswith("Waiting up to"), 30, "patience")
    assert " more for one leaf switch (leaf-r0-7-g" in waiting["reason"]
    assert "could start now on InfiniBand fabric sm-0x0002c90300a1b2c3, ~313 GB/s all-reduce)" in waiting["reason"]
    run = clean.reach("patient", "Succeeded", "Failed")
    assert run["state"] == "Succeeded"
    assert run["network"]["network"] == "fabric:sm-0x0002c90300a1b2c3"
    assert run["network"]["words"] == "2 leaves under one spine group"
    assert run["network"]["estimate"]["busbw_gbps"] == 313.2


def test_a_pin_to_a_leaf_is_kept(clean: DevStack, recipe: dict[str, Any]) -> None:
    spec = recipe_like(recipe, "pinned", 0)
    spec["spec"]["task_template"]["requested_resources"] |= pinned("leaf", "leaf-r0-7-g1")
    clean.submit(spec)
    assert clean.reach("pinned", "Succeeded")["network"]["network"] == "leaf:leaf-r0-7-g1"


def test_a_gang_of_one_and_a_cpu_only_run(clean: DevStack) -> None:
    clean.submit(shell("one", "true", gpus=8))
    assert clean.reach("one", "Succeeded")["network"]["words"] == "one machine"
    clean.submit(shell("cpu", 'test -z "${CUDA_VISIBLE_DEVICES}"', gpus=0))
    assert clean.reach("cpu", "Succeeded", "Failed")["state"] == "Succeeded"


def test_a_request_the_cluster_can_never_meet_says_so(clean: DevStack) -> None:
    clean.submit(shell("huge", "true", machines=17, gpus=8))
    reason = clean.see("huge", lambda run: run["reason"].startswith("Needs"), 30)["reason"]
    assert reason.startswith("Needs 17 machines")
    assert "16" in reason


@pytest.mark.slow
def test_a_gang_is_never_split_across_two_half_free_fabrics(tmp_path: Path, recipe: dict[str, Any]) -> None:
    with DevStack(tmp_path, ["--fleet", str(FLEETS / "two-fabrics.yaml")]) as stack:
        fabrics = {m["labels"]["topology.astraeus.io/fabric"] for m in stack.api("GET", "/machines").json()["items"]}
        for i, fabric in enumerate(sorted(fabrics)):
            stack.submit(shell(f"half-{i}", HOLD, machines=4, gpus=8, resources=pinned("fabric", fabric)))
            stack.reach(f"half-{i}", "Running")
        stack.submit(recipe_like(recipe, "whole", 0))
        waiting = stack.see("whole", lambda run: run["reason"].startswith("Needs"), 30)
        assert "on one InfiniBand fabric" in waiting["reason"]
        assert waiting["state"] == "Pending"


@pytest.mark.slow
def test_a_gang_of_64_workers_of_one_gpu(tmp_path: Path) -> None:
    with DevStack(tmp_path, ["--fleet", str(FLEETS / "sixty-four-small.yaml")]) as stack:
        stack.submit(shell("wide", "echo rank $RANK of $WORLD_SIZE", machines=64, gpus=1))
        run = stack.reach("wide", "Succeeded", "Failed")
        assert run["state"] == "Succeeded", run["reason"]
        assert len({worker["machine"] for worker in run["workers"]}) == 64
