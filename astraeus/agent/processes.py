"""Watching and ending processes that are not our children: by pid and start time, never by pid alone."""

import asyncio
import os
import signal
from collections.abc import Callable
from contextlib import suppress

from astraeus.agent import kernel

WORKER_KEY = "ASTRAEUS_WORKER_KEY"
"""The variable by which every process of a worker can be found, whatever became of its parents."""

_MARK = WORKER_KEY.encode() + b"="


class Watch:
    """Tells once when a process has ended, without looking at it in between."""

    def __init__(self, pid: int, started: int, ended: Callable[[], None]) -> None:
        """Raises ProcessLookupError when that process is gone already."""
        self._descriptor = os.pidfd_open(pid)
        if kernel.start_time(pid) != started:
            os.close(self._descriptor)
            raise ProcessLookupError(pid)
        self._ended = ended
        asyncio.get_running_loop().add_reader(self._descriptor, self._fire)

    def _fire(self) -> None:
        self.close()
        self._ended()

    def kill(self) -> None:
        """SIGKILL to exactly this process."""
        if self._descriptor >= 0:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._descriptor, signal.SIGKILL)

    def close(self) -> None:
        """Watch no longer."""
        if self._descriptor >= 0:
            asyncio.get_running_loop().remove_reader(self._descriptor)
            os.close(self._descriptor)
            self._descriptor = -1


def kill_group(leader: int | None, started: int | None) -> None:
    """SIGKILL to a process group while its leader is still the process that started then."""
    if leader and started and kernel.start_time(leader) == started:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(leader, signal.SIGKILL)


def _kill_marked(wanted: Callable[[str], bool]) -> int:
    found = 0
    for pid in kernel.pids():
        try:
            with open(f"/proc/{pid}/environ", "rb") as file:
                environment = file.read()
        except OSError:
            continue
        start = 0 if environment.startswith(_MARK) else environment.find(b"\0" + _MARK) + 1
        if start == 0 and not environment.startswith(_MARK):
            continue
        value = environment[start + len(_MARK) :].partition(b"\0")[0]
        if wanted(os.fsdecode(value)):
            found += 1
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
    return found


async def sweep(wanted: Callable[[str], bool]) -> None:
    """SIGKILL every process whose worker key is wanted, until a look at all processes finds none."""
    pause = 0.01
    while await asyncio.to_thread(_kill_marked, wanted):
        await asyncio.sleep(pause)
        pause = min(1.0, pause * 2)
