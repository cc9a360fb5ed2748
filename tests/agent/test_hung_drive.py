"""A drive whose server is away: calls to it do not come back, and only the workers that need it wait."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from agent.conftest import FLEET
from agent.double import Agent, Api, alive, drive, launch, scene, worker

HANGING = 20
HANG = """
import os
make = os.mkdir
def mkdir(path, *more, **named):
    if os.fspath(path).startswith("{server}."):
        open("{server}").close()
    make(path, *more, **named)
os.mkdir = mkdir
"""


@pytest.fixture
def server(tmp_path: Path) -> Path:
    """What every call for a path that begins like this one waits for."""
    path = tmp_path / "server"
    os.mkfifo(path)
    return path


@pytest.fixture
def stage(tmp_path: Path, server: Path) -> Iterator[tuple[Api, Agent]]:
    (tmp_path / "site").mkdir()
    (tmp_path / "site/sitecustomize.py").write_text(HANG.format(server=server))
    with scene(tmp_path, FLEET) as (api, agent):
        paths = [str(tmp_path / "site"), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
        agent.environment["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
        agent.start()
        yield api, agent


def want(api: Api, key: str, machine: str, **more: object) -> None:
    uid, attempt, _ = key.split("/")
    api.launches[uid, int(attempt)] = launch(key, "exec sleep 1000", **more)
    api.want(worker(key, machine))


def hung(api: Api, server: Path, number: int) -> str:
    key = f"hung{number}/1/0"
    want(api, key, "m-1", drives=[drive("/data-x", source=f"{server}.{number}")])
    return key


def test_everything_else_of_the_machine_goes_on(api: Api, agent: Agent, server: Path) -> None:
    keys = [hung(api, server, number) for number in range(HANGING)]
    want(api, "other/1/0", "m-1")
    want(api, "mine/1/0", "m-1", drives=[drive("/data-x")])
    api.until_state("arrived", "other/1/0", "mine/1/0")
    api.until_syncs(3)
    machine = next(found for found in api.syncs[-1][1].machines if found.name == "m-1")
    assert set(keys) <= set(machine.live)
    assert not [key for key in keys if key in api.reports]


def test_a_worker_that_waits_for_a_drive_can_be_stopped(api: Api, agent: Agent, server: Path) -> None:
    stopped, dropped, kept = (hung(api, server, number) for number in range(3))
    api.until(lambda: len(api.launches_asked) == 3, "all are about to start")
    api.order("stop", stopped)
    assert api.until_over(stopped).error == "stopped before it started"
    api.drop(dropped)
    api.until_syncs(2)
    with server.open("wb"):
        api.until_state("arrived", kept)
    assert not agent.place("m-1", dropped).exists()
    assert api.until_over(stopped).state == "failed"


def test_the_agent_can_end(api: Api, agent: Agent, server: Path) -> None:
    want(api, "other/1/0", "m-1")
    api.until_state("arrived", "other/1/0")
    hung(api, server, 0)
    api.until(lambda: len(api.launches_asked) == 2, "it is about to start")
    api.until_syncs()
    assert agent.end(signal.SIGTERM) == 0
    assert alive(agent.shim("m-1", "other/1/0"))
