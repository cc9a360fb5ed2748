"""The agent's own door on its machine: a socket that only its user can open, one JSON object a line, one answer each.

`{"machine": "m-3", "power": "off"|"on"}`, `{"machine": "m-3", "unplug": true|false}`, `{"stop_all": true}` and
`{"status": true}`.
"""

import asyncio
import contextlib
import json
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from astraeus.agent.hosts import Host
from astraeus.agent.keeper import Keeper
from astraeus.agent.power import Power
from astraeus.model.errors import Away, Conflict, Invalid, NotFound

NAME = "control.sock"
LONGEST = 65536


@contextlib.contextmanager
def _address(directory: Path) -> Iterator[str]:
    """A path to the socket that is short enough for the kernel, however deep the directory is."""
    try:
        handle = os.open(directory, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as fault:
        raise Away(f"there is no agent's directory {directory}") from fault
    try:
        yield f"/proc/self/fd/{handle}/{NAME}"
    finally:
        os.close(handle)


class Door:
    """Serves the control socket."""

    def __init__(self, directory: Path, keeper: Keeper, power: Power) -> None:
        self._directory, self._keeper, self._power = directory, keeper, power
        self._server: asyncio.Server | None = None

    async def open(self) -> None:
        """Listen; a socket left by a killed agent is replaced, since the directory's lock is ours."""
        path = self._directory / NAME
        path.unlink(missing_ok=True)
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        with _address(self._directory) as address:
            mask = os.umask(0o177)
            try:
                listener.bind(address)
            finally:
                os.umask(mask)
        self._server = await asyncio.start_unix_server(self._serve, sock=listener, limit=LONGEST)

    async def close(self) -> None:
        """Listen no longer."""
        if self._server:
            self._server.close()
            (self._directory / NAME).unlink(missing_ok=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while line := await reader.readline():
                try:
                    answer: dict[str, Any] = {"ok": True} | await self._obey(line)
                except (Invalid, NotFound, Conflict) as refusal:
                    answer = {"ok": False, "error": refusal.message}
                writer.write(json.dumps(answer).encode() + b"\n")
                await writer.drain()
        except (ConnectionError, ValueError, asyncio.CancelledError):
            # The caller went away, sent a line without an end, or the agent is leaving.
            return
        finally:
            writer.close()

    async def _obey(self, line: bytes) -> dict[str, Any]:
        try:
            order = json.loads(line)
        except ValueError:
            raise Invalid("an order is one JSON object on a line") from None
        match order:
            case {"stop_all": True}:
                await self._keeper.stop_all()
            case {"status": True}:
                return {"machines": {host.name: _status(host) for host in self._keeper.hosts.values()}}
            case {"machine": str(name), "power": "on" | "off" as power}:
                switch = self._power.on if power == "on" else self._power.off
                await switch(self._virtual(name))
            case {"machine": str(name), "unplug": bool(unplug)}:
                self._virtual(name).set_plugged(not unplug)
            case _:
                raise Invalid("unknown order; there are power, unplug, stop_all and status")
        return {}

    def _virtual(self, name: str) -> Host:
        host = self._keeper.hosts.get(name)
        if host is None:
            raise NotFound(f"there is no machine {name} here")
        if not host.facts.virtual:
            raise Conflict(f"{name} is a real machine; its power is not the agent's to switch")
        return host


def _status(host: Host) -> dict[str, Any]:
    return {
        "boot_id": host.boot_id,
        "powered": host.powered,
        "plugged": host.plugged,
        "workers": {key: worker.state.state if worker.state else None for key, worker in host.workers.items()},
    }


def ask(directory: Path, order: dict[str, Any], timeout: float | None = 60.0) -> dict[str, Any]:
    """Send one order to the agent that owns a directory and return its answer."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as line, _address(directory) as address:
        line.settimeout(timeout)
        try:
            line.connect(address)
            line.sendall(json.dumps(order).encode() + b"\n")
            with line.makefile("rb") as file:
                said = file.readline()
        except OSError as fault:
            raise Away(f"no agent answers in {directory}: {fault.strerror or fault}") from fault
    if not said:
        raise Away(f"the agent in {directory} went away before it answered")
    answer: dict[str, Any] = json.loads(said)
    if not answer.get("ok"):
        raise Conflict(str(answer.get("error")))
    return answer


def power(directory: Path, machine: str, on: bool) -> None:
    """Switch a virtual machine off, as a power fault would, or back on."""
    ask(directory, {"machine": machine, "power": "on" if on else "off"})


def unplug(directory: Path, machine: str, cut: bool) -> None:
    """Cut a virtual machine's network, with its processes going on, or join it again."""
    ask(directory, {"machine": machine, "unplug": cut})


def stop_all(directory: Path) -> None:
    """Stop every worker of the agent with its grace; returns when all have ended."""
    ask(directory, {"stop_all": True}, timeout=None)
