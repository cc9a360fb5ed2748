"""`astra dev`: the whole stack on one computer, supervised by this process.

Temporal's dev server, the API, the worker process and one agent with a virtual fleet; an external Temporal
(TEMPORAL_ADDRESS) or ledger (ASTRAEUS_LEDGER_URL) takes the place of the embedded one by configuration alone.
"""

import argparse
import asyncio
import logging
import os
import signal
import sys
import sysconfig
import time
from collections.abc import Sequence
from pathlib import Path

import httpx

from activities.delivery import PRIORITY, SEARCH_ATTRIBUTES
from astraeus.agent import control
from astraeus.agent.fleet import default_fleet, load_fleet
from astraeus.client.config import default_dir
from astraeus.ledger import fleetwide
from astraeus.ledger.core import Ledger
from astraeus.model.errors import AstraeusError
from worker.config import Settings
from worker.parts import Part, until
from worker.place import ORGANISATION, WORKSPACE, Place
from worker.temporal import connect, keep_histories

log = logging.getLogger(__name__)

API_PORT, TEMPORAL_PORT = 8480, 7233
READY_SECONDS = 60.0
HISTORY_DAYS = 90
WHO = "astra dev"
TEMPORAL_SETTINGS = ("history.transferProcessorMaxPollRPS=1000", 'history.timerProcessorMaxTimeShift="10ms"')
"""The dev server has one shard, whose defaults hold a workflow to 20 tasks a second and round timers up to 1 s."""


def arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    """The command line of `astra dev`."""
    parser = argparse.ArgumentParser(prog="astra dev", description="Run the whole of Astraeus on this computer.")
    parser.add_argument("--dir", type=Path, default=None, help="where state is kept (default: %(default)s)")
    parser.add_argument(
        "--fleet", type=Path, default=None, help="YAML file of the virtual fleet (default: 16 machines)"
    )
    parser.add_argument("--port", type=int, default=None, help=f"port of API and console, 0: any ({API_PORT})")
    parser.add_argument("--temporal-port", type=int, default=None, help=f"port of Temporal, 0: any ({TEMPORAL_PORT})")
    parser.add_argument("--leave-running", action="store_true", help="let training go on after the stack has stopped")
    return parser.parse_args(argv)


class Stack:
    """The embedded stack: its place, addresses and parts."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.place = Place((options.dir or default_dir()).expanduser().resolve())
        self.place.lock()
        self.fleet = (options.fleet or default_fleet()).resolve()
        self.cluster = load_fleet(self.fleet).cluster
        self.url = f"http://127.0.0.1:{self.place.port('api', options.port, API_PORT)}"
        external = os.environ.get("TEMPORAL_ADDRESS")
        self.temporal = external or f"127.0.0.1:{self.place.port('temporal', options.temporal_port, TEMPORAL_PORT)}"
        self.temporal_ui = os.environ.get("ASTRAEUS_TEMPORAL_UI")
        if not external:
            self.temporal_ui = f"http://127.0.0.1:{self.place.port('temporal-ui', 0, 0)}"
        self.announced = False
        self.parts = self._parts(embedded_temporal=not external)

    def _parts(self, embedded_temporal: bool) -> dict[str, Part]:
        python = (sys.executable, "-m")
        commands: dict[str, Sequence[str]] = {
            "temporal": temporal_command(self.place, self.temporal, self.temporal_ui or "", self.url),
            "api": (*python, "worker.api_main"),
            "worker": (*python, "worker.main"),
            "agent": self._agent_command(),
        }
        if not embedded_temporal:
            del commands["temporal"]
        environment = self.environment()
        return {
            name: Part(name, command, environment, self.place.logs / f"{name}.log", self.announce)
            for name, command in commands.items()
        }

    def _agent_command(self) -> Sequence[str]:
        return (
            *(sys.executable, "-m", "astraeus.agent"),
            *("--api", self.url, "--dir", str(self.place.agent)),
            *("--token-file", str(self.place.agent_token), "--fleet", str(self.fleet)),
        )

    def environment(self) -> dict[str, str]:
        """What the parts find in their environment; keys and tokens are in files, named here."""
        more = {
            "ASTRAEUS_LEDGER_URL": self.place.ledger_url,
            "ASTRAEUS_KEYS_FILE": str(self.place.keys),
            "ASTRAEUS_PUBLIC_URL": self.url,
            "ASTRAEUS_LISTEN": self.url.removeprefix("http://"),
            "TEMPORAL_ADDRESS": self.temporal,
            "PYTHONUNBUFFERED": "1",
            # Workers find this installation's Python first, with what it has, as `torchrun`.
            "PATH": os.pathsep.join((sysconfig.get_path("scripts"), os.environ.get("PATH", os.defpath))),
        }
        if self.temporal_ui:
            more |= {"ASTRAEUS_TEMPORAL_UI": self.temporal_ui, "ASTRAEUS_CODEC_ORIGIN": self.temporal_ui}
        return {**os.environ, **more}

    def announce(self) -> None:
        """Write dev.json, again whenever a pid changes, once the stack can take runs."""
        if not self.announced:
            return
        self.place.announce(
            {
                "api": f"{self.url}/api/o/{ORGANISATION}/w/{WORKSPACE}",
                "token": self.place.user_token.read_text(),
                "console": self.url,
                "temporal": self.temporal,
                "temporal_ui": self.temporal_ui,
                "pids": {name: part.pid for name, part in self.parts.items()},
            }
        )

    async def start(self) -> None:
        """Bring everything up in order and announce it."""
        self.place.withdraw()
        await self.place.furnish(self.cluster)
        began = time.time()
        for part in self.parts.values():
            await part.start()
        if "temporal" in self.parts:
            os.environ["TEMPORAL_ADDRESS"] = self.temporal
            await keep_histories(await connect(self._settings()), HISTORY_DAYS)
        await until("the API", self._api_ready, [self.parts["api"]], READY_SECONDS)
        await until("the worker process", self._worker_ready, [self.parts["worker"]], READY_SECONDS)
        await until("the agent", lambda: self._machines_heard(began), [self.parts["agent"]], READY_SECONDS)
        self.announced = True
        self.announce()

    def _settings(self) -> Settings:
        return Settings(ledger_url=self.place.ledger_url, keys_file=self.place.keys)

    async def _api_ready(self) -> bool:
        async with httpx.AsyncClient(timeout=5) as client:
            try:
                return (await client.get(f"{self.url}/readyz")).status_code == 200
            except httpx.HTTPError:
                return False

    async def _worker_ready(self) -> bool:
        ledger = Ledger(self.place.ledger_url)
        try:
            async with ledger.reading() as tx:
                return await fleetwide.is_watched(tx, self.cluster)
        finally:
            await ledger.close()

    async def _machines_heard(self, since: float) -> bool:
        ledger = Ledger(self.place.ledger_url)
        try:
            async with ledger.reading() as tx:
                return await fleetwide.heard_since(tx, self.cluster, since)
        finally:
            await ledger.close()

    async def stop(self) -> None:
        """Stop cleanly: first training, unless it is to go on, then the parts from the outside in."""
        self.place.withdraw()
        self.announced = False
        await self.parts["worker"].stop()
        if not self.options.leave_running:
            try:
                await self.stop_training()
            except AstraeusError as fault:
                # A script that exits with 0 when it is stopped would have succeeded, had nobody recorded the stop.
                log.warning("training goes on, since its stop cannot be recorded: %s", fault.message)
        for name in ("agent", "api", "temporal"):
            if name in self.parts:
                await self.parts[name].stop()

    async def stop_training(self) -> None:
        """Stop every gang with the intent on record, so that each is placed again, free, at the next start."""
        ledger = Ledger(self.place.ledger_url)
        try:
            async with ledger.transaction() as tx:
                grace = await fleetwide.stop_all(tx, self.cluster, who=WHO, why="the stack was stopped")
            ends = time.monotonic() + grace + 5
            alive = 1
            while alive and time.monotonic() < ends:
                async with ledger.reading() as tx:
                    alive = await fleetwide.count_alive(tx, self.cluster)
                await asyncio.sleep(0.1 if alive else 0)
            if alive:
                log.warning("%d workers did not stop in time; the agent finds them at the next start", alive)
        finally:
            await ledger.close()
        await self._stop_cut_off(grace)

    async def _stop_cut_off(self, grace: float) -> None:
        """Stop what runs on machines without a network, which no order reaches, through the agent's own door."""
        try:
            await asyncio.to_thread(control.ask, self.place.agent, {"stop_all": True}, grace + 5)
        except AstraeusError as fault:
            log.warning("%s", fault.message)


def temporal_command(place: Place, address: str, ui: str, api: str) -> Sequence[str]:
    """Temporal's dev server with a database file, the settings measured for one host, and our codec in its UI."""
    host, _, port = address.rpartition(":")
    command = [os.path.join(sysconfig.get_path("scripts"), "temporal"), "server", "start-dev"]
    command += ["--ip", host, "--port", port, "--ui-port", ui.rpartition(":")[2], "--log-level", "warn"]
    command += ["--db-filename", str(place.temporal_db), "--ui-codec-endpoint", f"{api}/temporal/codec"]
    for pragma in ("journal_mode=wal", "synchronous=normal"):
        command += ["--sqlite-pragma", pragma]
    for setting in TEMPORAL_SETTINGS:
        command += ["--dynamic-config-value", setting]
    for key in SEARCH_ATTRIBUTES:
        command += ["--search-attribute", f"{key.name}={'Int' if key is PRIORITY else 'Keyword'}"]
    return command


async def serve(stack: Stack) -> None:
    """Run the stack until SIGINT or SIGTERM."""
    stopping = asyncio.Event()
    starting = asyncio.create_task(stack.start())

    def stop() -> None:
        stopping.set()
        starting.cancel()

    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop)
    try:
        await starting
        print(welcome(stack), flush=True)
        await stopping.wait()
        print("Stopping …", flush=True)
    except asyncio.CancelledError:
        if not stopping.is_set():
            raise
    finally:
        await stack.stop()


def welcome(stack: Stack) -> str:
    """What a user needs to go on."""
    rows = {
        "console": stack.url,
        "API": f"{stack.url}/api/o/{ORGANISATION}/w/{WORKSPACE}",
        "Temporal UI": stack.temporal_ui or stack.temporal,
        "token": stack.place.user_token.read_text(),
        "state": str(stack.place.directory),
    }
    return "Astraeus is ready.\n" + "\n".join(f"  {name:<12} {value}" for name, value in rows.items())


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point of `python -m worker.dev`; answers the exit code."""
    logging.basicConfig(level=logging.WARNING, format="%(message)s")
    try:
        asyncio.run(serve(Stack(arguments(argv))))
    except (AstraeusError, TimeoutError) as error:
        print(f"astra dev: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
