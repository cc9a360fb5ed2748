"""Makes the directories of drives. A call may hang for ever, its server being away; only who needs it waits."""

import asyncio
import threading
from contextlib import suppress
from functools import partial
from pathlib import Path

HANGING_AT_ONCE = 64


class Directories:
    """One thread for each directory that is being made, up to a limit: waiting again for one that hangs takes none.

    asyncio's own threads are joined when the agent ends; one that hangs would keep it from ending.
    """

    def __init__(self) -> None:
        self._calls: dict[Path, asyncio.Task[None]] = {}
        self._free = asyncio.Semaphore(HANGING_AT_ONCE)

    async def make(self, path: Path, parents: bool) -> None:
        """Have the directory, and with `parents` all above it. Cancelled, it waits no longer; the thread does."""
        call = self._calls.get(path)
        if call is None:
            call = self._calls[path] = asyncio.create_task(self._make(path, parents))
            call.add_done_callback(lambda _: self._calls.pop(path))
        await asyncio.shield(call)

    async def _make(self, path: Path, parents: bool) -> None:
        async with self._free:
            made: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            try:
                threading.Thread(target=_work, args=(path, parents, made), daemon=True).start()
            except RuntimeError as fault:
                raise OSError(str(fault)) from fault
            await made


def _work(path: Path, parents: bool, made: "asyncio.Future[None]") -> None:
    tell = partial(made.set_result, None)
    try:
        path.mkdir(parents=parents, exist_ok=True)
    except OSError as fault:
        tell = partial(made.set_exception, fault)
    # The agent may have ended meanwhile: its loop is closed, or nobody waits.
    with suppress(RuntimeError):
        made.get_loop().call_soon_threadsafe(lambda: made.done() or tell())
