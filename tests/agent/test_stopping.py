"""SIGTERM, grace, SIGKILL; and nothing of a worker outlives it."""

import os
import signal
import sys
from pathlib import Path

from agent.double import Agent, Api, alive, launch, unmarked, worker

KEY = "run1/1/0"
OUTLIVE = """
trap 'echo term; exit 0' TERM
sleep 1000 &
echo $! > pids
setsid sleep 1000 &
setsid sh -c 'trap "" TERM HUP; echo $$ > {there}/far; (sleep 1000 & echo $! > {there}/further; env -i sleep 1000)' &
echo up
wait
"""


def running(api: Api, script: str | list[str], key: str = KEY, grace: float = 10.0) -> None:
    uid, attempt, _ = key.split("/")
    api.launches[uid, int(attempt)] = launch(key, script)
    api.want(worker(key, grace=grace))
    api.until_state("arrived", key)
    api.order("run", key)
    api.until_state("running", key)


def until_file(api: Api, path: Path) -> int:
    api.until(lambda: path.exists() and path.read_text().strip(), f"{path}")
    return int(path.read_text())


def until_line(api: Api, agent: Agent, line: bytes, key: str = KEY) -> None:
    path = agent.place("m-0", key) / "log"
    api.until(lambda: path.exists() and line in path.read_bytes(), f"{line!r} in {path}")


def test_sigterm_reaches_every_process_of_the_group(api: Api, agent: Agent) -> None:
    running(
        api, "trap 'wait; exit 7' TERM; sh -c 'trap \"echo child; exit 0\" TERM; echo up; sleep 1000 & wait' & wait"
    )
    until_line(api, agent, b"up\n")
    api.order("stop", KEY)
    assert api.until_over(KEY).exit_code == 7
    until_line(api, agent, b"child\n")


def test_descendants_that_left_the_session_do_not_outlive_the_worker(api: Api, agent: Agent, tmp_path: Path) -> None:
    running(api, OUTLIVE.format(there=tmp_path))
    far, further = until_file(api, tmp_path / "far"), until_file(api, tmp_path / "further")
    until_line(api, agent, b"up\n")
    assert alive(far)
    assert alive(further)
    shim = agent.shim("m-0", KEY)
    api.order("stop", KEY)
    assert api.until_over(KEY).exit_code == 0
    assert not alive(far)
    assert not alive(further)
    api.until(lambda: not alive(shim), "the shim ends")
    assert not agent.marked()


def test_a_worker_that_ends_by_itself_takes_its_descendants_along(api: Api, agent: Agent, tmp_path: Path) -> None:
    far = f"setsid sh -c 'trap \"\" TERM; echo $$ > {tmp_path}/far; sleep 1000'"
    script = f"{far} & while ! test -s {tmp_path}/far; do :; done"
    api.launches["run1", 1] = launch(KEY, script)
    api.want(worker(KEY))
    api.until_state("arrived", KEY)
    api.order("run", KEY)
    assert api.until_over(KEY).exit_code == 0
    assert not alive(until_file(api, tmp_path / "far"))


def test_what_ignores_sigterm_is_killed_after_its_grace(api: Api, agent: Agent) -> None:
    code = (
        "import signal,time\nsignal.signal(15, signal.SIG_IGN)\nprint('deaf', flush=True)\nwhile True: time.sleep(100)"
    )
    running(api, [sys.executable, "-c", code], grace=0.5)
    until_line(api, agent, b"deaf\n")
    api.order("stop", KEY)
    over = api.until_over(KEY)
    assert (over.state, over.signal, over.oom) == ("exited", signal.SIGKILL, False)


def test_a_stopped_process_hears_sigterm_too(api: Api, agent: Agent) -> None:
    running(api, "trap 'echo bye; exit 0' TERM; echo up; while :; do sleep 0.01; done", grace=30)
    until_line(api, agent, b"up\n")
    os.kill(agent.state("m-0", KEY).pid or 0, signal.SIGSTOP)
    api.order("stop", KEY)
    assert api.until_over(KEY).exit_code == 0


def test_a_second_stop_can_shorten_the_grace(api: Api, agent: Agent) -> None:
    running(api, "trap '' TERM; echo up; while :; do sleep 1000; done", grace=100)
    until_line(api, agent, b"up\n")
    api.order("stop", KEY)
    api.until_syncs()
    assert alive(agent.state("m-0", KEY).pid or 0)
    api.order("stop", KEY, grace=0.0)
    assert api.until_over(KEY).signal == signal.SIGKILL


def test_a_worker_nobody_asks_for_is_killed_at_once_and_forgotten(api: Api, agent: Agent, tmp_path: Path) -> None:
    running(api, OUTLIVE.format(there=tmp_path), grace=1000)
    far = until_file(api, tmp_path / "far")
    pid, told = agent.state("m-0", KEY).pid or 0, len(api.reports[KEY])
    api.drop(KEY)
    api.until(lambda: not alive(pid) and not alive(far), "fenced")
    api.until_syncs()
    assert len(api.reports[KEY]) == told
    assert not [m for m in api.syncs[-1][1].machines if m.live]
    assert (agent.place("m-0", KEY) / "forgotten").exists()
    assert b"up\n" in (agent.place("m-0", KEY) / "log").read_bytes()


def test_fenced_while_it_starts(api: Api, agent: Agent) -> None:
    keys = [f"many/1/{rank}" for rank in range(24)]
    api.launches["many", 1] = launch(keys[0], "sleep 1000")
    api.want(*(worker(key) for key in keys))
    api.until(lambda: any(api.last(key) for key in keys), "one began")
    api.drop(*keys)
    api.until_syncs(2)
    api.until(lambda: not agent.shims() and not agent.marked(), "all gone")
    assert not [m for m in api.syncs[-1][1].machines if m.live]


def test_a_killed_shim_takes_its_worker_along_and_the_agent_says_so(api: Api, agent: Agent, tmp_path: Path) -> None:
    running(api, OUTLIVE.format(there=tmp_path))
    further = until_file(api, tmp_path / "further")
    os.kill(agent.shim("m-0", KEY), signal.SIGKILL)
    over = api.until_over(KEY)
    assert (over.state, over.signal, over.error) == ("exited", 9, "its shim was killed, and the worker with it")
    assert not alive(further)
    assert not [pid for pid in agent.marked() if alive(pid)]


def test_a_killed_shim_leaves_nothing_of_its_workers_session(api: Api, agent: Agent, tmp_path: Path) -> None:
    running(api, f"{unmarked(tmp_path / 'left', far=True)} & exec sleep 1000")
    left = until_file(api, tmp_path / "left")
    os.kill(agent.shim("m-0", KEY), signal.SIGKILL)
    assert api.until_over(KEY).signal == 9
    assert not alive(left)


def test_a_shim_that_does_not_obey_is_killed_by_the_agent(api: Api, agent: Agent) -> None:
    running(api, "exec sleep 1000", grace=0.0)
    pid = agent.state("m-0", KEY).pid or 0
    os.kill(agent.shim("m-0", KEY), signal.SIGSTOP)
    api.order("stop", KEY)
    assert api.until_over(KEY).signal == signal.SIGKILL
    assert not alive(pid)


def test_killed_by_somebody_else_is_an_exit_of_its_own(api: Api, agent: Agent) -> None:
    running(api, "exec sleep 1000")
    os.kill(agent.state("m-0", KEY).pid or 0, signal.SIGKILL)
    over = api.until_over(KEY)
    assert (over.signal, over.exit_code, over.error) == (9, None, None)
