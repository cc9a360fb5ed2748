"""INSERT … ON CONFLICT, which both databases spell alike but SQLAlchemy keeps apart."""

from typing import Any

from sqlalchemy import Insert, Table
from sqlalchemy.dialects import postgresql, sqlite

from astraeus.ledger.core import Tx


def insert_or_keep(tx: Tx, table: Table, values: dict[str, Any]) -> Insert:
    """An insert that leaves a row already there as it is."""
    insert = sqlite.insert if tx.dialect == "sqlite" else postgresql.insert
    return insert(table).values(values).on_conflict_do_nothing()


def insert_or_replace(
    tx: Tx, table: Table, values: dict[str, Any] | list[dict[str, Any]], replace: tuple[str, ...]
) -> Insert:
    """An insert that gives rows with the same primary key the new values of the columns `replace`."""
    insert = sqlite.insert if tx.dialect == "sqlite" else postgresql.insert
    statement = insert(table).values(values)
    keys = [column.name for column in table.primary_key]
    return statement.on_conflict_do_update(
        index_elements=keys, set_={name: statement.excluded[name] for name in replace}
    )
