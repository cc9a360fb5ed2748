"""Two machines of eight GPUs: preemption and losses in every combination that two machines allow."""

import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
from stack.conftest import shell
from support.scripts import attempts, deaf, until
from support.stack import DevStack

from astraeus.agent import control

FLEET = """\
# Two machines on one leaf group.
cluster: lab-a
machines:
  m-{0..1}:
    gpus: 8
    gpu_model: NVIDIA H100 80GB HBM3
    cpu_cores: 64
    memory: 256GiB
    rails: {count: 8, gbps: 400}
    labels: {leaf: leaf-0, spine: s0, fabric: fab-0, rack: r0}
"""
BOTH = ("m-0", "m-1")


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DevStack]:
    """A stack of two machines, shared by the tests."""
    directory = tmp_path_factory.mktemp("pair")
    fleet = directory / "fleet.yaml"
    fleet.write_text(FLEET)
    with DevStack(directory / "stack", ["--fleet", str(fleet)]) as stack:
        yield stack


@pytest.fixture
def pair(stack: DevStack) -> Iterator[DevStack]:
    """The stack, with both machines ready and empty again afterwards."""
    yield stack
    for name in BOTH:
        control.power(stack.directory / "agent", name, True)
        control.unplug(stack.directory / "agent", name, False)
    for run in stack.api("GET", "/runs").json()["items"]:
        stack.api("DELETE", f"/runs/{run['metadata']['name']}")
    stack.until(lambda: not stack.api("GET", "/runs").json()["items"], 60, "empty workspace")
    stack.until(lambda: all(machine["state"] == "Ready" for machine in machines(stack)), 60, "both machines")


def machines(stack: DevStack) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = stack.api("GET", "/machines").json()["items"]
    return found


def whole(name: str, script: str, count: int = 1, grace: int = 2, **spec: Any) -> dict[str, Any]:
    """A gang of so many whole machines."""
    return shell(name, script, machines=count, gpus=8, task={"stop_grace_seconds": grace}, **spec)


def off(stack: DevStack, name: str) -> None:
    control.power(stack.directory / "agent", name, False)


def cut(stack: DevStack, name: str, away: bool = True) -> None:
    control.unplug(stack.directory / "agent", name, away)


def place(stack: DevStack, name: str, rank: int) -> str:
    """The machine of a member."""
    return next(str(worker["machine"]) for worker in stack.run(name)["workers"] if worker["rank"] == rank)


def members(stack: DevStack, uid: str, attempt: int) -> list[psutil.Process]:
    """The live processes of an attempt, from the process table alone."""
    found = []
    for process in stack.processes():
        try:
            if process.environ().get("ASTRAEUS_WORKER_KEY", "").startswith(f"{uid}/{attempt}/"):
                found.append(process)
        except psutil.Error:
            continue
    return found


def at_work(stack: DevStack, uid: str) -> int:
    """How many workers of the first attempt have processes."""
    keys = set()
    for process in members(stack, uid, 1):
        with suppress(psutil.Error, KeyError):
            keys.add(process.environ()["ASTRAEUS_WORKER_KEY"])
    return len(keys)


def work(stack: DevStack, name: str) -> str:
    """Wait until both workers of a run do their work: it is Running when its gates are to open. Answers its uid."""
    uid: str = stack.reach(name, "Running")["metadata"]["uid"]
    stack.until(lambda: at_work(stack, uid) == 2, 20, "two at work")
    return uid


def test_one_machine_free_and_one_with_a_low_run_make_room_for_a_high_run_of_two(
    pair: DevStack, tmp_path: Path
) -> None:
    pair.submit(whole("low", until(tmp_path / "low")))
    pair.reach("low", "Running")
    pair.submit(whole("high", until(tmp_path / "high"), 2, priority=10))
    pair.reach("high", "Running")
    assert pair.run("low")["reason"] == "Preempted by higher-priority work (high); waiting to run again"
    (tmp_path / "high").touch()
    (tmp_path / "low").touch()
    assert pair.reach("low", "Succeeded", "Failed")["restarts"]["left"] == 10


def test_of_three_priorities_the_lowest_makes_room(pair: DevStack, tmp_path: Path) -> None:
    for name, priority in (("middle", 5), ("lowest", 1)):
        pair.submit(whole(name, until(tmp_path / name), priority=priority))
        pair.reach(name, "Running")
    pair.submit(whole("highest", until(tmp_path / "highest"), priority=10))
    pair.reach("highest", "Running")
    assert [pair.run(name)["state"] for name in ("highest", "middle", "lowest")] == ["Running", "Running", "Pending"]
    assert attempts(pair, "middle") == [(1, None, False)]


def test_a_victim_that_ignores_sigterm_is_killed_and_not_charged(pair: DevStack, tmp_path: Path) -> None:
    pair.submit(whole("deaf", deaf(tmp_path / "deaf"), 2, grace=1))
    pair.reach("deaf", "Running")
    pair.submit(whole("high", "true", 2, priority=10))
    pair.reach("high", "Succeeded")
    (tmp_path / "deaf").touch()
    assert pair.reach("deaf", "Succeeded", "Failed")["restarts"]["left"] == 10
    assert attempts(pair, "deaf") == [(1, "preempted", False), (2, "succeeded", False)]


def test_a_preemptor_deleted_while_its_victim_stops_leaves_the_room_to_the_victim(
    pair: DevStack, tmp_path: Path
) -> None:
    pair.submit(whole("victim", deaf(tmp_path / "victim"), 2, grace=4))
    pair.reach("victim", "Running")
    pair.submit(whole("gone", "true", 2, priority=10))
    pair.reach("victim", "Stopping")
    pair.api("DELETE", "/runs/gone")
    run = pair.see("victim", lambda run: run["state"] == "Running" and run["attempt"] == 2, 30)
    assert run["restarts"]["left"] == 10
    assert pair.api("GET", "/runs/gone").status_code == 404
    (tmp_path / "victim").touch()
    pair.reach("victim", "Succeeded")


def test_a_victim_that_finishes_within_its_grace_has_not_succeeded(pair: DevStack, tmp_path: Path) -> None:
    flag = tmp_path / "finishes"
    pair.submit(whole("finishes", deaf(flag), grace=20))
    pair.reach("finishes", "Running")
    pair.submit(whole("high", "true", 2, priority=10))
    pair.reach("finishes", "Stopping")
    flag.touch()
    assert pair.reach("high", "Succeeded", seconds=15)
    assert pair.reach("finishes", "Succeeded")["attempt"] == 2
    assert attempts(pair, "finishes") == [(1, "preempted", False), (2, "succeeded", False)]


@pytest.mark.slow
def test_a_machine_lost_while_its_gang_is_preempted_is_not_charged(pair: DevStack, tmp_path: Path) -> None:
    pair.submit(whole("unlucky", deaf(tmp_path / "unlucky"), 2, grace=5))
    pair.reach("unlucky", "Running")
    pair.submit(whole("high", until(tmp_path / "high"), 1, priority=10))
    pair.reach("unlucky", "Stopping")
    off(pair, place(pair, "unlucky", 1))
    run = pair.reach("unlucky", "Pending", seconds=60)
    assert run["reason"].startswith("Preempted by higher-priority work (high)")
    pair.reach("high", "Running")
    assert attempts(pair, "unlucky")[0] == (1, "preempted", False)
    assert pair.run("unlucky")["restarts"]["left"] == 10


@pytest.mark.slow
def test_a_machine_lost_while_its_gang_starts(pair: DevStack) -> None:
    cut(pair, "m-1")
    pair.submit(whole("starts", "true", 2))
    pair.see("starts", lambda run: run["reason"] == "Starting together: 1 of 2 ready", 20, "one of two")
    run = pair.see("starts", lambda run: run["state"] == "Pending", 40, "restart")
    rank = next(worker["rank"] for worker in run["workers"] if worker["machine"] == "m-1")
    assert (run["reason"], run["restarts"]["left"]) == (f"Gang restart: starts-{rank} lost its machine", 9)
    cut(pair, "m-1", False)
    assert pair.reach("starts", "Succeeded", "Failed")["attempt"] == 2


@pytest.mark.slow
def test_a_machine_lost_while_its_gang_stops(pair: DevStack, tmp_path: Path) -> None:
    pair.submit(whole("stops", deaf(tmp_path / "stops"), 2, grace=3))
    pair.reach("stops", "Running")
    pair.api("POST", "/runs/stops:cancel")
    pair.reach("stops", "Stopping")
    off(pair, place(pair, "stops", 1))
    run = pair.reach("stops", "Cancelled", "Failed", seconds=60)
    assert (run["state"], run["reason"], run["restarts"]["left"]) == ("Cancelled", "Cancelled by dev", 10)


@pytest.mark.slow
def test_all_machines_silent_at_once_raise_an_alarm_and_none_is_lost(pair: DevStack, tmp_path: Path) -> None:
    pair.submit(whole("goes-on", until(tmp_path / "goes-on"), 2))
    uid = work(pair, "goes-on")
    for name in BOTH:
        cut(pair, name)
    pair.until(lambda: "alarm" in [event["kind"] for event in events(pair)], 40, "alarm")
    assert [machine["state"] for machine in machines(pair)] == ["Ready", "Ready"]
    for name in BOTH:
        cut(pair, name, False)
    assert at_work(pair, uid) == 2
    (tmp_path / "goes-on").touch()
    assert pair.reach("goes-on", "Succeeded", "Failed")["attempt"] == 1


def events(stack: DevStack) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = stack.api("GET", "/events?limit=500").json()["items"]
    return found


@pytest.mark.slow
def test_a_machine_back_after_ten_seconds_was_never_lost(pair: DevStack, tmp_path: Path) -> None:
    pair.submit(whole("brief", until(tmp_path / "brief"), 2))
    pair.reach("brief", "Running")
    cut(pair, "m-1")
    time.sleep(10)
    cut(pair, "m-1", False)
    (tmp_path / "brief").touch()
    assert pair.reach("brief", "Succeeded", "Failed")["attempt"] == 1


@pytest.mark.slow
def test_a_machine_back_after_a_minute_ends_its_old_processes_before_it_serves_again(
    pair: DevStack, tmp_path: Path
) -> None:
    pair.submit(whole("long", until(tmp_path / "long"), 2))
    uid = work(pair, "long")
    cut(pair, "m-1")
    pair.see("long", lambda run: run["attempt"] == 2, 60, "second claim")
    assert members(pair, uid, 1)
    time.sleep(30)
    assert members(pair, uid, 1), f"{pair.run('long')} {(pair.directory / 'logs' / 'agent.log').read_text()[-2000:]}"
    assert pair.run("long")["state"] == "Pending"
    cut(pair, "m-1", False)

    def second() -> bool:
        new, old = members(pair, uid, 2), members(pair, uid, 1)
        assert not (new and old)
        return bool(new)

    pair.until(second, 40, "second attempt")
    (tmp_path / "long").touch()
    run = pair.reach("long", "Succeeded", "Failed")
    assert (run["attempt"], run["restarts"]["left"]) == (2, 9)
    assert attempts(pair, "long") == [(1, "machine_lost", True), (2, "succeeded", False)]


def test_a_machine_off_and_on_again_at_once_is_one_charge(pair: DevStack, tmp_path: Path) -> None:
    pair.submit(whole("cycled", until(tmp_path / "cycled"), 2))
    pair.reach("cycled", "Running")
    off(pair, "m-1")
    control.power(pair.directory / "agent", "m-1", True)
    (tmp_path / "cycled").touch()
    assert pair.see("cycled", lambda run: run["state"] == "Succeeded", 60)["restarts"]["left"] == 9
    assert [(cause, charged) for _, cause, charged in attempts(pair, "cycled")] == [
        ("machine_lost", True),
        ("succeeded", False),
    ]
