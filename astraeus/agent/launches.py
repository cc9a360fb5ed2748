"""What an attempt runs, fetched once for all of its workers on this agent and kept in memory only."""

import asyncio
import logging
import os
from contextlib import suppress
from pathlib import Path
from typing import Any

from astraeus.agent.directories import Directories
from astraeus.agent.disk import safe
from astraeus.agent.hosts import Worker
from astraeus.agent.link import Link
from astraeus.agent.processes import WORKER_KEY
from astraeus.model.agent import DesiredWorker, DriveBind, Launch
from astraeus.model.errors import Invalid

KEPT_SECONDS = 60.0
INHERITED = frozenset(
    {"PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "TZ", "TMPDIR", "VIRTUAL_ENV"}
    | {"LD_LIBRARY_PATH", "CUDA_HOME", "CUDA_PATH"}
)
log = logging.getLogger("astraeus.agent")


class Launches:
    """Fetches launches; every waiting worker of an attempt shares one call."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._calls: dict[tuple[str, int], asyncio.Task[Launch]] = {}
        self._waiting: dict[tuple[str, int], int] = {}

    async def get(self, run_uid: str, attempt: int) -> Launch:
        """The launch of an attempt, however long the API is away; `Invalid` when the API refuses to give it."""
        key = (run_uid, attempt)
        call = self._calls.get(key)
        if call is None:
            call = self._calls[key] = asyncio.create_task(self._link.launch(run_uid, attempt))
            call.add_done_callback(lambda _: asyncio.get_running_loop().call_later(KEPT_SECONDS, self._drop, key))
        self._waiting[key] = self._waiting.get(key, 0) + 1
        try:
            return await asyncio.shield(call)
        finally:
            self._waiting[key] -= 1
            if not self._waiting[key]:
                del self._waiting[key]
                if not call.done():
                    call.cancel()
                    self._calls.pop(key, None)

    def _drop(self, key: tuple[str, int]) -> None:
        self._calls.pop(key, None)

    async def close(self) -> None:
        """Give up what is under way."""
        for call in list(self._calls.values()):
            call.cancel()
            with suppress(asyncio.CancelledError, Invalid):
                await call


def payload(
    worker: Worker, wanted: DesiredWorker, launch: Launch, binds: list[dict[str, Any]], root: Path, nofile: list[int]
) -> dict[str, Any]:
    """Everything a shim must know to run the worker. The user's variables win over the injected ones."""
    image = f"image {launch.image} is not used by the agent executor"
    notice = f"{image}: the command runs on the machine's own file system"
    # GPU indices are NVML's, which orders by the bus; CUDA would order by speed.
    order = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"} if wanted.gpus else {}
    environment = clean_environment() | order | wanted.env | launch.env | {WORKER_KEY: worker.mark}
    return {
        "key": str(worker.directory.relative_to(root)),
        "poke": str(root / "poke"),
        "argv": [launch.command, *launch.args],
        "env": environment,
        "binds": binds,
        "files": [{"target": path, "value": config.value} for config in launch.configs for path in config.mounts],
        "notice": notice if launch.image else None,
        "nofile": nofile,
    }


def clean_environment() -> dict[str, str]:
    """What a worker inherits from its agent: where things are and how to speak, nothing that could be secret."""
    kept = {name: value for name, value in os.environ.items() if name in INHERITED or name.startswith("LC_")}
    kept.setdefault("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
    kept.setdefault("HOME", "/")
    kept.setdefault("LANG", "C.UTF-8")
    return kept


async def bind(worker: Worker, drive: DriveBind, root: Path, directories: Directories) -> dict[str, Any]:
    """A drive of the worker, with a directory that is there, however long that takes."""
    if drive.path is not None:
        source = Path(drive.path)
        try:
            await directories.make(source, parents=False)
        except FileExistsError:
            raise Invalid(f"drive {drive.name}: {source} is not a directory on {worker.host.name}") from None
        except OSError as fault:
            where = f"{source} on {worker.host.name}"
            raise Invalid(f"drive {drive.name}: cannot use the directory {where}: {fault.strerror}") from fault
    else:
        base = worker.host.directory / "drives" if drive.kind == "machine" else root / "shared"
        source = base.joinpath(*(safe(part) for part in drive.workspace.split("/")), safe(drive.name))
        await directories.make(source, parents=True)
    return {"name": drive.name, "source": str(source), "target": drive.mount_path, "read_only": drive.read_only}
