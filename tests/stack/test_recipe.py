"""The recipe, step by step, on a real stack: submitted, placed, started together, trained, resumed, cleaned up."""

import copy
import json
import subprocess
from typing import Any

import pytest
from stack.conftest import EXAMPLES, logs
from support.stack import DevStack

TRAINER = (EXAMPLES / "train_numpy.py").read_text()


def with_trainer(recipe: dict[str, Any], **env: str) -> dict[str, Any]:
    """The recipe's specification with the NumPy trainer in place of torchrun's script."""
    spec = copy.deepcopy(recipe)
    task = spec["spec"]["task_template"]
    task["args"] = ["-c", "exec python3 /app/train_numpy.py"]
    task["env"] = {"STEPS": "60", "STEP_SECONDS": "0.05", "LOG_EVERY": "10", "SAVE_EVERY": "10", **env}
    task["configs"] = [{"mounts": ["/app/train_numpy.py"], "value": TRAINER}]
    return spec


@pytest.fixture(scope="module")
def finished(stack: DevStack, recipe: dict[str, Any]) -> list[dict[str, Any]]:
    """The 64-GPU gang from POST to its end: every different state and reason seen on the way."""
    spec = with_trainer(recipe)
    answer = subprocess.run(
        [
            *("curl", "-fsS", "-X", "POST", f"{stack.facts['api']}/runs"),
            *("-H", "content-type: application/json", "-H", f"Authorization: Bearer {stack.facts['token']}"),
            *("--data-binary", "@-"),
        ],
        input=json.dumps(spec).encode(),
        capture_output=True,
        check=True,
    )
    assert json.loads(answer.stdout)["metadata"]["name"] == "resnet-64gpu"
    seen: list[dict[str, Any]] = []

    def look(run: dict[str, Any]) -> bool:
        if not seen or (seen[-1]["state"], seen[-1]["reason"]) != (run["state"], run["reason"]):
            seen.append(run)
        return run["state"] in ("Succeeded", "Failed")

    stack.see("resnet-64gpu", look, 120, "end")
    return seen


def test_the_gang_starts_together_and_succeeds(finished: list[dict[str, Any]]) -> None:
    states = [run["state"] for run in finished]
    assert states[-1] == "Succeeded", finished[-1]["reason"]
    assert "Running" in states
    running = next(run for run in finished if run["state"] == "Running")
    assert len(running["workers"]) == 8
    assert running["restarts"] == {"budget": 10, "left": 10, "next_earned_at": None}


def test_the_network_field_names_what_it_got(finished: list[dict[str, Any]]) -> None:
    network = finished[-1]["network"]
    assert network["network"].startswith("leaf:leaf-r0-7-g")
    assert network["words"] == "one leaf group"
    assert network["estimate"] == {
        "busbw_gbps": 368.4,
        "words": "one leaf switch",
        "basis": "8 × 400 Gb/s rails, × 0.92",
    }


def test_the_runs_table_has_the_recipes_columns(stack: DevStack, finished: list[dict[str, Any]]) -> None:
    head, line = stack.astra("astraeus", "runs").stdout.splitlines()[:2]
    assert head.split() == ["NAME", "CLUSTER", "STATE", "REASON"]
    assert line.split()[:3] == ["resnet-64gpu", "lab-a", "Succeeded"]


def test_rank_0_logs_its_steps_on_64_gpus(stack: DevStack, finished: list[dict[str, Any]]) -> None:
    told = stack.astra("astraeus", "logs", "resnet-64gpu-0").stdout
    assert "on 64 GPUs" in told
    assert told == logs(stack, "resnet-64gpu-0").decode()
    last = stack.astra("astraeus", "logs", "resnet-64gpu-0", "--tail", "1").stdout
    assert told.endswith(last)
    assert last.count("\n") == 1


def test_every_member_found_its_environment(stack: DevStack, recipe: dict[str, Any]) -> None:
    spec = copy.deepcopy(recipe)
    spec["metadata"]["name"] = "environment"
    spec["spec"]["task_template"] |= {"args": ["-c", "env; test -d /ckpt -a -w /ckpt"], "env": {"STEPS": "5"}}
    stack.submit(spec)
    run = stack.reach("environment", "Succeeded", "Failed")
    assert run["state"] == "Succeeded", run["reason"]
    for rank in (0, 7):
        lines = logs(stack, f"environment-{rank}").decode().splitlines()
        env = dict(line.split("=", 1) for line in lines if "=" in line)
        assert env["RANK"] == str(rank)
        assert env["WORLD_SIZE"] == "8"
        assert env["ASTRAEUS_GPU_COUNT"] == "8"
        assert env["CUDA_VISIBLE_DEVICES"] == "0,1,2,3,4,5,6,7"
        assert env["NCCL_ASYNC_ERROR_HANDLING"] == env["TORCH_NCCL_ASYNC_ERROR_HANDLING"] == "1"
        assert env["NCCL_IB_HCA"] == "=" + ",".join(f"mlx5_{i}:1" for i in range(8))
        assert env["ASTRAEUS_RUN_NAME"] == "environment"
        assert env["ASTRAEUS_WORKER_NAME"] == f"environment-{rank}"
        assert env["ASTRAEUS_ATTEMPT"] == "1"
        assert env["ASTRAEUS_WORKSPACE"] == "acme/vision"
        assert env["ASTRAEUS_CLUSTER"] == "lab-a"
        assert env["MASTER_ADDR"] == "127.0.0.1"
        assert env["MASTER_PORT"].isdigit()
        assert env["STEPS"] == "5"
        assert not any("ast_" in value for value in env.values())


def test_a_template_runs_under_a_new_name(stack: DevStack, recipe: dict[str, Any]) -> None:
    spec = with_trainer(recipe, STEPS="3")
    assert stack.api("PUT", "/templates/resnet-64gpu", json=spec).is_success
    told = stack.astra("astraeus", "run", "--template", "resnet-64gpu", "--name", "resnet-64gpu-run1").stdout
    page = f"{stack.facts['console']}/o/acme/w/vision/runs/lab-a/resnet-64gpu-run1"
    assert f"resnet-64gpu-run1 submitted to lab-a: {page}" in told.splitlines()
    assert stack.reach("resnet-64gpu-run1", "Succeeded", "Failed")["state"] == "Succeeded"


def test_a_preempted_gang_resumes_where_it_saved(stack: DevStack, recipe: dict[str, Any]) -> None:
    spec = with_trainer(recipe, STEPS="150")
    spec["metadata"]["name"] = "resume"
    stack.submit(spec)
    stack.reach("resume", "Running")
    stack.until(lambda: b"step 20/" in logs(stack, "resume-0"), 60, "step 20")
    stack.astra("preempt", "resume")
    run = stack.see("resume", lambda run: run["attempt"] == 2 and run["state"] in ("Succeeded", "Failed"), 90)
    assert run["state"] == "Succeeded", run["reason"]
    assert run["restarts"]["left"] == 10
    assert b"resuming at step" in logs(stack, "resume-0", attempt=2)
    assert b"resuming" not in logs(stack, "resume-0", attempt=1)


def test_delete_frees_the_name(stack: DevStack, finished: list[dict[str, Any]]) -> None:
    stack.astra("astraeus", "delete", "resnet-64gpu")
    assert stack.api("GET", "/runs/resnet-64gpu").status_code == 404
    assert stack.astra("get", "resnet-64gpu", check=False).returncode == 3
