"""Connections, transactions and the clock of the ledger, on SQLite and PostgreSQL alike."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import URL, event, make_url, text
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine
from sqlalchemy.pool import ConnectionPoolEntry

from astraeus.ledger.tables import change

STATEMENT_SECONDS = 30
CHANGE_LOCK = 0x41535452
CLOCK = {
    "sqlite": text("SELECT (julianday('now') - 2440587.5) * 86400.0"),
    "postgresql": text("SELECT extract(epoch FROM clock_timestamp())::double precision"),
}


@dataclass
class Tx:
    """One open transaction: its connection, its time, and the changes it will announce.

    `now` is the database's clock at the start of the transaction, in seconds since the epoch. `outbox` holds the
    ids of the messages written in it, which the committer may deliver at once.
    """

    conn: AsyncConnection
    now: float
    dialect: str
    changes: list[tuple[str, str]] = field(default_factory=list)
    outbox: list[int] = field(default_factory=list)

    def announce(self, kind: str, key: str) -> None:
        """Append `(kind, key)` to the change feed when the transaction commits."""
        if (kind, key) not in self.changes:
            self.changes.append((kind, key))


class Ledger:
    """The SQL database behind everything. One per process; `close` it at the end."""

    def __init__(self, url: str | URL, pool_size: int = 5) -> None:
        """`url` is `sqlite+aiosqlite:///path` or `postgresql+asyncpg://…`."""
        self.url = make_url(url)
        self.dialect = self.url.get_backend_name()
        self.engine = _engine(self.url, self.dialect, pool_size)
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
        async with AsyncExitStack() as stack:
            if self.dialect == "sqlite":
                await stack.enter_async_context(self._writing)
            conn = await stack.enter_async_context(self.engine.connect())
            if self.dialect == "sqlite":
                await conn.exec_driver_sql("BEGIN IMMEDIATE")
            tx = Tx(conn, await _clock(conn, self.dialect), self.dialect)
            try:
                yield tx
                await _append(tx)
                await conn.commit()
            except BaseException:
                await asyncio.shield(conn.rollback())
                raise

    @asynccontextmanager
    async def reading(self) -> AsyncIterator[Tx]:
        """A transaction that only reads, from one consistent state."""
        async with self.engine.connect() as conn:
            if self.dialect == "sqlite":
                await conn.exec_driver_sql("BEGIN")
            else:
                await conn.execute(text("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY"))
            yield Tx(conn, await _clock(conn, self.dialect), self.dialect)
            await conn.rollback()


async def _clock(conn: AsyncConnection, dialect: str) -> float:
    return float((await conn.execute(CLOCK[dialect])).scalar_one())


async def _append(tx: Tx) -> None:
    """Write the announced changes. On PostgreSQL the lock, held to the commit, makes sequence order commit order."""
    if not tx.changes:
        return
    if tx.dialect == "postgresql":
        await tx.conn.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": CHANGE_LOCK})
    rows: Iterable[dict[str, Any]] = [{"kind": kind, "key": key, "at": tx.now} for kind, key in tx.changes]
    await tx.conn.execute(change.insert(), list(rows))


def _engine(url: URL, dialect: str, pool_size: int) -> AsyncEngine:
    if dialect == "sqlite":
        engine = create_async_engine(url, pool_size=pool_size, connect_args={"timeout": STATEMENT_SECONDS})
        event.listen(engine.sync_engine, "connect", _prepare_sqlite)
        return engine
    settings = {"timeout": 10, "command_timeout": STATEMENT_SECONDS}
    return create_async_engine(url, pool_size=pool_size, pool_pre_ping=True, connect_args=settings)


def _prepare_sqlite(connection: DBAPIConnection, _: ConnectionPoolEntry) -> None:
    """Let this module begin transactions itself, and set what SQLite keeps per connection."""
    connection.isolation_level = None
    cursor = connection.cursor()
    for pragma in ("journal_mode=WAL", "synchronous=NORMAL", "foreign_keys=ON"):
        cursor.execute(f"PRAGMA {pragma}")
    cursor.close()
