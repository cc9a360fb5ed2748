"""Training outlives the agent, and an agent that starts again knows all of it."""

import json
import os
import signal
import subprocess
from pathlib import Path

import pytest
from agent.double import Agent, Api, alive, launch, unmarked, worker

from astraeus.agent.tidy import remove_old

KEY = "run1/1/0"


def started(api: Api, agent: Agent, script: str, key: str = KEY) -> int:
    uid, attempt, _ = key.split("/")
    api.launches[uid, int(attempt)] = launch(key, script)
    api.want(worker(key))
    api.until_state("arrived", key)
    api.order("run", key)
    api.until_state("running", key)
    return agent.state("m-0", key).pid or 0


def test_an_agent_killed_and_started_again_takes_its_workers_over(api: Api, agent: Agent) -> None:
    pid = started(api, agent, "trap 'echo saved; exit 0' TERM; while :; do sleep 0.02; done")
    agent.end(signal.SIGKILL)
    assert alive(pid)
    told = len(api.reports[KEY])
    agent.start()
    api.until(lambda: len(api.reports[KEY]) > told, "everything known is reported again")
    assert alive(pid)
    assert api.reports[KEY][-1].state == "running"
    sessions = dict.fromkeys(sync.session for _, sync in api.syncs)
    firsts = [next(sync for _, sync in api.syncs if sync.session == session) for session in sessions]
    assert [first.seen for first in firsts] == [None, None]
    assert KEY in firsts[-1].machines[0].live
    api.order("stop", KEY)
    assert api.until_over(KEY).exit_code == 0


def test_an_api_that_was_away_is_told_everything_again(api: Api, agent: Agent) -> None:
    started(api, agent, "exec sleep 1000")
    told = len(api.reports[KEY])
    api.refuse = 503
    api.until(lambda: api.refused, "a sync that is refused")
    api.refuse = None
    api.until(lambda: len(api.reports[KEY]) > told, "what was taken before, again")
    assert api.reports[KEY][-1].state == "running"


def test_what_happens_while_the_agent_is_away_is_reported_when_it_is_back(api: Api, agent: Agent) -> None:
    pid = started(api, agent, "while ! test -e go; do sleep 0.02; done; exit 5")
    agent.end(signal.SIGKILL)
    (agent.place("m-0", KEY) / "scratch/go").touch()
    api.until(lambda: not alive(pid), "the worker ends")
    agent.start()
    assert api.until_over(KEY).exit_code == 5


def test_a_shim_killed_while_the_agent_is_away(api: Api, agent: Agent, tmp_path: Path) -> None:
    script = f"setsid sh -c 'echo $$ > {tmp_path}/far; exec sleep 1000' & exec sleep 1000"
    pid = started(api, agent, script)
    far = tmp_path / "far"
    api.until(lambda: far.exists() and far.read_text(), "far")
    agent.end(signal.SIGKILL)
    os.kill(agent.shim("m-0", KEY), signal.SIGKILL)
    api.until(lambda: not alive(pid), "the worker dies with its shim")
    agent.start()
    assert api.until_over(KEY).signal == 9
    assert not alive(int(far.read_text()))


def test_what_a_killed_shim_left_is_ended_before_its_worker_is_reported(api: Api, agent: Agent, tmp_path: Path) -> None:
    left = tmp_path / "left"
    pid = started(api, agent, f"{unmarked(left)} & exec sleep 1000")
    api.until(lambda: left.exists() and left.read_text(), "left")
    agent.end(signal.SIGKILL)
    os.kill(agent.shim("m-0", KEY), signal.SIGKILL)
    api.until(lambda: not alive(pid), "the worker dies with its shim")
    agent.start()
    assert api.until_over(KEY).signal == 9
    assert not alive(int(left.read_text()))


@pytest.mark.parametrize("leader_lives", [True, False])
def test_a_session_that_has_the_number_of_a_worker_long_dead_is_left_alone(
    api: Api, agent: Agent, leader_lives: bool
) -> None:
    pid = started(api, agent, "exec sleep 1000")
    agent.end(signal.SIGKILL)
    os.kill(agent.shim("m-0", KEY), signal.SIGKILL)
    api.until(lambda: not alive(pid), "the worker dies with its shim")
    script = "sleep 1000 >&- & echo $!; " + ("wait" if leader_lives else "")
    with subprocess.Popen(["sh", "-c", script], stdout=subprocess.PIPE, start_new_session=True) as stranger:
        assert stranger.stdout
        child = int(stranger.stdout.readline())
        try:
            if not leader_lives:
                stranger.wait()
            file = agent.place("m-0", KEY) / "state.json"
            file.write_text(json.dumps(json.loads(file.read_text()) | {"pid": stranger.pid, "pgid": stranger.pid}))
            agent.start()
            assert api.until_over(KEY).signal == 9
            assert alive(child)
        finally:
            os.killpg(stranger.pid, signal.SIGKILL)


def test_no_worker_is_ever_started_twice(api: Api, agent: Agent, tmp_path: Path) -> None:
    keys = [f"run1/1/{rank}" for rank in range(6)]
    api.launches["run1", 1] = launch(KEY, f"echo $RANK >> {tmp_path}/runs; exec sleep 1000")
    api.want(*(worker(key) for key in keys))
    for _ in range(3):
        agent.end(signal.SIGKILL)
        agent.start()
    api.until_state("arrived", *keys)
    api.order("run", *keys)
    agent.end(signal.SIGKILL)
    agent.start()
    api.until_state("running", *keys)
    runs = tmp_path / "runs"
    api.until(lambda: runs.exists() and len(runs.read_text().split()) == 6, "six runs")
    api.order("stop", *keys)
    for key in keys:
        api.until_over(key)
    agent.end(signal.SIGKILL)
    agent.start()
    api.order("hold", *keys)
    api.until_syncs()
    assert sorted(runs.read_text().split()) == [str(rank) for rank in range(6)]
    assert len(agent.shims()) == 0


def test_the_nursery_killed_is_replaced_and_its_shims_stay(api: Api, agent: Agent) -> None:
    pid = started(api, agent, "exec sleep 1000")
    assert agent.process
    found = subprocess.run(["pgrep", "-P", str(agent.process.pid)], capture_output=True, text=True, check=True)
    os.kill(int(found.stdout), signal.SIGKILL)
    other = started(api, agent, "exec sleep 1000", "run2/1/0")
    assert alive(pid)
    assert alive(other)


def test_sigterm_ends_the_agent_and_leaves_its_workers(api: Api, agent: Agent) -> None:
    pid = started(api, agent, "exec sleep 1000")
    assert agent.end(signal.SIGTERM) == 0
    assert alive(pid)
    assert alive(agent.shim("m-0", KEY))


def test_workers_go_on_while_the_api_is_away(api: Api, agent: Agent) -> None:
    pid = started(api, agent, "while ! test -e go; do sleep 0.02; done; exit 4")
    api.stop()
    (agent.place("m-0", KEY) / "scratch/go").touch()
    while alive(pid):
        os.sched_yield()
    api.start()
    assert api.until_over(KEY).exit_code == 4


def test_reports_are_repeated_until_they_are_taken(api: Api, agent: Agent) -> None:
    pid = started(api, agent, "while ! test -e go; do sleep 0.02; done; exit 4")
    api.refuse, api.code = 409, "stale-term"
    (agent.place("m-0", KEY) / "scratch/go").touch()
    while alive(pid):
        os.sched_yield()
    api.refuse = None
    assert api.until_over(KEY).exit_code == 4


def test_an_agent_whose_machines_were_taken_over_leaves(api: Api, agent: Agent) -> None:
    pid = started(api, agent, "exec sleep 1000")
    api.refuse = 409
    assert agent.process
    assert agent.process.wait() == 1
    assert b"another agent holds these machines" in agent.errors.read_bytes()
    assert alive(pid)


def test_a_second_agent_on_the_same_directory_says_so(api: Api, agent: Agent) -> None:
    done = subprocess.run(agent.command(), capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert f"another agent runs in {agent.directory}" in done.stderr


def test_the_token_is_in_no_argument_and_no_log(api: Api, agent: Agent) -> None:
    started(api, agent, "env; exec sleep 1000")
    assert agent.process
    assert b"secret" not in Path(f"/proc/{agent.process.pid}/cmdline").read_bytes()
    agent.end(signal.SIGTERM)
    assert b"ast_machine_secret" not in agent.errors.read_bytes()
    files = [path for path in agent.directory.rglob("*") if path.is_file()]
    assert not [path for path in files if b"ast_machine_secret" in path.read_bytes()]


def test_a_token_file_that_others_can_read_is_refused(api: Api, agent: Agent) -> None:
    agent.end(signal.SIGTERM)
    agent.token.chmod(0o644)
    done = subprocess.run(agent.command(), capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "chmod 600" in done.stderr


def test_old_logs_go_and_young_ones_stay(tmp_path: Path) -> None:
    old, young, wanted = (tmp_path / "workers" / name for name in ("run1/1/0", "run1/2/0", "run2/1/0"))
    for place in (old, young, wanted):
        place.mkdir(parents=True)
    for place, age in ((old, 100.0), (young, 300.0)):
        (place / "forgotten").touch()
        os.utime(place / "forgotten", (age, age))
    remove_old(tmp_path, 200.0)
    assert not old.parent.exists()
    assert young.exists()
    assert wanted.exists()
