"""Parts that are away for longer than every lease: suspended, doubled, or with their database stopped."""

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest
from stack.conftest import shell
from support.postgres import PostgresServer
from support.scripts import attempts, until
from support.stack import DevStack

from astraeus.agent import control

PAST_LEASES = 20.0


@contextmanager
def suspended(pid: int) -> Iterator[None]:
    """A process that stands still for longer than a lease."""
    process = psutil.Process(pid)
    process.suspend()
    try:
        time.sleep(PAST_LEASES)
        yield
    finally:
        process.resume()


def calm(stack: DevStack) -> bool:
    """Whether no machine was declared lost since the start."""
    kinds = {event["kind"] for event in stack.api("GET", "/events?limit=500").json()["items"]}
    return "machine_lost" not in kinds


@pytest.mark.slow
@pytest.mark.parametrize("part", ["worker", "agent", "api", "temporal"])
def test_a_part_suspended_past_every_lease_and_continued(stack: DevStack, tmp_path: Path, part: str) -> None:
    name, flag = f"past-{part}", tmp_path / "flag"
    stack.submit(shell(name, until(flag), machines=4, gpus=8))
    stack.reach(name, "Running")
    with suspended(stack.facts["pids"][part]):
        flag.touch()
    run = stack.reach(name, "Succeeded", "Failed", seconds=60)
    assert (run["state"], run["attempt"], run["restarts"]["left"]) == ("Succeeded", 1, 10)
    assert calm(stack)


@pytest.mark.slow
def test_two_worker_processes_at_once_and_one_suspended_past_every_lease(stack: DevStack, tmp_path: Path) -> None:
    first = psutil.Process(stack.facts["pids"]["worker"])
    with (tmp_path / "second.log").open("wb") as log:
        second = subprocess.Popen(
            [sys.executable, "-m", "worker.main"], env=first.environ(), stdout=log, stderr=log, start_new_session=True
        )
    try:
        stack.submit(shell("shared", until(tmp_path / "shared"), machines=4, gpus=8))
        stack.reach("shared", "Running")
        with suspended(first.pid):
            stack.submit(shell("meanwhile", "true", machines=4, gpus=8))
            stack.reach("meanwhile", "Succeeded", seconds=90)
        stack.submit(shell("victim", until(tmp_path / "victim"), machines=12, gpus=8))
        stack.reach("victim", "Running")
        stack.submit(shell("high", "true", machines=12, gpus=8, priority=5))
        stack.reach("high", "Succeeded")
        (tmp_path / "shared").touch()
        (tmp_path / "victim").touch()
        assert stack.reach("shared", "Succeeded", "Failed")["attempt"] == 1
        stack.reach("victim", "Succeeded")
        assert attempts(stack, "victim") == [(1, "preempted", False), (2, "succeeded", False)]
    finally:
        second.send_signal(signal.SIGTERM)
        second.wait(30)
    assert calm(stack)


@pytest.mark.slow
def test_ctrl_c_stops_training_on_a_machine_that_is_cut_off_too(tmp_path: Path) -> None:
    stack = DevStack(tmp_path / "stack").start()
    stack.submit(shell("cut-off", until(tmp_path / "flag"), machines=2, gpus=8, task={"stop_grace_seconds": 1}))
    run = stack.reach("cut-off", "Running")
    control.unplug(stack.directory / "agent", run["workers"][1]["machine"], True)
    stack.stop()
    assert not stack.processes()


@pytest.mark.slow
def test_the_database_is_away_for_twenty_seconds(
    postgres: PostgresServer, postgres_ledger_url: str, tmp_path: Path
) -> None:
    postgres.keep_commits(postgres_ledger_url.rpartition("/")[2])
    with DevStack(tmp_path / "stack", environment={"ASTRAEUS_LEDGER_URL": postgres_ledger_url}) as stack:
        stack.submit(shell("patient", until(tmp_path / "patient"), machines=4, gpus=8))
        stack.reach("patient", "Running")
        postgres.stop(immediately=True)
        try:
            time.sleep(PAST_LEASES)
            (tmp_path / "patient").touch()
        finally:
            postgres.start()
        run = stack.reach("patient", "Succeeded", "Failed", seconds=60)
        assert (run["attempt"], run["restarts"]["left"]) == (1, 10)
        stack.submit(shell("afterwards", "true", machines=16, gpus=8))
        assert stack.reach("afterwards", "Succeeded", "Failed")["attempt"] == 1
        assert calm(stack)
