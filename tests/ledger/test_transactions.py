"""Transactions: whole or not at all, whoever else writes, and whenever they are cancelled."""

import asyncio
import subprocess
import sys
import time
from pathlib import Path

import pytest
from sqlalchemy import func, insert, select, text
from support.postgres import PostgresServer

from astraeus.ledger import core
from astraeus.ledger.core import Ledger, Tx
from astraeus.ledger.tables import change, organisation
from astraeus.model.errors import Away, Invalid

PATIENCE = 30.0
WRITER = """
import asyncio, sys
from sqlalchemy import insert
from astraeus.ledger.core import Ledger
from astraeus.ledger.tables import organisation

async def main(url, name, count):
    ledger = Ledger(url)
    for i in range(count):
        async with ledger.transaction() as tx:
            await tx.conn.execute(insert(organisation), {"name": f"{name}-{i}"})
            tx.announce("run", f"{name}-{i}")
    await ledger.close()

asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
"""
ENDLESS = {
    "sqlite": text("WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n"),
    "postgresql": text("SELECT pg_sleep(600)"),
}


async def add(tx: Tx, name: str) -> None:
    await tx.conn.execute(insert(organisation), {"name": name})


async def write(ledger: Ledger, name: str) -> None:
    async with ledger.transaction() as tx:
        await add(tx, name)


async def names(ledger: Ledger) -> set[str]:
    async with ledger.reading() as tx:
        return set((await tx.conn.execute(select(organisation.c.name))).scalars())


async def test_committed_as_a_whole(ledger: Ledger) -> None:
    async with ledger.transaction() as tx:
        await add(tx, "one")
        await add(tx, "two")
        tx.announce("run", "one")
        tx.announce("run", "two")
        tx.announce("run", "one")
    assert await names(ledger) == {"one", "two"}
    async with ledger.reading() as tx:
        rows = (await tx.conn.execute(select(change.c.kind, change.c.key).order_by(change.c.seq))).all()
    assert [tuple(row) for row in rows] == [("run", "one"), ("run", "two")]


async def test_now_is_the_databases_clock(ledger: Ledger) -> None:
    before = time.time()
    async with ledger.transaction() as first:
        pass
    async with ledger.reading() as second:
        pass
    assert before - 1 <= first.now <= second.now <= time.time() + 1


async def failing(ledger: Ledger) -> None:
    async with ledger.transaction() as tx:
        await add(tx, "lost")
        raise ZeroDivisionError


async def test_rolled_back_on_an_exception(ledger: Ledger) -> None:
    with pytest.raises(ZeroDivisionError):
        await failing(ledger)
    async with ledger.transaction() as tx:
        await add(tx, "kept")
    assert await names(ledger) == {"kept"}


async def test_a_reader_sees_one_state_and_blocks_nobody(ledger: Ledger) -> None:
    count = select(func.count()).select_from(organisation)
    async with ledger.reading() as tx:
        before = (await tx.conn.execute(count)).scalar_one()
        async with ledger.transaction() as writing:
            await add(writing, "meanwhile")
        assert (await tx.conn.execute(count)).scalar_one() == before == 0
    assert await names(ledger) == {"meanwhile"}


async def hold(ledger: Ledger, inside: asyncio.Event) -> None:
    async with ledger.transaction() as tx:
        await add(tx, "lost")
        inside.set()
        await asyncio.Event().wait()


async def stuck(ledger: Ledger, inside: asyncio.Event) -> None:
    async with ledger.transaction() as tx:
        await add(tx, "lost")
        inside.set()
        await tx.conn.execute(ENDLESS[tx.dialect])


@pytest.mark.parametrize("work", [hold, stuck])
async def test_cancelled_in_the_middle(ledger: Ledger, work: object) -> None:
    """Also in the middle of a statement; more often than the pool has connections."""
    assert callable(work)
    for _ in range(12 if work is hold else 4):
        inside = asyncio.Event()
        task = asyncio.create_task(work(ledger, inside))
        await inside.wait()
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    async with asyncio.timeout(PATIENCE), ledger.transaction() as tx:
        await add(tx, "kept")
    assert await names(ledger) == {"kept"}


async def test_cancelled_while_waiting_for_its_turn(ledger: Ledger) -> None:
    inside = asyncio.Event()
    holder = asyncio.create_task(hold(ledger, inside))
    await inside.wait()
    waiters = [asyncio.create_task(failing(ledger)) for _ in range(4)]
    await asyncio.sleep(0)
    for task in (*waiters, holder):
        task.cancel()
    await asyncio.gather(*waiters, holder, return_exceptions=True)
    async with asyncio.timeout(PATIENCE), ledger.transaction() as tx:
        await add(tx, "kept")
    assert await names(ledger) == {"kept"}


async def test_many_at_once(ledger: Ledger) -> None:
    async def one(number: int) -> None:
        async with ledger.transaction() as tx:
            await add(tx, str(number))

    await asyncio.gather(*(one(number) for number in range(60)))
    assert len(await names(ledger)) == 60


async def test_several_processes_write_one_database(ledger: Ledger, ledger_url: str) -> None:
    command = [sys.executable, "-c", WRITER, ledger_url]
    writers = [await asyncio.create_subprocess_exec(*command, f"w{i}", "25", stderr=subprocess.PIPE) for i in range(3)]
    for i in range(25):
        async with ledger.transaction() as tx:
            await add(tx, f"here-{i}")
    said = [(await writer.communicate())[1] for writer in writers]
    assert said == [b""] * 3
    assert len(await names(ledger)) == 4 * 25


async def test_stale_connections_are_not_noticed(postgres: PostgresServer, postgres_ledger_url: str) -> None:
    ledger = Ledger(postgres_ledger_url)
    readers = [ledger.reading() for _ in range(4)]
    for reader in readers:
        await reader.__aenter__()
    for reader in readers:
        await reader.__aexit__(None, None, None)
    postgres.stop()
    try:
        with pytest.raises(Away):
            await names(ledger)
    finally:
        postgres.start()
    assert await names(ledger) == set()
    async with ledger.transaction() as tx:
        await add(tx, "kept")
    await ledger.close()


async def test_a_database_lost_in_the_middle_is_away(postgres: PostgresServer, postgres_ledger_url: str) -> None:
    ledger = Ledger(postgres_ledger_url)

    async def lose() -> None:
        async with ledger.transaction() as tx:
            await add(tx, "lost")
            postgres.stop(immediately=True)
            postgres.start()
            await add(tx, "late")

    with pytest.raises(Away):
        await lose()
    assert await names(ledger) == set()
    await ledger.close()


async def test_a_database_that_others_hold_for_too_long_is_away(
    ledger: Ledger, ledger_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(core, "STATEMENT_SECONDS", 1)
    hasty = Ledger(ledger_url)
    async with ledger.transaction() as tx:
        await add(tx, "one")
        with pytest.raises(Away):
            await write(hasty, "one")
    await write(hasty, "two")
    assert await names(hasty) == {"one", "two"}
    await hasty.close()


async def test_no_server_is_away() -> None:
    ledger = Ledger("postgresql+asyncpg://nobody@127.0.0.1:1/none")
    with pytest.raises(Away, match="does not answer"):
        await names(ledger)
    await ledger.close()


def test_sqlite_needs_a_file() -> None:
    for url in ("sqlite+aiosqlite://", "sqlite+aiosqlite:///:memory:"):
        with pytest.raises(Invalid):
            Ledger(url)


async def test_sqlite_rules_hold_on_every_connection(sqlite_ledger: Ledger, tmp_path: Path) -> None:
    readers = [sqlite_ledger.reading() for _ in range(3)]
    opened = [await reader.__aenter__() for reader in readers]
    for tx in opened:
        assert (await tx.conn.exec_driver_sql("PRAGMA foreign_keys")).scalar_one() == 1
        assert (await tx.conn.exec_driver_sql("PRAGMA journal_mode")).scalar_one() == "wal"
        full = 2
        assert (await tx.conn.exec_driver_sql("PRAGMA synchronous")).scalar_one() == full
    for reader in readers:
        await reader.__aexit__(None, None, None)
