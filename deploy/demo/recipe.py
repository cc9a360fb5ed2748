"""The recipe's steps 2 to 4 and 7: written, submitted, started together on the network it asked for; cleaned up."""

import json
from pathlib import Path
from typing import Any

import httpx

from astraeus.agent import control
from deploy.demo.stack import Stack
from deploy.demo.telling import expect, say
from deploy.demo.watch import GLANCE_SECONDS, Watch, steps_of

EXAMPLES = Path(__file__).parents[1] / "examples"
NAME = "resnet-64gpu"
LATE = ("m-6", "m-7")
SIX_READY = "Starting together: 6 of 8 ready"
NETWORK = {
    "words": "one leaf group",
    "estimate": {"busbw_gbps": 368.4, "words": "one leaf switch", "basis": "8 × 400 Gb/s rails, × 0.92"},
}
TORCH_STEPS = 10


def specification(torch: bool) -> dict[str, Any]:
    """The recipe's specification with the script put in as `jq --rawfile` does."""
    name, script = ("train-64gpu.json", "train_ddp.py") if torch else ("demo-64gpu.json", "train_numpy.py")
    spec: dict[str, Any] = json.loads((EXAMPLES / name).read_text())
    task = spec["spec"]["task_template"]
    task["configs"] = [{"mounts": [f"/app/{script}"], "value": (EXAMPLES / script).read_text()}]
    if torch:
        task["env"]["STEPS"] = str(TORCH_STEPS)
    told = " ".join(f"{key}={value}" for key, value in task["env"].items())
    say(f"# {name} with {script} as /app/{script}, and {told}")
    return spec


def start(stack: Stack, watch: Watch, spec: dict[str, Any], seconds: float) -> None:
    """The gang waits at the barrier for the members that are late, and then starts as one, on one leaf group."""
    say(f"# The network of {' and '.join(LATE)} is cut for a moment, so that two members will be late.")
    cut(stack, True)
    submit(watch, spec)
    watch.until(lambda run: run["reason"] == SIX_READY, seconds, GLANCE_SECONDS)
    say(f"# Six wait for the two. The network of {' and '.join(LATE)} is joined again:")
    cut(stack, False)
    run = watch.until(lambda run: run["state"] == "Running", seconds, GLANCE_SECONDS)
    states = list(dict.fromkeys(state for state, _ in watch.seen))
    expect(states == ["Pending", "Starting", "Running"], f"the run went through {states}")
    check_network(run)
    show(run, "network")
    stack.astra("astraeus", "runs")


def cut(stack: Stack, away: bool) -> None:
    """Cut the network of two virtual machines, or join it again; their leases last longer than this takes."""
    for machine in LATE:
        control.unplug(stack.directory / "agent", machine, away)


def submit(watch: Watch, spec: dict[str, Any]) -> None:
    """The recipe's POST."""
    say(f'$ curl -X POST "$ASTRALYX_API/runs" --data-binary @…  # then GET runs/{NAME}, often')
    answer = watch.client.post("runs", json=spec)
    expect(answer.status_code == 201, f"POST /runs answered {answer.status_code}: {answer.text}")
    watch.note(answer.json())


def show(run: dict[str, Any], key: str) -> None:
    """A part of the run as the API gives it and `jq` lays it out."""
    say(f'$ curl "$ASTRALYX_API/runs/{NAME}" | jq .{key}')
    say(json.dumps(run[key], indent=2, ensure_ascii=False))


def check_network(run: dict[str, Any]) -> None:
    """It got what the recipe promises."""
    network = run["network"]
    expect(network["network"].startswith("leaf:leaf-r0-7-g"), f"placed on {network['network']}")
    expect({key: network[key] for key in NETWORK} == NETWORK, f"the network is {network}")
    workers = run["workers"]
    machines = {worker["machine"] for worker in workers}
    expect(len(machines) == len(workers) == 8, f"{len(workers)} workers on {sorted(machines)}")
    expect(all(len(worker["gpus"]) == 8 for worker in workers), "a worker has not 8 GPUs")


def finish(stack: Stack, watch: Watch, seconds: float) -> None:
    """It trains to the end."""
    watch.until(lambda run: run["state"] == "Succeeded", seconds)
    expect(steps_of(stack.astra("astraeus", "logs", f"{NAME}-0", last=3)), "no step in the log")


def clean_up(stack: Stack, client: httpx.Client) -> None:
    """The recipe's last step."""
    for run in client.get("runs").raise_for_status().json()["items"]:
        stack.astra("astraeus", "delete", run["metadata"]["name"])
    stack.astra("astraeus", "runs")
    expect(not client.get("runs").raise_for_status().json()["items"], "a run is still listed")
