"""Events: in order, by workspace and by run, and announced."""

from dataclasses import dataclass

from sqlalchemy import select
from support.tenants import workspace

from astraeus.ledger import events
from astraeus.ledger.core import Ledger
from astraeus.ledger.tables import change


@dataclass(frozen=True)
class Run:
    shown_uid: str
    name: str
    worker: str | None = None


async def test_events_in_order_and_in_pages(ledger: Ledger) -> None:
    home, other = await workspace(ledger), await workspace(ledger, "speech")
    async with ledger.transaction() as tx:
        assert await events.newest(tx, home.id) == 0
        for i in range(5):
            await events.record(tx, home.id, "note", "ada", f"{i}")
        await events.record(tx, other.id, "note", "bob", "elsewhere")
    async with ledger.reading() as tx:
        first = await events.list_events(tx, home.id, limit=3)
        rest = await events.list_events(tx, home.id, after=first[-1].id)
        assert [event.message for event in first + rest] == ["0", "1", "2", "3", "4"]
        assert await events.newest(tx, home.id) == rest[-1].id
        assert await events.list_events(tx, home.id, after=rest[-1].id) == []


async def test_events_of_a_run(ledger: Ledger) -> None:
    home = await workspace(ledger)
    async with ledger.transaction() as tx:
        await events.record(
            tx, home.id, "placed", "scheduler", "on one leaf", run=Run("u1", "resnet", "resnet-3"), attempt=2
        )
        await events.record(tx, home.id, "placed", "scheduler", "elsewhere", run=Run("u2", "resnet"), attempt=1)
        await events.record(tx, home.id, "drained", "ada", "m-1")
        (found,) = await events.list_events(tx, home.id, run_uid="u1")
    assert (found.kind, found.run, found.worker, found.attempt, found.actor, found.message) == (
        *("placed", "resnet", "resnet-3", 2, "scheduler"),
        "on one leaf",
    )
    assert found.at.timestamp() == round(tx.now, 6)


async def test_events_are_announced_once_a_transaction(ledger: Ledger) -> None:
    home = await workspace(ledger)
    async with ledger.transaction() as tx:
        await events.record(tx, home.id, "note", "ada", "one")
        await events.record(tx, home.id, "note", "ada", "two")
    async with ledger.reading() as tx:
        rows = (await tx.conn.execute(select(change.c.kind, change.c.key))).all()
    assert [tuple(row) for row in rows] == [("event", home.id)]


async def test_any_message_is_kept(ledger: Ledger) -> None:
    home = await workspace(ledger)
    async with ledger.transaction() as tx:
        await events.record(tx, home.id, "note", "ada", "a\0b\n\N{SNOWMAN}")
        (found,) = await events.list_events(tx, home.id)
    assert found.message == "a\N{REPLACEMENT CHARACTER}b\n\N{SNOWMAN}"
