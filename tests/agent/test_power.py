"""Power faults and cut cables of virtual machines."""

import signal
from pathlib import Path

import pytest
from agent.double import Agent, Api, alive, launch, unmarked, worker

from astraeus.agent.control import power, stop_all, unplug
from astraeus.model.errors import Away, Conflict

KEY = "run1/1/0"


def started(api: Api, agent: Agent, script: str, key: str = KEY, machine: str = "m-0") -> int:
    uid, attempt, _ = key.split("/")
    api.launches[uid, int(attempt)] = launch(key, script)
    api.want(worker(key, machine))
    api.until_state("arrived", key)
    api.order("run", key)
    api.until_state("running", key)
    return agent.state(machine, key).pid or 0


def named(api: Api) -> list[str]:
    return [machine.name for machine in api.syncs[-1][1].machines]


def boot(api: Api, machine: str) -> str:
    return next(m.boot_id for _, sync in reversed(api.syncs) for m in sync.machines if m.name == machine)


def test_power_off_kills_everything_and_tells_nobody(api: Api, agent: Agent, tmp_path: Path) -> None:
    left = tmp_path / "left"
    script = f"setsid sh -c 'echo $$ > {tmp_path}/far; trap \"\" TERM; sleep 1000; true' & {unmarked(left)} & "
    pid = started(api, agent, script + "exec sleep 1000")
    other = started(api, agent, "exec sleep 1000", "run2/1/0", "m-1")
    far = tmp_path / "far"
    api.until(lambda: far.exists() and far.read_text(), "far")
    api.until(lambda: left.exists() and left.read_text(), "left")
    told, first = len(api.reports[KEY]), boot(api, "m-0")
    power(agent.directory, "m-0", False)
    assert not alive(pid)
    assert not alive(int(far.read_text()))
    assert not alive(int(left.read_text()))
    assert alive(other)
    assert not [found for found in agent.marked() if f"{KEY}@" in Path(f"/proc/{found}/environ").read_text()]
    api.until_syncs(2)
    assert named(api) == ["m-1", "m-2"]
    assert len(api.reports[KEY]) == told
    agent.end(signal.SIGKILL)
    agent.start()
    api.until_syncs(1)
    assert named(api) == ["m-1", "m-2"]
    api.drop(KEY)
    power(agent.directory, "m-0", True)
    api.until(lambda: "m-0" in named(api), "m-0 is back")
    back = next(m for m in api.syncs[-1][1].machines if m.name == "m-0")
    assert back.boot_id != first
    assert back.live == []
    assert back.facts is not None
    assert back.facts.boot_id == back.boot_id
    assert len(api.reports[KEY]) == told
    assert alive(other)


def test_a_worker_of_an_earlier_boot_is_not_started_again(api: Api, agent: Agent, tmp_path: Path) -> None:
    started(api, agent, f"echo ran >> {tmp_path}/runs; exec sleep 1000")
    power(agent.directory, "m-0", False)
    power(agent.directory, "m-0", True)
    over = api.until_over(KEY)
    assert (over.state, over.signal) == ("exited", 9)
    assert (tmp_path / "runs").read_text() == "ran\n"


def test_unplugged_work_goes_on_and_is_fenced_when_the_cable_is_back(api: Api, agent: Agent) -> None:
    pid = started(api, agent, "exec sleep 1000")
    first = boot(api, "m-0")
    unplug(agent.directory, "m-0", True)
    api.until_syncs(2)
    assert named(api) == ["m-1", "m-2"]
    assert alive(pid)
    api.drop(KEY)
    api.until_syncs(1)
    assert alive(pid)
    unplug(agent.directory, "m-0", False)
    api.until(lambda: not alive(pid), "fenced")
    assert boot(api, "m-0") == first


def test_what_ended_behind_a_cut_cable_is_reported_later(api: Api, agent: Agent) -> None:
    pid = started(api, agent, "while ! test -e go; do sleep 0.02; done; exit 6")
    unplug(agent.directory, "m-0", True)
    (agent.place("m-0", KEY) / "scratch/go").touch()
    api.until(lambda: not alive(pid), "ended")
    api.until_syncs(2)
    assert api.last(KEY).state == "running"  # type: ignore[union-attr]
    unplug(agent.directory, "m-0", False)
    assert api.until_over(KEY).exit_code == 6


def test_stop_all_gives_every_worker_its_grace(api: Api, agent: Agent) -> None:
    pids = [
        started(api, agent, "trap 'echo saved; exit 0' TERM; while :; do sleep 0.02; done", f"run{i}/1/0", f"m-{i}")
        for i in range(3)
    ]
    stop_all(agent.directory)
    assert not [pid for pid in pids if alive(pid)]
    for i in range(3):
        assert (agent.place(f"m-{i}", f"run{i}/1/0") / "log").read_bytes().endswith(b"saved\n")


def test_the_door_answers_nonsense_with_a_sentence(api: Api, agent: Agent) -> None:
    with pytest.raises(Conflict, match="there is no machine m-9 here"):
        power(agent.directory, "m-9", False)
    with pytest.raises(Conflict, match="unknown order"):
        agent.ask(machine="m-0", power="maybe")
    assert (agent.directory / "control.sock").stat().st_mode & 0o077 == 0
    assert agent.ask(status=True)["machines"]["m-1"]["powered"] is True


def test_a_door_without_an_agent(tmp_path: Path) -> None:
    with pytest.raises(Away):
        power(tmp_path, "m-0", True)
    with pytest.raises(Away):
        power(tmp_path / "nowhere", "m-0", True)


def test_a_machine_that_left_the_fleet_leaves_nothing_running(api: Api, agent: Agent) -> None:
    gone = started(api, agent, "exec sleep 1000", "run0/1/0", "m-0")
    kept = started(api, agent, "exec sleep 1000", "run1/1/0", "m-1")
    agent.end(signal.SIGKILL)
    agent.fleet.write_text("cluster: lab-a\nmachines: {m-1: {}}")
    agent.start()
    assert not alive(gone)
    assert alive(kept)
