"""What is kept on disk of a worker, so that an agent that starts again finds everything it must know.

`DIR/machines/<machine>/workers/<run uid>/<attempt>/<rank>/` holds spec.json (who it is, on which boot), started (the
shim that may run it, made once), state.json (how far it is), control (its pipe for orders), log, and forgotten
(nobody asks for it any more). Neither the command nor its environment is written.
"""

import json
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from astraeus.agent import kernel
from astraeus.model.agent import ReportState
from astraeus.model.errors import Invalid

SAFE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]*")


@dataclass(frozen=True, slots=True)
class State:
    """How far a worker is, as its shim wrote it. Times are the machine's clock."""

    state: ReportState
    at: float
    pid: int | None = None
    pgid: int | None = None
    pid_started: int | None = None
    exit_code: int | None = None
    signal: int | None = None
    oom: bool = False
    error: str | None = None
    gate_opened_at: float | None = None

    @property
    def ended(self) -> bool:
        """Whether it is over; then no process of it is left."""
        return self.state in ("exited", "failed")


@dataclass(frozen=True, slots=True)
class Known:
    """Who a worker directory belongs to."""

    run_uid: str
    attempt: int
    rank: int
    name: str
    boot_id: str


def safe(part: str) -> str:
    """A name that may become part of a path."""
    if not SAFE.fullmatch(part):
        raise Invalid(f"{part!r} cannot be part of a path")
    return part


def worker_directory(machine: Path, run_uid: str, attempt: int, rank: int) -> Path:
    """Where a worker of a machine lives."""
    return machine / "workers" / safe(run_uid) / str(attempt) / str(rank)


def write_json(path: Path, content: dict[str, Any]) -> None:
    """Replace a small private file in one step."""
    draft = path.with_name(path.name + ".new")
    with open(os.open(draft, os.O_CREAT | os.O_TRUNC | os.O_WRONLY, 0o600), "w") as file:
        json.dump(content, file)
    os.replace(draft, path)


def read_json(path: Path) -> dict[str, Any] | None:
    """The content of a small file, or None when it is not there or never was finished."""
    try:
        content = json.loads(path.read_bytes())
    except (FileNotFoundError, ValueError):
        return None
    return content if isinstance(content, dict) else None


def read_known(directory: Path) -> Known | None:
    """Who the directory belongs to."""
    content = read_json(directory / "spec.json")
    return Known(**content) if content else None


def read_state(directory: Path) -> State | None:
    """How far the worker is; None before its shim has said anything."""
    content = read_json(directory / "state.json")
    return State(**content) if content else None


def read_started(directory: Path) -> tuple[int, int] | None:
    """(pid, start time) of the shim that took the worker, or None when none did, or nobody can read which."""
    try:
        pid, _, started = (directory / "started").read_text().partition(" ")
        return int(pid), int(started)
    except (OSError, ValueError):
        return None


def was_taken(directory: Path) -> bool:
    """Whether a shim took the worker, be it that nobody can read which."""
    return os.path.lexists(directory / "started")


def open_workers(machine: Path) -> Iterator[Path]:
    """Directories of workers that somebody may still ask for."""
    for directory in (machine / "workers").glob("*/*/*"):
        if not (directory / "forgotten").exists():
            yield directory


def forget(directory: Path) -> None:
    """Mark that nobody asks for the worker any more; its log stays."""
    (directory / "forgotten").touch(mode=0o600)


def is_alive(shim: tuple[int, int] | None) -> bool:
    """Whether that shim still runs."""
    return shim is not None and kernel.start_time(shim[0]) == shim[1]


def send_order(directory: Path, order: str) -> bool:
    """Write an order into the worker's pipe; False when no shim is there to read it."""
    try:
        pipe = os.open(directory / "control", os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        os.write(pipe, order.encode() + b"\n")
    except OSError:
        return False
    finally:
        os.close(pipe)
    return True
