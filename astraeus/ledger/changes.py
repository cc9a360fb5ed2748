"""The change feed's readers: one poller per process tells every listener what changed."""

import asyncio
import logging
import sqlite3
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable
from contextlib import AsyncExitStack, suppress
from types import TracebackType
from typing import Any

from sqlalchemy import delete, func, select, text
from sqlalchemy.ext.asyncio import AsyncConnection

from astraeus.ledger.core import Ledger, Tx
from astraeus.ledger.tables import change

SINCE = text("SELECT seq, kind, key FROM change WHERE seq > :after ORDER BY seq LIMIT :batch")
NEWEST = "SELECT coalesce(max(seq), 0) FROM change"
BATCH = 5000
REASON = "reason"
"""A run of which only the reason changed: listeners hear of a run, but no snapshot that a pass is made of can show it.

A pass that starts one run may tell all that wait something new; were that a change of theirs, the next pass would read
them all.
"""
RETRY_FIRST = 0.1
RETRY_MOST = 5.0
PRUNED_SECONDS = 60.0
"""After a pause this long some of what was missed may have been pruned. `prune` never takes younger changes."""

log = logging.getLogger(__name__)


class Listener:
    """The changes of some topics since it was made. Close it, or use it as a context manager."""

    def __init__(self, hub: "ChangeHub", topics: Iterable[str]) -> None:
        self.topics = frozenset(topics)
        self._hub = hub
        self._changed: dict[tuple[str, str], None] = {}
        self._awake = asyncio.Event()

    async def wait(self, timeout: float | None) -> list[tuple[str, str]]:
        """The `(kind, key)` pairs since the last call, as soon as there is one; none after `timeout` seconds.

        After a gap in the feed the topics themselves are answered, with an empty key for a whole kind.
        """
        if not self._changed:
            with suppress(TimeoutError):
                async with asyncio.timeout(timeout):
                    await self._awake.wait()
        changed = list(self._changed)
        self._changed.clear()
        if not self._hub.closed:
            self._awake.clear()
        return changed

    def tell(self, pairs: Iterable[tuple[str, str]]) -> None:
        """Add changes and wake whoever waits."""
        self._changed.update(dict.fromkeys(pairs))
        self._awake.set()

    def close(self) -> None:
        """Hear no more."""
        self._hub.forget(self)

    def __enter__(self) -> "Listener":
        return self

    def __exit__(self, _: type[BaseException] | None, __: BaseException | None, ___: TracebackType | None) -> None:
        self.close()


class SqliteProbe:
    """Sees commits of every other connection to a file, in memory that SQLite shares; too quick for a thread."""

    def __init__(self, path: str) -> None:
        self._conn = sqlite3.connect(path, timeout=0, isolation_level=None)
        self._version: int | None = None

    def __enter__(self) -> "SqliteProbe":
        return self

    def __exit__(self, _: type[BaseException] | None, __: BaseException | None, ___: TracebackType | None) -> None:
        self._conn.close()

    async def moved(self) -> bool:
        """Whether anything was committed since the last call; the first call says yes."""
        try:
            version = int(self._conn.execute("PRAGMA data_version").fetchone()[0])
        except sqlite3.OperationalError:
            return True
        moved = version != self._version
        self._version = version
        return moved


class ChangeHub:
    """Reads the change feed for all listeners of a process, and only while there are any.

    The feed's sequence is its order of commits (see `core`), so that reading on after the last number seen misses
    nothing, also after a time without listeners or without the database.
    """

    def __init__(self, ledger: Ledger, poll_seconds: float = 0.02) -> None:
        self.closed = False
        self._ledger = ledger
        self._poll_seconds = poll_seconds
        self._listeners: dict[str, set[Listener]] = defaultdict(set)
        self._wanted = asyncio.Event()
        self._seen: int | None = None
        self._seen_at = 0.0
        self._pause = RETRY_FIRST
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Begin at the present end of the feed."""
        with suppress(Exception):
            async with self._ledger.engine.connect() as conn:
                await self._begin(conn)
        self._task = asyncio.create_task(self._run(), name="change feed")

    async def close(self) -> None:
        """Stop polling; waiting listeners return."""
        self.closed = True
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        self._tell_all()

    def listen(self, *topics: str) -> Listener:
        """Hear of every change of `topics`, each "kind" or "kind:key", that is committed from now on."""
        listener = Listener(self, topics)
        for topic in listener.topics:
            self._listeners[topic].add(listener)
        self._wanted.set()
        return listener

    def forget(self, listener: Listener) -> None:
        """Take a listener out."""
        for topic in listener.topics:
            self._listeners[topic].discard(listener)
            if not self._listeners[topic]:
                del self._listeners[topic]
        if not self._listeners:
            self._wanted.clear()

    async def _run(self) -> None:
        while True:
            await self._wanted.wait()
            try:
                async with AsyncExitStack() as stack:
                    conn = await stack.enter_async_context(self._ledger.engine.connect())
                    try:
                        await self._follow(conn, await self._probe(conn, stack))
                    except Exception:
                        # The probe goes past SQLAlchemy, whose pool would keep the connection that failed.
                        await conn.invalidate()
                        raise
            except Exception as error:
                log.warning("the change feed is away, trying again in %.1f s: %s", self._pause, error)
                await asyncio.sleep(self._pause)
                self._pause = min(2 * self._pause, RETRY_MOST)

    async def _follow(self, conn: AsyncConnection, moved: Callable[[], Awaitable[bool]]) -> None:
        while self._listeners:
            if await moved():
                await self._poll(conn)
            self._pause = RETRY_FIRST
            await asyncio.sleep(self._poll_seconds)

    async def _probe(self, conn: AsyncConnection, stack: AsyncExitStack) -> Callable[[], Awaitable[bool]]:
        """Whether the feed may have moved, past SQLAlchemy, which would cost more than all the rest of an idle poll."""
        if self._ledger.dialect == "sqlite":
            probe = stack.enter_context(SqliteProbe(str(self._ledger.url.database)))
            return probe.moved
        await conn.execution_options(isolation_level="AUTOCOMMIT")
        driver: Any = (await conn.get_raw_connection()).driver_connection

        async def moved() -> bool:
            return int(await driver.fetchval(NEWEST)) != self._seen

        return moved

    async def _poll(self, conn: AsyncConnection) -> None:
        if self._seen is None:
            await self._begin(conn)
            self._tell_all()
            return
        if asyncio.get_running_loop().time() - self._seen_at > PRUNED_SECONDS:
            await self._check_gap(conn, self._seen)
        more = True
        while more:
            rows = (await conn.execute(SINCE, {"after": self._seen, "batch": BATCH})).all()
            self._tell((row.kind, row.key) for row in rows)
            if rows:
                self._seen = rows[-1].seq
            more = len(rows) == BATCH
        self._seen_at = asyncio.get_running_loop().time()

    async def _begin(self, conn: AsyncConnection) -> None:
        """Take the feed's end as seen."""
        self._seen = int((await conn.execute(select(func.coalesce(func.max(change.c.seq), 0)))).scalar_one())
        self._seen_at = asyncio.get_running_loop().time()

    async def _check_gap(self, conn: AsyncConnection, seen: int) -> None:
        """Where the oldest change left is not the next one, some may be pruned: every topic may have changed."""
        oldest = (await conn.execute(select(func.min(change.c.seq)))).scalar_one()
        if oldest is not None and oldest > seen + 1:
            self._tell_all()

    def _tell(self, pairs: Iterable[tuple[str, str]]) -> None:
        for said, key in pairs:
            kind = "run" if said == REASON else said
            for topic in (kind, f"{kind}:{key}"):
                for listener in self._listeners.get(topic, ()):
                    listener.tell([(kind, key)])

    def _tell_all(self) -> None:
        for topic, listeners in self._listeners.items():
            kind, _, key = topic.partition(":")
            for listener in listeners:
                listener.tell([(kind, key)])


async def prune(tx: Tx, older_than_seconds: float) -> int:
    """Forget old changes, but never the newest one, which tells readers whether they missed some; how many."""
    before = tx.now - max(older_than_seconds, 2 * PRUNED_SECONDS)
    newest = select(func.max(change.c.seq)).scalar_subquery()
    return (await tx.conn.execute(delete(change).where(change.c.at < before, change.c.seq < newest))).rowcount
