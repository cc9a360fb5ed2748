"""The agent's process: one machine, or a whole virtual fleet, brought to the state that the API asks for."""

import argparse
import asyncio
import fcntl
import logging
import os
import resource
import signal
import sys
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path

from astraeus.agent.births import Nursery
from astraeus.agent.control import Door
from astraeus.agent.disk import safe
from astraeus.agent.fleet import full_label, load_fleet
from astraeus.agent.hardware import this_machine
from astraeus.agent.hosts import Host
from astraeus.agent.keeper import Keeper
from astraeus.agent.launches import Launches, clean_environment
from astraeus.agent.link import Link
from astraeus.agent.power import Power
from astraeus.agent.session import Session
from astraeus.agent.tidy import tidy
from astraeus.agent.uploads import Uploads
from astraeus.model.errors import AstraeusError, Conflict

FACTS_SECONDS = 60.0
log = logging.getLogger("astraeus.agent")


def parser() -> argparse.ArgumentParser:
    """The command line. The token is in a file, so that no list of processes shows it."""
    made = argparse.ArgumentParser(prog="astraeus-agent", description="Run the workers of a machine.")
    made.add_argument("--api", required=True, help="address of the API, such as https://astraeus.example")
    made.add_argument("--dir", required=True, type=Path, help="where workers, logs and drives are kept")
    made.add_argument("--token-file", required=True, type=Path, help="file with the machine token, mode 600")
    made.add_argument("--fleet", type=Path, help="host the virtual machines of this YAML file, not this computer")
    made.add_argument("--cluster", help="cluster of the machines; by default the fleet's, or the token's")
    made.add_argument(
        "--label",
        action="append",
        default=[],
        type=label,
        metavar="KEY=VALUE",
        help="a label of this computer; leaf, spine, fabric, rack, nvlink-domain and roce are its place",
    )
    return made


def label(text: str) -> tuple[str, str]:
    """A label from the command line."""
    key, equals, value = text.partition("=")
    if not key or not equals:
        raise argparse.ArgumentTypeError(f"{text!r} is not KEY=VALUE")
    return full_label(key), value


def main(argv: Sequence[str] | None = None) -> int:
    """Run until told to end. 0: ended as told, 1: cannot run or was replaced, 2: usage."""
    options = parser().parse_args(argv)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s", stream=sys.stderr)
    logging.getLogger("httpx").setLevel(logging.WARNING)
    status = 0
    try:
        asyncio.run(run(options))
    except* AstraeusError as group:
        for fault in group.exceptions:
            print(f"astraeus-agent: {fault}", file=sys.stderr)
        status = 1
    return status


async def run(options: argparse.Namespace) -> None:
    """One life of the agent. SIGTERM and SIGINT end it and leave the workers running."""
    nofile = raise_file_limit()
    root = options.dir.absolute()
    root.mkdir(parents=True, exist_ok=True, mode=0o700)
    root = root.resolve()
    lock = os.open(root / "agent.lock", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Conflict(f"another agent runs in {root}") from None
        await _serve(options, root, nofile)
    finally:
        os.close(lock)


async def _serve(options: argparse.Namespace, root: Path, nofile: tuple[int, int]) -> None:
    hosts, cluster = find_hosts(options, root)
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, ended.set)
    async with AsyncExitStack() as stack:
        link = Link(options.api, options.token_file)
        stack.push_async_callback(link.close)
        session = Session(link, hosts, options.cluster or cluster)
        launches = Launches(link)
        stack.push_async_callback(launches.close)
        nursery = Nursery(clean_environment())
        stack.callback(nursery.close)
        keeper = Keeper(root, hosts, launches, nursery, session.changed, nofile)
        stack.push_async_callback(keeper.close)
        keeper.start()
        uploads = Uploads(link, keeper.hosts)
        stack.push_async_callback(uploads.close)
        power = Power(keeper)
        await power.settle()
        door = Door(root, keeper, power)
        await door.open()
        stack.push_async_callback(door.close)
        log.info("session %s of %d machine(s) with %s", session.id, len(hosts), options.api)
        async with asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(session.beat(keeper, uploads)),
                group.create_task(session.tell()),
                group.create_task(keeper.reread()),
                group.create_task(tidy(hosts)),
            ]
            if options.fleet is None:
                tasks.append(group.create_task(_refresh(hosts[0], options)))
            group.create_task(_until(ended, tasks))


async def _until(ended: asyncio.Event, tasks: list[asyncio.Task[None]]) -> None:
    await ended.wait()
    log.info("ending; workers go on under their shims")
    for task in tasks:
        task.cancel()


async def _refresh(host: Host, options: argparse.Namespace) -> None:
    """Look at the computer now and then: a GPU may have fallen ill, a port gone down."""
    while True:
        await asyncio.sleep(FACTS_SECONDS)
        facts = await asyncio.to_thread(this_machine, options.api, dict(options.label))
        facts = facts.model_copy(update={"name": host.name})
        if facts.model_copy(update={"boot_id": host.boot_id}) != host.facts:
            host.set_facts(facts)


def find_hosts(options: argparse.Namespace, root: Path) -> tuple[list[Host], str | None]:
    """The machines to host, and the cluster they say they belong to."""
    if options.fleet is not None:
        fleet = load_fleet(options.fleet)
        return [Host(facts, root / "machines" / safe(facts.name), None) for facts in fleet.machines], fleet.cluster
    facts = this_machine(options.api, dict(options.label))
    return [Host(facts, root / "machines" / safe(facts.name), facts.boot_id)], None


def raise_file_limit() -> tuple[int, int]:
    """Allow ourselves as many open files as we may have; returns what workers get, the limits as they were."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return soft, hard
