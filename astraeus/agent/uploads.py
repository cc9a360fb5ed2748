"""Sends a worker's log to whoever reads it: raw bytes, in constant memory, as long as the reader stays."""

import asyncio
import logging
import os
import select
from collections.abc import AsyncIterator, Callable
from io import FileIO
from pathlib import Path
from typing import Any

import httpx

from astraeus.agent import disk
from astraeus.agent.hosts import Host
from astraeus.agent.link import Link
from astraeus.model.agent import LogRequest
from astraeus.model.errors import Invalid

CHUNK = 256 * 1024
AT_ONCE = 32
LOOK_SECONDS = 0.1
REMEMBERED = 1000
log = logging.getLogger("astraeus.agent")


class Uploads:
    """The logs being sent. The API may name a request more than once; it is served once."""

    def __init__(self, link: Link, hosts: dict[str, Host]) -> None:
        self._link, self._hosts = link, hosts
        self._slots = asyncio.Semaphore(AT_ONCE)
        self._served: dict[str, asyncio.Task[bool] | None] = {}
        self._tls = httpx.create_ssl_context()

    def start(self, request: LogRequest) -> None:
        """Serve a request in the background."""
        if request.id in self._served or request.machine not in self._hosts:
            return
        task = asyncio.create_task(self._serve(request))
        self._served[request.id] = task
        task.add_done_callback(lambda task: self._done(request.id, task))

    def _done(self, name: str, task: asyncio.Task[bool]) -> None:
        self._served[name] = None
        if not task.cancelled() and not task.result():
            del self._served[name]
        if len(self._served) > REMEMBERED:
            for old in [key for key, task in self._served.items() if task is None][: REMEMBERED // 2]:
                del self._served[old]

    async def _serve(self, request: LogRequest) -> bool:
        """False when nobody was reached: the request is served if the API names it again."""
        reader = Reader()
        async with self._slots:
            try:
                body = self._body(request, reader)
                timeout = httpx.Timeout(10.0, write=None, read=30.0)
                async with httpx.AsyncClient(timeout=timeout, verify=self._tls) as client:
                    await client.post(
                        f"{request.reply_to.rstrip('/')}/agent/v1/logs/{request.id}",
                        content=body,
                        headers={
                            "authorization": self._link.authorization,
                            "content-type": "application/octet-stream",
                        },
                        extensions={"trace": reader.trace},
                    )
            except (httpx.ConnectError, httpx.ConnectTimeout) as fault:
                log.warning("log %s: nobody at %s yet (%s)", request.id, request.reply_to, fault)
                return False
            except (httpx.HTTPError, httpx.StreamError, Invalid) as fault:
                log.info("log %s: the reader went away (%s)", request.id, type(fault).__name__)
        return True

    async def _body(self, request: LogRequest, reader: "Reader") -> AsyncIterator[bytes]:
        host = self._hosts[request.machine]
        directory = disk.worker_directory(host.directory, request.run_uid, request.attempt, request.rank)
        key = f"{request.run_uid}/{request.attempt}/{request.rank}"

        def over() -> bool:
            worker = host.workers.get(key)
            return worker is None or worker.ended

        async for chunk in follow(directory / "log", request.tail, request.follow, over, reader.gone):
            yield chunk

    async def close(self) -> None:
        """Break off what is being sent."""
        tasks = [task for task in self._served.values() if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class Reader:
    """Whether the other end still listens: it hung up, or answered before the end of the body."""

    def __init__(self) -> None:
        self._stream: Any = None
        self._signs = 0

    async def trace(self, event: str, info: dict[str, Any]) -> None:
        """Take the connection from the client's own account of what it does."""
        if event == "connection.connect_tcp.complete":
            self._stream, self._signs = info["return_value"], select.POLLIN | select.POLLRDHUP
        elif event == "connection.start_tls.complete":
            # TLS sends tickets of its own accord, so that something to read means nothing there.
            self._stream, self._signs = info["return_value"], select.POLLRDHUP

    def gone(self) -> bool:
        """True once the reader has hung up."""
        connection = self._stream and self._stream.get_extra_info("socket")
        if not connection:
            return False
        poller = select.poll()
        poller.register(connection.fileno(), self._signs)
        return bool(poller.poll(0))


async def follow(
    path: Path, tail: int | None, keep_on: bool, over: Callable[[], bool], gone: Callable[[], bool]
) -> AsyncIterator[bytes]:
    """The bytes of a log from `tail` lines before its end; with `keep_on`, until the worker is over."""
    while (file := _opened(path)) is None:
        if not keep_on or over() or gone():
            return
        await asyncio.sleep(LOOK_SECONDS)
    with file:
        if tail is not None:
            file.seek(tail_offset(file, tail))
        while True:
            # Asked before the read: what was written before the end is then never missed.
            last = not keep_on or over()
            while chunk := file.read(CHUNK):
                yield chunk
                await asyncio.sleep(0)
            if last or gone():
                return
            await asyncio.sleep(LOOK_SECONDS)


def _opened(path: Path) -> FileIO | None:
    try:
        return path.open("rb", buffering=0)
    except FileNotFoundError:
        return None


def tail_offset(file: FileIO, lines: int) -> int:
    """Where the last `lines` lines of a file begin; a last line without its end counts as one."""
    position = end = file.seek(0, os.SEEK_END)
    if lines <= 0:
        return end
    left = lines + 1
    while position > 0:
        size = min(CHUNK, position)
        position -= size
        file.seek(position)
        block = _read_exactly(file, size)
        if position + size == end and not block.endswith(b"\n"):
            left -= 1
        found = block.count(b"\n")
        if found < left:
            left -= found
            continue
        at = len(block)
        for _ in range(left):
            at = block.rfind(b"\n", 0, at)
        return position + at + 1
    return 0


def _read_exactly(file: FileIO, size: int) -> bytes:
    parts = []
    while size > 0 and (part := file.read(size)):
        parts.append(part)
        size -= len(part)
    return b"".join(parts)
