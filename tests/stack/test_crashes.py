"""Any part of the control plane is killed while a gang runs: training goes on and the run still succeeds."""

import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from stack.conftest import logs, shell
from support.stack import DevStack

COUNT = "for i in $(seq 1 {n}); do echo $$ $i; sleep 0.1; done"


@pytest.mark.parametrize("part", ["api", "worker", "agent", "temporal"])
def test_a_killed_part_is_not_noticed_by_training(stack: DevStack, part: str) -> None:
    name = f"survives-{part}"
    stack.submit(shell(name, COUNT.format(n=60), machines=4))
    stack.reach(name, "Running")
    stack.killed_and_back(part)
    run = stack.reach(name, "Succeeded", "Failed", seconds=60)
    assert (run["state"], run["attempt"], run["restarts"]["left"]) == ("Succeeded", 1, 10)
    lines = logs(stack, f"{name}-0").decode().splitlines()[-60:]
    assert len({line.split()[0] for line in lines}) == 1
    assert [line.split()[1] for line in lines] == [str(i) for i in range(1, 61)]


@pytest.mark.slow
def test_everything_is_killed_at_once_and_started_again(tmp_path: Path) -> None:
    with DevStack(tmp_path) as stack:
        stack.submit(shell("lasting", COUNT.format(n=150), machines=8, gpus=8))
        stack.reach("lasting", "Running")
        assert stack.process is not None
        parts = [psutil.Process(pid) for pid in stack.facts["pids"].values()]
        stack.process.kill()
        for process in parts:
            if process.is_running():
                process.kill()
        psutil.wait_procs(parts, 10)
        stack.process.wait()
        stack.dev_json.unlink()
        stack.start()
        run = stack.reach("lasting", "Succeeded", "Failed", seconds=60)
        assert (run["state"], run["attempt"], run["restarts"]["left"]) == ("Succeeded", 1, 10)


@pytest.mark.slow
def test_ctrl_c_stops_training_and_the_next_start_goes_on_free_of_charge(tmp_path: Path) -> None:
    stack = DevStack(tmp_path).start()
    script = "trap 'exit 0' TERM; test $ASTRAEUS_ATTEMPT = 2 || { sleep 600 & wait; }"
    stack.submit(shell("resumed", script, machines=2))
    stack.reach("resumed", "Running")
    stack.stop()
    assert not stack.processes()
    assert not stack.dev_json.exists()
    with stack:
        run = stack.reach("resumed", "Succeeded", "Failed")
        assert (run["state"], run["attempt"], run["restarts"]["left"]) == ("Succeeded", 2, 10)


@pytest.mark.slow
def test_leave_running_leaves_training_alone(tmp_path: Path) -> None:
    stack = DevStack(tmp_path, ["--leave-running"]).start()
    stack.submit(shell("left", COUNT.format(n=120), machines=2))
    stack.reach("left", "Running")
    stack.stop(signal.SIGTERM)
    assert stack.processes()
    stack.arguments.clear()
    with stack:
        run = stack.reach("left", "Succeeded", "Failed", seconds=60)
        assert (run["state"], run["attempt"]) == ("Succeeded", 1)


def refused(*arguments: str) -> str:
    """What a start that must fail says."""
    command = [sys.executable, "-m", "worker.dev", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    return done.stderr


def test_a_second_start_on_the_same_directory_says_so(stack: DevStack) -> None:
    assert "astra dev already runs on" in refused("--dir", str(stack.directory), "--port", "0")


def test_a_taken_port_says_so(stack: DevStack, tmp_path: Path) -> None:
    port = stack.facts["api"].split(":")[2].split("/")[0]
    assert f"port {port} is taken" in refused("--dir", str(tmp_path), "--port", port)
