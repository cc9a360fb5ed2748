"""Watching and ending processes that are not our children: by pid and start time, never by pid alone."""

import asyncio
import os
import signal
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

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


@dataclass(frozen=True, slots=True)
class Remains:
    """The session of a worker that has no shim: the process that made it, and the worker's directory.

    `fresh`: the shim was seen alive, so it ended only moments ago.
    """

    leader: int
    started: int
    directory: Path
    fresh: bool

    def members(self) -> dict[int, kernel.Stat]:
        """What is left of it, and never a process of somebody else.

        The kernel gives a number to no process while a session still has it. So when another process has the leader's,
        the session had died out before, and one of that number is another's. When no process has it, there may have
        been another leader, who is gone as well; after long it takes a file of the worker's directory to tell.
        A process group is all of one session, and the worker's leads both: the session says everything.
        """
        head = kernel.stat_of(self.leader)
        if head and head.start != self.started:
            return {}
        stats = {pid: kernel.stat_of(pid) for pid in kernel.pids()}
        found = {pid: stat for pid, stat in stats.items() if stat and stat.session == self.leader}
        if head:
            return found | {self.leader: head}
        return found if self.fresh or any(_holds(pid, self.directory) for pid in found) else {}

    def kill(self) -> int:
        """SIGKILL to all of it; how many were alive."""
        found = self.members()
        for pid, stat in found.items():
            _kill_exactly(pid, stat.start)
        return len([stat for stat in found.values() if not stat.dead])

    async def end(self) -> None:
        """SIGKILL to all of it, until nothing is left."""
        left = self
        pause = 0.01
        while await asyncio.to_thread(left.kill):
            await asyncio.sleep(pause)
            pause = min(1.0, pause * 2)
            left = replace(self, fresh=True)


def _kill_exactly(pid: int, started: int) -> None:
    with suppress(OSError):
        descriptor = os.pidfd_open(pid)
        try:
            if kernel.start_time(pid) == started:
                signal.pidfd_send_signal(descriptor, signal.SIGKILL)
        finally:
            os.close(descriptor)


def _holds(pid: int, directory: Path) -> bool:
    """Whether a process works in a directory or has a file of it open. Links are read, not followed: none can hang."""
    links = [f"/proc/{pid}/cwd"]
    with suppress(OSError):
        links += [f"/proc/{pid}/fd/{name}" for name in os.listdir(f"/proc/{pid}/fd")]
    for link in links:
        with suppress(OSError):
            if os.readlink(link).startswith(f"{directory}/"):
                return True
    return False


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
