"""Bring a ledger's schema up to date; several processes may try at once."""

from collections.abc import Callable
from pathlib import Path

from alembic.operations import Operations
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, text

from astraeus.ledger.core import Ledger

MIGRATIONS = Path(__file__).with_name("migrations")
MIGRATION_LOCK = 0x41535453


async def upgrade(ledger: Ledger) -> None:
    """Apply the migrations that are missing, all or none, one process at a time."""
    async with ledger.engine.connect() as conn:
        if ledger.dialect == "sqlite":
            await conn.exec_driver_sql("BEGIN IMMEDIATE")
        else:
            await conn.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": MIGRATION_LOCK})
        await conn.run_sync(_upgrade)
        await conn.commit()


async def current(ledger: Ledger) -> bool:
    """Whether the schema is the one this version works with."""
    async with ledger.engine.connect() as conn:
        heads = await conn.run_sync(lambda connection: MigrationContext.configure(connection).get_current_heads())
    return set(heads) == set(_scripts().get_heads())


def _scripts() -> ScriptDirectory:
    return ScriptDirectory(str(MIGRATIONS))


def _upgrade(connection: Connection) -> None:
    """Migrations get their `op` as an argument, since Alembic's own is one per process, not one per connection."""
    scripts = _scripts()
    steps: Callable[..., object] = lambda heads, _: scripts._upgrade_revs("head", heads)  # noqa: E731
    context = MigrationContext.configure(connection, opts={"fn": steps})
    context.run_migrations(op=Operations(context))
