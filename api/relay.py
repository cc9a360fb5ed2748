"""Log bytes on their way from an agent's upload to a reader: one chunk at a time, in constant memory."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from astraeus.model.errors import Away, NotSignedIn

ASKED_SECONDS = 10.0
"""How often it is asked whether the reader may go on where no chunk comes."""


class ReaderGone(Exception):
    """Nobody reads any more; the upload should end."""


async def _always() -> bool:
    return True


class Relay:
    """One reader and one upload. Neither runs ahead of the other by more than one chunk."""

    def __init__(self, cluster: str) -> None:
        self.cluster = cluster
        self.connected = asyncio.Event()
        self._closed = asyncio.Event()
        self._chunks: asyncio.Queue[bytes | None] = asyncio.Queue(1)
        self._failure: str | None = None

    async def upload(self, chunks: AsyncIterator[bytes]) -> None:
        """Hand over every chunk. Raises `ReaderGone` when the reader has left."""
        self.connected.set()
        try:
            async for chunk in chunks:
                if chunk:
                    await self._put(chunk)
        except ReaderGone:
            raise
        except BaseException as error:
            self._failure = f"The log broke off: {error or type(error).__name__}"
            raise
        finally:
            await self._put_end()

    async def _put(self, chunk: bytes | None) -> None:
        put = asyncio.ensure_future(self._chunks.put(chunk))
        closed = asyncio.ensure_future(self._closed.wait())
        try:
            await _first(put, closed)
            if self._closed.is_set():
                raise ReaderGone
        finally:
            put.cancel()
            closed.cancel()

    async def _put_end(self) -> None:
        try:
            await self._put(None)
        except ReaderGone:
            return

    async def read(self, may_read: Callable[[], Awaitable[bool]] = _always) -> AsyncIterator[bytes]:
        """The chunks, while the reader may have them.

        Raises `Away` when the upload broke off and `NotSignedIn` when `may_read` ended it, so that a short log is never
        taken for a whole one.
        """
        try:
            while (chunk := await self._next(may_read)) is not None:
                yield chunk
            if self._failure:
                raise Away(self._failure)
        finally:
            self.close()

    async def _next(self, may_read: Callable[[], Awaitable[bool]]) -> bytes | None:
        while True:
            try:
                chunk = await asyncio.wait_for(self._chunks.get(), ASKED_SECONDS)
            except TimeoutError:
                chunk = b""
            if not await may_read():
                raise NotSignedIn("The token is not good any more; the log ends here.")
            if chunk != b"":
                return chunk

    def close(self) -> None:
        """The reader has left."""
        self._closed.set()


async def _first(*futures: "asyncio.Future[Any]") -> None:
    """Return as soon as one of `futures` is done."""
    done = asyncio.Event()
    for future in futures:
        future.add_done_callback(lambda _: done.set())
    await done.wait()


class Relays:
    """The relays of this process that wait for an upload or carry one, by the id of their request."""

    def __init__(self) -> None:
        self._open: dict[str, Relay] = {}

    @property
    def count(self) -> int:
        """How many are open."""
        return len(self._open)

    def open(self, id: str, cluster: str) -> Relay:
        """A new relay for the request `id` to a machine of `cluster`."""
        relay = self._open[id] = Relay(cluster)
        return relay

    def waiting(self, id: str) -> Relay | None:
        """The relay that waits for the upload of this request; each has one upload."""
        relay = self._open.get(id)
        return None if relay is None or relay.connected.is_set() else relay

    def drop(self, id: str) -> None:
        """Forget a relay; an upload that comes later finds nobody."""
        if relay := self._open.pop(id, None):
            relay.close()
