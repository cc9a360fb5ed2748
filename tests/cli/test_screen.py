"""What stays on a terminal: as much as fits, what matters first."""

import fcntl
import os
import re
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from cli.fake_api import TOKEN, FakeApi, run_document

CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
ROWS, COLUMNS = 24, 80
REASON = "Waits for 8 machines on one leaf group: " + ", ".join(f"leaf-{i} has {i} free" for i in range(12))
Drawn = Callable[..., list[str]]


@pytest.fixture
def drawn(api: FakeApi, home: Path) -> Drawn:
    """The lines that a command draws first on a terminal, up to the one that matches `last`."""

    def draw(*arguments: str, last: str) -> list[str]:
        left_out = {"COLUMNS", "LINES"}
        env = {key: value for key, value in os.environ.items() if key not in left_out}
        env |= {"ASTRALYX_API": api.base, "ASTRALYX_TOKEN": TOKEN, "TERM": "xterm", "NO_COLOR": "1"}
        command = [sys.executable, "-m", "astraeus.cli.main", *arguments]
        with _terminal() as (ours, its):
            process = subprocess.Popen(command, env=env, stdin=its, stdout=its, stderr=its)
            try:
                return _read_until(ours, re.compile(last))
            finally:
                process.kill()
                process.wait()

    return draw


@contextmanager
def _terminal() -> Iterator[tuple[int, int]]:
    ours, its = os.openpty()
    fcntl.ioctl(its, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    try:
        yield ours, its
    finally:
        os.close(ours)
        os.close(its)


def _read_until(terminal: int, last: re.Pattern[str]) -> list[str]:
    data, ends = b"", time.monotonic() + 30
    lines: list[str] = []
    while not (lines and last.match(lines[-1])):
        ready, _, _ = select.select([terminal], [], [], max(0.0, ends - time.monotonic()))
        assert ready, f"nothing matches {last.pattern!r} in {lines}"
        data += os.read(terminal, 65536)
        text = CONTROL.sub("", data.decode(errors="ignore")).replace("\r", "")
        lines = [line.rstrip() for line in text.strip().split("\n")]
        assert time.monotonic() < ends, f"nothing matches {last.pattern!r} in {lines}"
    return lines


def test_watching_draws_live_runs_then_the_newest_and_says_what_is_left_out(drawn: Drawn, api: FakeApi) -> None:
    ended: list[Any] = [run_document(f"ended-{i}", "Succeeded", "Exit code 0") for i in range(37)]
    live = run_document("live-old", "Running", "Runs"), run_document("live-new", "Pending", REASON)
    api.items("GET /runs", [live[0], *ended[:30], live[1], *ended[30:]])
    lines = drawn("runs", "-w", last="… and [0-9]+ more")
    names = [line.split()[0] for line in lines[1:-1] if not line.startswith(" ")]
    assert lines[0].split() == ["NAME", "CLUSTER", "STATE", "REASON"]
    assert names == ["live-new", "live-old", *(f"ended-{36 - i}" for i in range(len(names) - 2))]
    assert lines[-1] == f"… and {39 - len(names)} more"
    assert len(lines) == ROWS
    place = lines[0].index("REASON")
    folded = [line[place:] for line in lines[1 : ROWS - len(names)]]
    assert " ".join(folded) == REASON


def test_watching_draws_everything_where_it_fits(drawn: Drawn, api: FakeApi) -> None:
    api.items("GET /runs", [run_document("a", "Failed", "Exit code 1"), run_document("b", "Running", "Runs")])
    lines = drawn("runs", "-w", last="a ")
    assert [line.split()[0] for line in lines] == ["NAME", "b", "a"]
