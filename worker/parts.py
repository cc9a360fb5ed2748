"""The parts of the embedded stack as child processes: started, watched, started again with a growing pause."""

import asyncio
import contextlib
import ctypes
import logging
import os
import signal
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

log = logging.getLogger(__name__)

PAUSE_FIRST = 0.2
PAUSE_MOST = 10.0
STEADY_SECONDS = 30.0
STOP_SECONDS = 8.0
PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None, use_errno=True)


@dataclass
class Part:
    """One child process. Its output goes to `log_file`; it ends with the supervisor, however that ends."""

    name: str
    command: Sequence[str]
    environment: Mapping[str, str]
    log_file: Path
    on_start: Callable[[], None]
    process: asyncio.subprocess.Process | None = None
    pause: float = PAUSE_FIRST
    _keeper: asyncio.Task[None] | None = field(default=None, repr=False)

    @property
    def pid(self) -> int | None:
        """The process's pid, None between two starts."""
        return self.process.pid if self.process and self.process.returncode is None else None

    async def start(self) -> None:
        """Start the process and keep it alive from now on."""
        await self._spawn()
        self._keeper = asyncio.create_task(self._keep())

    async def _spawn(self) -> None:
        with self.log_file.open("ab") as output:
            self.process = await asyncio.create_subprocess_exec(
                *self.command,
                env=dict(self.environment),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
                preexec_fn=_end_with_parent(os.getpid()),
            )
        self.on_start()

    async def _keep(self) -> None:
        while True:
            assert self.process is not None
            began = time.monotonic()
            code = await self.process.wait()
            if time.monotonic() - began > STEADY_SECONDS:
                self.pause = PAUSE_FIRST
            log.warning("%s ended (%s); starting it again in %.1f s", self.name, code, self.pause)
            await asyncio.sleep(self.pause)
            self.pause = min(self.pause * 2, PAUSE_MOST)
            await self._spawn()

    async def stop(self) -> None:
        """SIGTERM, a few seconds, SIGKILL; not started again."""
        if self._keeper is not None:
            self._keeper.cancel()
            await asyncio.gather(self._keeper, return_exceptions=True)
            self._keeper = None
        process = self.process
        if process is None or process.returncode is not None:
            return
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(signal.SIGTERM)
            process.send_signal(signal.SIGCONT)
        try:
            await asyncio.wait_for(process.wait(), STOP_SECONDS)
        except TimeoutError:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()


def _end_with_parent(parent: int) -> Callable[[], None]:
    def prepare() -> None:
        _libc.prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != parent:
            os._exit(1)

    return prepare


async def until(what: str, ready: Callable[[], Awaitable[bool]], parts: Sequence[Part], seconds: float) -> None:
    """Wait until `ready`; raises `TimeoutError` that names the parts' logs when it does not come."""
    ends = time.monotonic() + seconds
    while not await ready():
        if time.monotonic() > ends:
            logs = ", ".join(str(part.log_file) for part in parts)
            raise TimeoutError(f"{what} did not become ready within {seconds:.0f} s; see {logs}")
        await asyncio.sleep(0.05)
