"""A disk without room, and files that a fall of the machine left empty: what runs goes on, what ended is reported."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from agent.conftest import FLEET
from agent.double import Agent, Api, alive, launch, scene, worker

from astraeus.agent import kernel
from astraeus.model.agent import MachineReport

KEY = "run1/1/0"
AS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a small disk for the test")


@pytest.fixture
def small(tmp_path: Path) -> Iterator[tuple[Api, Agent]]:
    """An agent whose directory is a disk of its own with little room."""
    (tmp_path / "agent").mkdir()
    kernel.mount("tmpfs", str(tmp_path / "agent"), "tmpfs", 0, "size=1m")
    try:
        with scene(tmp_path, FLEET) as both:
            both[1].start()
            yield both
    finally:
        kernel.detach(str(tmp_path / "agent"))


def begin(api: Api, agent: Agent, script: str) -> int:
    api.launches["run1", 1] = launch(KEY, script)
    api.want(worker(KEY))
    api.until_state("arrived", KEY)
    api.order("run", KEY)
    api.until_state("running", KEY)
    return agent.state("m-0", KEY).pid or 0


def until_told(there: Path) -> str:
    return f"while ! test -e {there}/go; do sleep 0.02; done"


def fill(agent: Agent) -> Path:
    path = agent.directory / "fill"
    with pytest.raises(OSError, match="No space left"):
        path.write_bytes(bytes(1 << 21))
    return path


def machine(api: Api) -> MachineReport:
    return next(found for _, sync in reversed(api.syncs) for found in sync.machines if found.name == "m-0")


@AS_ROOT
def test_a_worker_that_fills_the_disk_and_ends_is_reported_with_its_code(
    small: tuple[Api, Agent], tmp_path: Path
) -> None:
    api, agent = small
    begin(api, agent, f"{until_told(tmp_path)}; dd if=/dev/zero of=big bs=4096 2>/dev/null; exit 3")
    (tmp_path / "go").touch()
    over = api.until_over(KEY)
    assert (over.state, over.exit_code, over.error) == ("exited", 3, None)
    assert not agent.marked()


@AS_ROOT
def test_a_worker_that_ends_on_a_full_disk_is_reported_when_there_is_room(
    small: tuple[Api, Agent], tmp_path: Path
) -> None:
    api, agent = small
    pid = begin(api, agent, f"{until_told(tmp_path)}; exit 5")
    filled = fill(agent)
    (tmp_path / "go").touch()
    api.until(lambda: not alive(pid), "the worker ends")
    api.until_syncs()
    filled.unlink()
    assert api.until_over(KEY).exit_code == 5


@AS_ROOT
def test_a_shim_killed_on_a_full_disk(small: tuple[Api, Agent]) -> None:
    api, agent = small
    begin(api, agent, "exec sleep 1000")
    fill(agent)
    os.kill(agent.shim("m-0", KEY), signal.SIGKILL)
    over = api.until_over(KEY)
    assert (over.state, over.exit_code, over.signal) == ("exited", None, None)
    assert over.error == "how it ended could not be written down: No space left on device"
    assert not agent.marked()


@AS_ROOT
def test_an_agent_starts_on_a_full_disk_and_training_goes_on(small: tuple[Api, Agent]) -> None:
    api, agent = small
    pid = begin(api, agent, "exec sleep 1000")
    boot = machine(api).boot_id
    agent.end(signal.SIGKILL)
    filled = fill(agent)
    agent.start()
    assert (machine(api).boot_id, machine(api).live) == (boot, [KEY])
    assert alive(pid)
    filled.unlink()
    api.order("stop", KEY)
    assert api.until_over(KEY).signal == signal.SIGTERM


def test_a_worker_whose_shim_nobody_can_name_is_reported(api: Api, agent: Agent) -> None:
    begin(api, agent, "exec sleep 1000")
    agent.end(signal.SIGKILL)
    os.kill(agent.shim("m-0", KEY), signal.SIGKILL)
    os.truncate(agent.place("m-0", KEY) / "started", 0)
    agent.start()
    assert api.until_over(KEY).signal == 9
    assert not agent.marked()
