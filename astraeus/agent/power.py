"""The power switch of virtual machines, and the end of whatever a machine that is gone has left running."""

import asyncio
import os
import signal
from contextlib import suppress
from pathlib import Path

from astraeus.agent import disk, processes
from astraeus.agent.hosts import Host
from astraeus.agent.keeper import Keeper


class Power:
    """Switches machines, one at a time: what is started after `on` must not meet the sweep of an `off`."""

    def __init__(self, keeper: Keeper) -> None:
        self._keeper = keeper
        self._turn = asyncio.Lock()

    async def off(self, host: Host) -> None:
        """Kill everything on a machine as a power fault would: nothing is written, nobody is told."""
        async with self._turn:
            host.set_power(False)
            await self._keeper.abandon(host)
            await clear(host.directory)

    async def on(self, host: Host) -> None:
        """Bring a machine back, as a new boot with no workers. One that is on stays as it is."""
        async with self._turn:
            if not host.powered:
                host.set_power(True)

    async def settle(self) -> None:
        """End what runs on machines that have no power, or that this agent hosts no longer."""
        async with self._turn:
            for directory in sorted((self._keeper.root / "machines").glob("*")):
                host = self._keeper.hosts.get(directory.name)
                if host is None or not host.powered:
                    await clear(directory)


async def clear(machine: Path) -> None:
    """Kill every shim and every process of a machine's workers."""
    for directory in disk.open_workers(machine):
        started = disk.read_started(directory)
        if started and disk.is_alive(started):
            with suppress(ProcessLookupError):
                os.kill(started[0], signal.SIGKILL)
    suffix = f"@{machine}"
    await processes.sweep(lambda mark: mark.endswith(suffix))
