"""Ledgers for tests: the same suite runs on SQLite and on a real PostgreSQL server."""

import shutil
import uuid
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from support.postgres import PostgresServer, in_thread, postgres_server

from astraeus.ledger.core import Ledger
from astraeus.ledger.migrate import upgrade

TEMPLATE = "astraeus_template"


async def _migrate(url: str) -> None:
    ledger = Ledger(url)
    try:
        await upgrade(ledger)
    finally:
        await ledger.close()


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """A PostgreSQL server for the whole session, with a migrated template database."""
    with postgres_server() as server:
        in_thread(_migrate(server.create(TEMPLATE)))
        yield server


@pytest.fixture(scope="session")
def postgres_url(postgres: PostgresServer) -> str:
    """The URL of the session's server, at its maintenance database."""
    return postgres.url("postgres")


@pytest.fixture
def postgres_ledger_url(postgres: PostgresServer) -> Iterator[str]:
    """A fresh migrated database on PostgreSQL."""
    name = f"t_{uuid.uuid4().hex}"
    yield postgres.create(name, TEMPLATE)
    postgres.drop(name)


@pytest.fixture(scope="session")
def sqlite_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A migrated SQLite file to copy."""
    path = tmp_path_factory.mktemp("ledger") / "template.db"
    in_thread(_migrate(f"sqlite+aiosqlite:///{path}"))
    return path


@pytest.fixture
def sqlite_ledger_url(sqlite_template: Path, tmp_path: Path) -> str:
    """A fresh migrated SQLite file."""
    path = tmp_path / "ledger.db"
    shutil.copyfile(sqlite_template, path)
    return f"sqlite+aiosqlite:///{path}"


@pytest.fixture(params=["sqlite", "postgresql"])
def ledger_url(request: pytest.FixtureRequest) -> str:
    """A fresh migrated database on each kind of database."""
    url: str = request.getfixturevalue(
        {"sqlite": "sqlite_ledger_url", "postgresql": "postgres_ledger_url"}[request.param]
    )
    return url


@pytest.fixture
async def ledger(ledger_url: str) -> AsyncIterator[Ledger]:
    """A fresh migrated ledger, on each kind of database."""
    ledger = Ledger(ledger_url)
    yield ledger
    await ledger.close()


@pytest.fixture
async def sqlite_ledger(sqlite_ledger_url: str) -> AsyncIterator[Ledger]:
    """A fresh migrated ledger on SQLite, for tests that need only one."""
    ledger = Ledger(sqlite_ledger_url)
    yield ledger
    await ledger.close()
