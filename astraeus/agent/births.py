"""The agent's side of the nursery: asks for shims, and starts another nursery when one was killed."""

import asyncio
import json
import os
import socket
import subprocess
import sys
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from astraeus.agent import nursery

TRIES = 5


class Nursery:
    """Forks shims. A request that a dying nursery did not answer is asked again; a shim starts no worker twice."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._environment = dict(environment)
        self._socket: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._waiting: deque[asyncio.Future[int]] = deque()

    async def fork(self, directory: Path, content: dict[str, Any]) -> int:
        """The pid of a new shim for this worker directory. What it runs travels in memory only."""
        for _ in range(TRIES):
            with suppress(ConnectionError):
                return await self._ask(directory, content)
        raise OSError("the nursery of shims does not stay up")

    async def _ask(self, directory: Path, content: dict[str, Any]) -> int:
        line = self._line()
        answer: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        file = os.memfd_create("launch", os.MFD_CLOEXEC)
        try:
            _fill(file, json.dumps(content).encode())
            socket.send_fds(line, [os.fsencode(directory)], [file])
            self._waiting.append(answer)
        except OSError as fault:
            raise ConnectionError(str(fault)) from fault
        finally:
            os.close(file)
        return await asyncio.shield(answer)

    def _line(self) -> socket.socket:
        if self._socket is None:
            ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            with theirs:
                self._process = subprocess.Popen(
                    [sys.executable, "-I", "-S", nursery.__file__],
                    stdin=theirs.fileno(),
                    env=self._environment,
                    start_new_session=True,
                )
            self._socket = ours
            ours.setblocking(False)
            asyncio.get_running_loop().add_reader(ours, self._hear)
        return self._socket

    def _hear(self) -> None:
        assert self._socket is not None
        try:
            answer = self._socket.recv(64)
        except OSError:
            answer = b""
        if not answer:
            self.close()
        elif self._waiting:
            waiting = self._waiting.popleft()
            if not waiting.done():
                waiting.set_result(int(answer))

    def close(self) -> None:
        """Let the nursery go; its shims stay."""
        if self._socket is not None:
            asyncio.get_running_loop().remove_reader(self._socket)
            self._socket.close()
            self._socket = None
        if self._process is not None:
            self._process.wait()
            self._process = None
        while self._waiting:
            waiting = self._waiting.popleft()
            if not waiting.done():
                waiting.set_exception(ConnectionError("the nursery went away"))


def _fill(file: int, content: bytes) -> None:
    left = memoryview(content)
    while left:
        left = left[os.write(file, left) :]
    os.lseek(file, 0, os.SEEK_SET)
