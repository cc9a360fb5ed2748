"""Connections, transactions and the clock of the ledger, on SQLite and PostgreSQL alike."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial

from sqlalchemy import URL, make_url, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine
from sqlalchemy.pool import AsyncAdaptedQueuePool

from astraeus.ledger.sqlite import connect
from astraeus.model.errors import Away, Invalid

STATEMENT_SECONDS = 30
CONNECT_SECONDS = 10
STATEMENTS = 1000
"""Kept ready on a connection, where the driver's default is 100; the one that was used last knows the most of them."""

CHANGE_LOCK = 0x41535452
GAVE_WAY = frozenset({"40P01", "40001"})
"""PostgreSQL's deadlock and serialisation failure (manual, appendix A): the same transaction may be tried again."""
CLOCK = text("SELECT extract(epoch FROM clock_timestamp())::double precision")
APPEND = {
    "sqlite": text("INSERT INTO change (kind, key, at) VALUES (:kind, :key, :at)"),
    "postgresql": text(
        "INSERT INTO change (kind, key, at) SELECT pair.kind, pair.key, :at"
        " FROM (SELECT pg_advisory_xact_lock(:lock)) AS held,"
        " unnest(CAST(:kinds AS varchar[]), CAST(:keys AS varchar[])) AS pair(kind, key)"
    ),
}


@dataclass
class Tx:
    """One open transaction: its connection, its time, and the changes it will announce.

    `now` is the database's clock at the start of the transaction, in seconds since the epoch. `outbox` are the ids of
    the outbox rows added in it, for whoever committed them to deliver at once. `derived` is what is put together, once
    each, from all that the transaction wrote, when it has locked whatever else it needs.
    """

    conn: AsyncConnection
    now: float
    dialect: str
    changes: dict[tuple[str, str], None] = field(default_factory=dict)
    outbox: list[int] = field(default_factory=list)
    derived: dict[str, Callable[["Tx", str], Awaitable[None]]] = field(default_factory=dict)

    def announce(self, kind: str, key: str) -> None:
        """Append `(kind, key)` to the change feed when the transaction commits."""
        self.changes[kind, key] = None


class Ledger:
    """The SQL database behind everything. One per process; `close` it at the end.

    A database that does not answer is `Away`: nothing of the transaction was written, unless it went away in the
    middle of the commit itself.
    """

    def __init__(self, url: str | URL, pool_size: int = 5) -> None:
        """`url` is `sqlite+aiosqlite:///path` or `postgresql+asyncpg://…`."""
        self.url = make_url(url)
        self.dialect = self.url.get_backend_name()
        self.engine = _engine(self.url, self.dialect, pool_size)
        self._snapshots = self.engine
        if self.dialect == "postgresql":
            self._snapshots = self.engine.execution_options(isolation_level="REPEATABLE READ", postgresql_readonly=True)
        self._writing = asyncio.Lock()

    async def close(self) -> None:
        """Give back every connection."""
        await self.engine.dispose()

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Tx]:
        """A transaction that writes: committed at the end of the block, rolled back on an exception.

        On SQLite writers of one process queue here rather than in the database's busy handler, whose growing
        sleeps would cost tens of milliseconds.
        """
        turn = self._writing if self.dialect == "sqlite" else nullcontext()
        async with turn, self._opened(self.engine, "BEGIN IMMEDIATE") as tx:
            yield tx
            for key in sorted(tx.derived):
                await tx.derived[key](tx, key)
            await _append(tx)
            await tx.conn.commit()

    @asynccontextmanager
    async def reading(self) -> AsyncIterator[Tx]:
        """A transaction that only reads, from one consistent state."""
        async with self._opened(self._snapshots, "BEGIN") as tx:
            yield tx

    @asynccontextmanager
    async def _opened(self, engine: AsyncEngine, begin: str) -> AsyncIterator[Tx]:
        """An open transaction; what it has not committed is rolled back, even when the caller is cancelled again."""
        conn, now = await self._begin(engine, begin)
        try:
            yield Tx(conn, now, self.dialect)
        except DBAPIError as error:
            if error.connection_invalidated:
                raise Away("The ledger's database went away") from error
            if getattr(error.orig, "sqlstate", None) in GAVE_WAY:
                raise Away("The ledger's database undid a transaction in favour of another; try again") from error
            raise
        except TimeoutError as error:
            # The driver's own, which SQLAlchemy passes on as it is.
            raise Away(f"The ledger's database did not answer within {STATEMENT_SECONDS} s") from error
        finally:
            await asyncio.shield(asyncio.create_task(conn.close()))

    async def _begin(self, engine: AsyncEngine, begin: str) -> tuple[AsyncConnection, float]:
        """A connection with an open transaction, and its time.

        The first statement shows whether a pooled connection outlived its server; if not, a second one is fresh, since
        the pool drops all of them at once.
        """
        try:
            try:
                return await self._first(engine, begin)
            except DBAPIError as error:
                if not error.connection_invalidated:
                    raise
            return await self._first(engine, begin)
        except (DBAPIError, PoolTimeout, OSError) as error:
            raise Away(f"The ledger's database does not answer: {type(error).__name__}") from error

    async def _first(self, engine: AsyncEngine, begin: str) -> tuple[AsyncConnection, float]:
        """SQLite's clock is this computer's; PostgreSQL is asked for its own."""
        conn = engine.connect()
        await conn.start()
        try:
            if self.dialect == "sqlite":
                await conn.exec_driver_sql(begin)
                return conn, time.time()
            return conn, float((await conn.execute(CLOCK)).scalar_one())
        except BaseException:
            await conn.close()
            raise


async def _append(tx: Tx) -> None:
    """Write the announced changes. On PostgreSQL the lock, held to the commit, makes sequence order commit order."""
    if not tx.changes:
        return
    if tx.dialect == "postgresql":
        kinds, keys = zip(*tx.changes, strict=True)
        values = {"at": tx.now, "lock": CHANGE_LOCK, "kinds": list(kinds), "keys": list(keys)}
        await tx.conn.execute(APPEND["postgresql"], values)
    else:
        rows = [{"kind": kind, "key": key, "at": tx.now} for kind, key in tx.changes]
        await tx.conn.execute(APPEND["sqlite"], rows)


def _engine(url: URL, dialect: str, pool_size: int) -> AsyncEngine:
    """Every transaction here ends itself, so the pool need not roll back once more."""
    if dialect == "sqlite":
        if not url.database or url.database == ":memory:":
            raise Invalid("The ledger needs a file: sqlite+aiosqlite:///path")
        return create_async_engine(
            url,
            async_creator=partial(connect, url.database, STATEMENT_SECONDS),
            poolclass=AsyncAdaptedQueuePool,
            pool_size=pool_size,
            pool_reset_on_return=None,
        )
    settings = {
        "timeout": CONNECT_SECONDS,
        "command_timeout": STATEMENT_SECONDS,
        "prepared_statement_cache_size": STATEMENTS,
    }
    return create_async_engine(url, pool_size=pool_size, pool_use_lifo=True, connect_args=settings)
