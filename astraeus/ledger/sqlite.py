"""SQLite connections that cross to their thread once per statement; aiosqlite alone crosses four times."""

import asyncio
import sqlite3
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import aiosqlite

PRAGMAS = ("synchronous=FULL", "foreign_keys=ON")
"""What was answered after its commit must outlive a power cut too, for which WAL needs FULL."""
WAL_PAUSE = 0.02
STEPS_BETWEEN_CHECKS = 500_000

Outcome = tuple[Any, int, int | None, Sequence[Any]]
"""Description, row count, last row id and rows of a statement."""


class OneTripCursor:
    """A cursor that has all rows when `execute` returns, so that the rest needs no thread."""

    def __init__(self, connection: "OneTripConnection") -> None:
        self._connection = connection
        self._rows: Sequence[Any] = ()
        self.description: Any = None
        self.rowcount = -1
        self.lastrowid: int | None = None
        self.arraysize = 1

    async def __aenter__(self) -> "OneTripCursor":
        return self

    async def execute(self, statement: str, parameters: Any = ()) -> None:
        """Run a statement and keep its rows."""
        self._keep(await self._connection.trip(sqlite3.Connection.execute, statement, parameters))

    async def executemany(self, statement: str, parameters: Iterable[Any]) -> None:
        """Run a statement once for each set of parameters."""
        self._keep(await self._connection.trip(sqlite3.Connection.executemany, statement, parameters))

    async def fetchall(self) -> Sequence[Any]:
        """The rows of the last statement."""
        return self._rows

    async def close(self) -> None:
        """Nothing is held."""

    def _keep(self, outcome: Outcome) -> None:
        self.description, self.rowcount, self.lastrowid, self._rows = outcome


class OneTripConnection(aiosqlite.Connection):
    """An aiosqlite connection whose cursors are `OneTripCursor`.

    A cancelled statement ends soon, even one that had not begun, so that it does not go on holding the write lock;
    SQLAlchemy then drops the connection.
    """

    _abandoned = False

    def cursor(self) -> OneTripCursor:  # type: ignore[override]
        """A cursor, without a trip."""
        return OneTripCursor(self)

    async def trip(self, run: Callable[..., sqlite3.Cursor], statement: str, parameters: Any) -> Outcome:
        """Run a statement on the connection's thread."""

        def work() -> Outcome:
            cursor = run(self._conn, statement, parameters)
            rows = cursor.fetchall() if cursor.description else ()
            outcome = (cursor.description, cursor.rowcount, cursor.lastrowid, rows)
            cursor.close()
            return outcome

        try:
            outcome: Outcome = await self._execute(work)  # type: ignore[no-untyped-call]
        except asyncio.CancelledError:
            self._abandoned = True
            raise
        return outcome


async def connect(path: str, busy_seconds: float) -> OneTripConnection:
    """A connection to the file at `path` that waits up to `busy_seconds` for other processes' writes."""
    connection = OneTripConnection(
        lambda: sqlite3.connect(path, timeout=busy_seconds, isolation_level=None, cached_statements=512), 64
    )
    connection._thread.daemon = True
    await connection
    try:
        await connection.set_progress_handler(lambda: connection._abandoned, STEPS_BETWEEN_CHECKS)
        await _prepare(connection, busy_seconds)
    except BaseException:
        connection.stop()
        raise
    return connection


async def _prepare(connection: OneTripConnection, busy_seconds: float) -> None:
    """Set what SQLite keeps per connection.

    Changing to WAL is refused at once, without the busy wait, while another process is about to do the same.
    """
    deadline = asyncio.get_running_loop().time() + busy_seconds
    while True:
        try:
            await connection.trip(sqlite3.Connection.execute, "PRAGMA journal_mode=WAL", ())
            break
        except sqlite3.OperationalError:
            if asyncio.get_running_loop().time() > deadline:
                raise
            await asyncio.sleep(WAL_PAUSE)
    for pragma in PRAGMAS:
        await connection.trip(sqlite3.Connection.execute, f"PRAGMA {pragma}", ())
