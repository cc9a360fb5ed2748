"""Measures what surviving costs: a lost machine, its detection, and a preemption, each to the next start of a process.

The virtual fleet's processes are real. A gang that loses a machine waits 10 s by design before it starts again, and its
machine's silence must be certain first: both are taken off `recovery_ms_p50`.
"""

import json
import statistics
import tempfile
import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

from astraeus.agent import control
from tests.support.stack import DevStack

BACKOFF_SECONDS = 10.0
ROUNDS, AT_ONCE = 3, 3
"""Three of sixteen machines are what may be lost at once without an alarm."""

PREEMPTIONS = 11
HOLD = ("sleep", "3600")

Row = dict[str, Any]


def gang(name: str, machines: int, command: tuple[str, ...] = HOLD, **spec: Any) -> dict[str, Any]:
    """A gang of whole machines; `sleep` stops at once when it is told to."""
    resources = {"gpu_requests": {"count": machines * 8}, "machines": machines}
    task = {"command": command[0], "args": list(command[1:]), "requested_resources": resources}
    return {"metadata": {"name": name}, "spec": {"task_template": task, **spec}}


def gates(stack: DevStack, uid: str, attempt: int) -> list[float]:
    """When each member's gate opened, in seconds since the epoch, by the shims' own files."""
    found = (stack.directory / "agent").glob(f"machines/*/workers/{uid}/{attempt}/*/state.json")
    opened = [json.loads(path.read_text()).get("gate_opened_at") for path in found]
    return [at for at in opened if at]


def losses(stack: DevStack) -> dict[str, float]:
    """When each machine was last declared lost."""
    items = stack.api("GET", "/events?limit=1000").json()["items"]
    return {
        item["message"].split()[0]: datetime.fromisoformat(item["at"]).timestamp()
        for item in items
        if item["kind"] == "machine_lost"
    }


def lose(stack: DevStack, names: list[str]) -> Iterator[tuple[float, float]]:
    """Let each gang lose a machine; its detection and what its recovery took besides, in seconds."""
    off: dict[str, tuple[str, str, float]] = {}
    for name in names:
        run = stack.reach(name, "Running")
        place = run["workers"][1]["machine"]
        control.power(stack.directory / "agent", place, False)
        off[name] = (run["metadata"]["uid"], place, time.time())
    for name, (uid, place, at) in off.items():
        stack.see(name, lambda run: run["state"] == "Running" and run["attempt"] == 2, 90, "second attempt")
        lost = losses(stack)[place]
        yield lost - at, min(gates(stack, uid, 2)) - lost - BACKOFF_SECONDS


def recoveries(stack: DevStack) -> Iterator[Row]:
    """Gangs lose machines, some at a time."""
    detections, rests = [], []
    for number in range(ROUNDS):
        names = [f"lost-{number}-{i}" for i in range(AT_ONCE)]
        for name in names:
            stack.submit(gang(name, 4))
        for detection, rest in lose(stack, names):
            detections.append(detection)
            rests.append(rest * 1000)
        restore(stack, names)
    yield row("recovery_ms_p50", statistics.median(rests), "ms")
    yield row("detection_s_max", max(detections), "s")


def restore(stack: DevStack, names: list[str]) -> None:
    """All machines back, and nothing on them."""
    for name in names:
        stack.api("DELETE", f"/runs/{name}")
    for machine in stack.api("GET", "/machines").json()["items"]:
        if machine["state"] != "Ready":
            control.power(stack.directory / "agent", machine["name"], True)
    stack.until(lambda: all(one["state"] == "Ready" for one in machines(stack)), 60, "all machines")
    stack.until(lambda: not any(one["used_gpus"] for one in machines(stack)), 60, "empty machines")


def machines(stack: DevStack) -> list[dict[str, Any]]:
    """The fleet as the API shows it."""
    found: list[dict[str, Any]] = stack.api("GET", "/machines").json()["items"]
    return found


def preemptions(stack: DevStack) -> Iterator[Row]:
    """From the POST of an urgent gang to the last of its gates, over two gangs that stop at once."""
    stack.submit(gang("aside", 8, preemptible=False))
    stack.reach("aside", "Running")
    victims = ["victim-0", "victim-1"]
    for name in victims:
        stack.submit(gang(name, 4))
    took = []
    for number in range(PREEMPTIONS):
        for name in victims:
            stack.reach(name, "Running")
        posted = time.time()
        uid = stack.submit(gang(f"urgent-{number}", 8, ("true",), priority=10))["metadata"]["uid"]
        stack.reach(f"urgent-{number}", "Succeeded")
        took.append((max(gates(stack, uid, 1)) - posted) * 1000)
    for name in victims:
        assert stack.run(name)["restarts"]["left"] == 10
    yield row("preempt_to_start_ms_p50", statistics.median(took[1:]), "ms")


def row(name: str, value: float, unit: str) -> Row:
    """One line of the table."""
    return {"name": name, "value": round(value, 2), "unit": unit}


def measure() -> Iterator[Row]:
    """Everything, on one stack."""
    with tempfile.TemporaryDirectory() as folder, DevStack(Path(folder) / "stack") as stack:
        yield from recoveries(stack)
        yield from preemptions(stack)
