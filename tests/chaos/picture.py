"""The ledger's rows as one consistent picture, read past Astraeus: plain SQL, read only, a connection of its own."""

import asyncio
import sqlite3
from dataclasses import dataclass
from typing import Any

import asyncpg

Row = dict[str, Any]
QUERIES = {
    "runs": "SELECT uid, name, state, final, reason, attempt, priority, budget, budget_left FROM run",
    "claims": "SELECT id, run_uid, attempt, state, intent, intent_at, intent_by, intent_why, failure, failure_at,"
    " succeeded_at, entered_at, granted_at, gates_opened_at, released_at, cause, detail, charged, size,"
    " master_host, master_port FROM claim ORDER BY run_uid, attempt",
    "allocations": "SELECT claim, rank, machine, gpu_mask, live FROM allocation",
    "machines": "SELECT name, state, cordoned, used_gpus, used_cpu, used_memory FROM machine",
    "reservations": "SELECT claim, machine FROM reservation",
    "workers": "SELECT run_uid, attempt, rank, machine, gone FROM worker",
    "unsent": "SELECT id, run_uid, kind FROM outbox WHERE sent_at IS NULL",
}
WAIT_SECONDS = 10


@dataclass(frozen=True)
class Picture:
    """All rows that matter, as of one moment."""

    runs: list[Row]
    claims: list[Row]
    allocations: list[Row]
    machines: list[Row]
    reservations: list[Row]
    workers: list[Row]
    unsent: list[Row]

    @property
    def names(self) -> dict[str, str]:
        """Names of runs by uid."""
        return {row["uid"]: row["name"] for row in self.runs}


def take(url: str) -> Picture:
    """The picture of a ledger now; raises OSError or the driver's own error while it is away."""
    if url.startswith("sqlite"):
        return Picture(**_sqlite(url.partition(":///")[2]))
    return Picture(**asyncio.run(_postgresql(url.replace("+asyncpg", ""))))


def _sqlite(path: str) -> dict[str, list[Row]]:
    connection = sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=WAIT_SECONDS, isolation_level=None)
    connection.row_factory = sqlite3.Row
    try:
        connection.execute("BEGIN")
        return {name: [dict(row) for row in connection.execute(query)] for name, query in QUERIES.items()}
    finally:
        connection.close()


async def _postgresql(url: str) -> dict[str, list[Row]]:
    connection = await asyncpg.connect(url, timeout=WAIT_SECONDS)
    try:
        async with connection.transaction(isolation="repeatable_read", readonly=True):
            found = {name: await connection.fetch(query) for name, query in QUERIES.items()}
        return {name: [dict(row) for row in rows] for name, rows in found.items()}
    finally:
        await connection.close()
