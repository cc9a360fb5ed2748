"""The migrations build what `tables` says, on both databases, however many processes start at once."""

import asyncio
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from sqlalchemy import Connection, inspect
from support.postgres import PostgresServer

from astraeus.ledger.core import Ledger
from astraeus.ledger.migrate import current, upgrade
from astraeus.ledger.tables import metadata

START = """
import asyncio, sys
from astraeus.ledger.core import Ledger
from astraeus.ledger.migrate import upgrade, current

async def main():
    ledger = Ledger(sys.argv[1])
    sys.stdin.readline()
    await upgrade(ledger)
    assert await current(ledger)
    await ledger.close()

print("ready", flush=True)
asyncio.run(main())
"""


@pytest.fixture(params=["sqlite", "postgresql"])
def empty_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "sqlite":
        yield f"sqlite+aiosqlite:///{tmp_path / 'empty.db'}"
        return
    server: PostgresServer = request.getfixturevalue("postgres")
    name = f"t_{uuid.uuid4().hex}"
    yield server.create(name)
    server.drop(name)


def _differences(connection: Connection) -> list[Any]:
    context = MigrationContext.configure(connection, opts={"compare_type": True})
    return list(compare_metadata(context, metadata))


def _schema(connection: Connection) -> dict[str, Any]:
    """Everything the database itself says about its tables, with checks and predicates in its own words."""
    reader = inspect(connection)
    return {
        table: {
            "columns": [{**column, "type": repr(column["type"])} for column in reader.get_columns(table)],
            "key": reader.get_pk_constraint(table),
            "references": sorted(reader.get_foreign_keys(table), key=repr),
            "unique": sorted(reader.get_unique_constraints(table), key=repr),
            "checks": sorted(reader.get_check_constraints(table), key=repr),
            "indexes": sorted((_index(index) for index in reader.get_indexes(table)), key=repr),
        }
        for table in reader.get_table_names()
        if table != "alembic_version"
    }


def _index(index: Any) -> dict[str, Any]:
    return {**index, "dialect_options": {name: str(value) for name, value in index.get("dialect_options", {}).items()}}


async def _read_schema(ledger: Ledger) -> dict[str, Any]:
    async with ledger.engine.connect() as conn:
        return await conn.run_sync(_schema)


async def test_migrations_and_tables_agree(ledger: Ledger) -> None:
    async with ledger.engine.connect() as conn:
        assert await conn.run_sync(_differences) == []


async def test_defaults_checks_and_partial_indexes_agree(empty_url: str) -> None:
    ledger = Ledger(empty_url)
    await upgrade(ledger)
    migrated = await _read_schema(ledger)
    async with ledger.engine.begin() as conn:
        await conn.run_sync(metadata.drop_all)
        await conn.run_sync(metadata.create_all)
    created = await _read_schema(ledger)
    await ledger.close()
    assert created.keys() == migrated.keys() == metadata.tables.keys()
    assert created == migrated
    assert any(index["dialect_options"] for index in migrated["claim"]["indexes"])
    assert migrated["machine"]["checks"]


async def test_upgrade_twice_changes_nothing(empty_url: str) -> None:
    ledger = Ledger(empty_url)
    assert not await current(ledger)
    await upgrade(ledger)
    before = await _read_schema(ledger)
    await upgrade(ledger)
    assert await current(ledger)
    assert await _read_schema(ledger) == before
    await ledger.close()


async def test_several_upgrades_in_one_process(empty_url: str) -> None:
    ledgers = [Ledger(empty_url) for _ in range(4)]
    await asyncio.gather(*(upgrade(ledger) for ledger in ledgers))
    assert await current(ledgers[0])
    for ledger in ledgers:
        await ledger.close()


def test_several_processes_start_at_once(empty_url: str) -> None:
    command = [sys.executable, "-c", START, empty_url]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    started: list[subprocess.Popen[str]] = [subprocess.Popen(command, **pipes) for _ in range(4)]  # type: ignore[call-overload]
    for process in started:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in started:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    faults = [process.communicate(timeout=60)[1] for process in started]
    assert [(process.returncode, fault) for process, fault in zip(started, faults, strict=True)] == [(0, "")] * 4


async def test_a_failed_upgrade_leaves_nothing(empty_url: str) -> None:
    ledger = Ledger(empty_url)
    async with ledger.engine.begin() as conn:
        await conn.exec_driver_sql("CREATE TABLE claim (id integer)")
    with pytest.raises(Exception, match="claim"):
        await upgrade(ledger)
    async with ledger.engine.connect() as conn:
        tables = await conn.run_sync(lambda connection: inspect(connection).get_table_names())
    await ledger.close()
    assert tables == ["claim"]
