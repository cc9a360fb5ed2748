"""A run whose workers start one by one, on a real stack with real processes: more workers than room, one that fails."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from stack.conftest import logs, shell
from support.scripts import until
from support.stack import DevStack

pytestmark = pytest.mark.slow

FLEET = """\
# Two machines.
cluster: lab-a
machines:
  m-{0..1}: {gpus: 8, gpu_model: H100, cpu_cores: 64, memory: 256GiB, rails: {count: 8, gbps: 400}}
"""
SCRIPT = """\
echo worker $RANK of $WORLD_SIZE, attempt $ASTRAEUS_ATTEMPT, $ASTRAEUS_GPU_COUNT GPUs, $ASTRAEUS_WORKER_NAME
if [ $RANK = 1 -a $ASTRAEUS_ATTEMPT = 1 ]; then exit 3; fi
until test -e %s; do sleep 0.1; done
"""


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DevStack]:
    directory = tmp_path_factory.mktemp("independent")
    fleet = directory / "fleet.yaml"
    fleet.write_text(FLEET)
    with DevStack(directory / "stack", ["--fleet", str(fleet)]) as stack:
        yield stack


def test_a_worker_fails_and_starts_again_alone(stack: DevStack, tmp_path: Path) -> None:
    flag = tmp_path / "done"
    stack.submit(shell("sweep", SCRIPT % flag, machines=3, gpus=4, start="Independent"))
    run = stack.see("sweep", lambda run: run["reason"].startswith("2 of 3 workers running; 1 waiting: Restart:"))
    assert run["state"] == "Running"
    assert run["workers"][1]["reason"].startswith("Restart: sweep-1 exited with code 3")
    told = stack.astra("get", "sweep").stdout
    assert "WORKER   STATE" in told
    flag.touch()
    run = stack.reach("sweep", "Succeeded", "Failed")
    assert (run["state"], run["reason"]) == ("Succeeded", "All 3 workers exited with code 0")
    assert [worker["attempt"] for worker in run["workers"]] == [1, 2, 1]
    assert run["restarts"]["left"] == 9
    assert logs(stack, "sweep-1", attempt=1) == b"worker 1 of 3, attempt 1, 4 GPUs, sweep-1\n"
    assert logs(stack, "sweep-1") == b"worker 1 of 3, attempt 2, 4 GPUs, sweep-1\n"
    followed = stack.astra("logs", "sweep-2", "-f").stdout
    assert followed == "worker 2 of 3, attempt 1, 4 GPUs, sweep-2\n"
    charged = [
        (item["worker"], item["attempt"])
        for item in stack.api("GET", "/runs/sweep/attempts").json()["items"]
        if item["charged"]
    ]
    assert charged == [("sweep-1", 1)]


def test_workers_run_as_there_is_room_and_a_cancelled_run_leaves_none(stack: DevStack, tmp_path: Path) -> None:
    stack.submit(shell("many", until(tmp_path / "never"), machines=18, gpus=1, start="Independent"))
    full = "16 of 18 workers running; 2 waiting: Needs 1 machine"
    run = stack.see("many", lambda run: run["reason"].startswith(full))
    assert sum(worker["machine"] is None for worker in run["workers"]) == 2
    stack.astra("cancel", "many")
    run = stack.reach("many", "Cancelled")
    assert run["reason"].startswith("Cancelled by ")
    assert {worker["state"] for worker in run["workers"]} == {"Exited"}
