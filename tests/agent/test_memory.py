"""A worker that the kernel killed for want of memory is told from one that somebody killed."""

import os
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from agent.double import Agent, Api, launch, worker

from astraeus.agent import kernel

KEY = "run1/1/0"
LIMIT_BYTES = 64 * 2**20
GREEDY = """
import os, sys
with open(sys.argv[1], "w") as file:
    file.write(str(os.getpid()))
kept = []
while True:
    kept.append(bytearray(os.urandom(1 << 20)))
"""


@pytest.fixture
def small_group() -> Iterator[Path]:
    """A control group with little memory; skipped where we may make none."""
    for base, limit in (("memory", "memory.limit_in_bytes"), (".", "memory.max")):
        group = Path("/sys/fs/cgroup", base, f"astraeus-{uuid.uuid4().hex[:8]}")
        try:
            group.mkdir()
        except OSError:
            continue
        if (group / limit).exists():
            (group / limit).write_text(str(LIMIT_BYTES))
            break
        group.rmdir()
    else:
        pytest.skip("no control group for memory can be made here")
    yield group
    group.rmdir()


@pytest.mark.skipif(not os.access("/dev/kmsg", os.R_OK), reason="the kernel's log cannot be read here")
def test_out_of_memory_is_said(api: Api, agent: Agent, small_group: Path) -> None:
    api.launches["run1", 1] = launch(KEY, [sys.executable, "-c", GREEDY, str(small_group / "cgroup.procs")])
    api.want(worker(KEY))
    api.until_state("arrived", KEY)
    api.order("run", KEY)
    over = api.until_over(KEY)
    assert (over.state, over.signal, over.oom) == ("exited", 9, True)


@pytest.mark.parametrize(
    ("line", "count"), [("oom 3\noom_kill 2\n", 2), ("oom_kill_disable 0\noom_kill 7\n", 7), ("", 0), ("oom_kill x", 0)]
)
def test_the_kernels_counters(tmp_path: Path, line: str, count: int) -> None:
    file = tmp_path / "memory.events"
    file.write_text(line)
    assert kernel.kills_counted(str(file)) == count
    assert kernel.kills_counted(str(tmp_path / "none")) == 0
