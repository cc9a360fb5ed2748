"""Old workers' directories: their logs are kept for a while after nobody asks for the worker any more."""

import asyncio
import shutil
import time
from collections.abc import Iterable
from pathlib import Path

from astraeus.agent.hosts import Host

KEPT_DAYS = 14
LOOK_SECONDS = 3600.0


async def tidy(hosts: Iterable[Host]) -> None:
    """Remove what is old, now and every hour."""
    machines = [host.directory for host in hosts]
    while True:
        for machine in machines:
            await asyncio.to_thread(remove_old, machine, time.time() - KEPT_DAYS * 86_400)
        await asyncio.sleep(LOOK_SECONDS)


def remove_old(machine: Path, before: float) -> None:
    """Remove the directories of a machine's workers that were forgotten before a time, and what they leave empty."""
    for mark in list((machine / "workers").glob("*/*/*/forgotten")):
        if mark.stat().st_mtime >= before:
            continue
        shutil.rmtree(mark.parent, ignore_errors=True)
        for above in (mark.parents[1], mark.parents[2]):
            try:
                above.rmdir()
            except OSError:
                # Another worker of the attempt or the run is still there.
                break
