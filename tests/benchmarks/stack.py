"""Measures the embedded stack: start of a gang, skew of its gates, a burst of runs, the size of histories.

Times are taken on one computer, from outside: the client's clock for the POST, the shims' files for the gates.
"""

import asyncio
import json
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
from temporalio.client import Client

from tests.support.stack import DevStack

GANG, REPEATS = 8, 15
BURST = 200
LARGE = 512
FLEET = """\
# {count} machines of one GPU, all on one leaf group.
cluster: lab-a
machines:
  b-{{0..{last}}}:
    gpus: 1
    gpu_model: NVIDIA H100 80GB HBM3
    cpu_cores: 64
    memory: 256GiB
    rails: {{count: 1, gbps: 400}}
    labels: {{leaf: leaf-0, spine: s0, fabric: fab-0, rack: r0}}
"""

Row = dict[str, Any]


def gang(name: str, machines: int, command: str = "true", gpus: int = 1) -> dict[str, Any]:
    """A gang of `machines` workers of `gpus` GPUs."""
    resources = {"gpu_requests": {"count": machines * gpus}, "machines": machines}
    task = {"command": command, "requested_resources": resources}
    return {"metadata": {"name": name}, "spec": {"task_template": task}}


def gates(stack: DevStack, uid: str) -> list[float]:
    """When each member's gate opened, in seconds since the epoch."""
    found = (stack.directory / "agent").glob(f"machines/*/workers/{uid}/*/*/state.json")
    return [json.loads(path.read_text())["gate_opened_at"] for path in found]


def starts(stack: DevStack) -> Iterator[Row]:
    """From the POST to the last gate, and how far the gates are apart."""
    overheads, skews = [], []
    for i in range(REPEATS + 2):
        posted = time.time()
        uid = stack.submit(gang(f"start-{i}", GANG))["metadata"]["uid"]
        stack.reach(f"start-{i}", "Succeeded")
        opened = gates(stack, uid)
        overheads.append((max(opened) - posted) * 1000)
        skews.append((max(opened) - min(opened)) * 1000)
    yield row("start_overhead_ms_p50", statistics.median(overheads[2:]), "ms")
    yield row("gate_skew_ms_p95", statistics.quantiles(skews[2:], n=20)[-1], "ms")


def burst(stack: DevStack) -> Iterator[Row]:
    """Many gangs at once; memory is the worker process's growth while all are open."""
    worker = psutil.Process(stack.facts["pids"]["worker"])
    before = worker.memory_info().rss
    began = time.monotonic()
    for i in range(BURST):
        stack.submit(gang(f"burst-{i}", GANG))
    peak = before
    left = {f"burst-{i}" for i in range(BURST)}
    while left:
        peak = max(peak, worker.memory_info().rss)
        done = states(stack)
        failed = {name for name in left if done.get(name) in ("Failed", "Cancelled")}
        assert not failed, f"{failed} did not succeed"
        left = {name for name in left if done.get(name) != "Succeeded"}
        time.sleep(0.2)
    yield row("runs_per_minute_200x8", BURST / (time.monotonic() - began) * 60, "runs/min")
    yield row("worker_mb_per_open_run", (peak - before) / BURST / 2**20, "MB")


def states(stack: DevStack) -> dict[str, str]:
    """Every run's state, by name."""
    found: dict[str, str] = {}
    cursor = ""
    while True:
        page = stack.api("GET", f"/runs?limit=500{cursor}").json()
        found |= {item["metadata"]["name"]: item["state"] for item in page["items"]}
        if not page["next_cursor"]:
            return found
        cursor = f"&cursor={page['next_cursor']}"


def history(stack: DevStack, size: int) -> Row:
    """Events in the history of a run of one attempt."""
    name = f"history-{size}"
    uid = stack.submit(gang(name, size))["metadata"]["uid"]
    run = stack.reach(name, "Succeeded", "Failed", seconds=300)
    assert (run["state"], run["attempt"]) == ("Succeeded", 1), run["reason"]
    count = asyncio.run(_events(stack.facts["temporal"], f"run/acme/vision/{name}/{uid}"))
    return row(f"history_events_{size}", count, "events")


async def _events(address: str, workflow_id: str) -> int:
    client = await Client.connect(address)
    handle = client.get_workflow_handle(workflow_id)
    return sum([1 async for _ in handle.fetch_history_events()])


def row(name: str, value: float, unit: str) -> Row:
    """One line of the table."""
    return {"name": name, "value": round(value, 2), "unit": unit}


def measure() -> Iterator[Row]:
    """Everything, on two stacks."""
    with tempfile.TemporaryDirectory() as folder:
        with DevStack(Path(folder) / "small") as stack:
            yield from starts(stack)
            yield from burst(stack)
            yield history(stack, GANG)
        fleet = Path(folder) / "fleet.yaml"
        fleet.write_text(FLEET.format(count=LARGE, last=LARGE - 1))
        with DevStack(Path(folder) / "large", ["--fleet", str(fleet)]) as stack:
            yield history(stack, LARGE)
