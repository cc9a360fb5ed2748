import asyncio

import pytest
from sqlalchemy import select
from support.scene import CLUSTER, Scene

from astraeus.ledger import outbox
from astraeus.ledger.core import Ledger
from astraeus.ledger.outbox import Letter
from astraeus.ledger.runs import RunRow
from astraeus.ledger.tables import outbox as table


@pytest.fixture
async def scene(ledger: Ledger) -> Scene:
    return await Scene.start(ledger, machines=0)


async def tell(scene: Scene, row: RunRow, *attempts: int) -> list[int]:
    async with scene.ledger.transaction() as tx:
        for attempt in attempts:
            await outbox.add(tx, row, scene.workspace, "placed", attempt, "scheduler", "w")
    return tx.outbox


async def test_a_message_names_its_workflow_and_signal(scene: Scene) -> None:
    row = await scene.submit("a")
    ids = await tell(scene, row, 3)
    async with scene.ledger.reading() as tx:
        (found,) = await outbox.pending(tx, CLUSTER)
    assert (found.id, found.run_uid, found.signal) == (ids[0], row.uid, "placed")
    assert found.workflow_id == f"run/acme/vision/a/{row.uid}"
    assert found.message.model_dump() == {
        "id": ids[0],
        "kind": "placed",
        "attempt": 3,
        "who": "scheduler",
        "why": "w",
    }
    assert found.created_at <= tx.now


async def test_what_is_delivered_is_pending_no_more(scene: Scene) -> None:
    row = await scene.submit("a")
    first, second, third = await tell(scene, row, 1, 2, 3)
    async with scene.ledger.transaction() as tx:
        await outbox.mark_sent(tx, [first, third])
        await outbox.mark_sent(tx, [])
        assert [found.id for found in await outbox.pending(tx, None)] == [second]
        assert await outbox.pending(tx, "lab-b") == []


async def test_the_oldest_come_first_and_the_limit_holds(scene: Scene) -> None:
    ids = await tell(scene, await scene.submit("a"), *range(5))
    async with scene.ledger.reading() as tx:
        assert [found.id for found in await outbox.pending(tx, CLUSTER, 3)] == ids[:3]


async def test_a_run_hears_what_came_before(scene: Scene) -> None:
    a, b = await scene.submit("a"), await scene.submit("b")
    earlier = await tell(scene, a, 1)
    others = await tell(scene, b, 1)
    later = await tell(scene, a, 2)
    last = await tell(scene, b, 2)
    async with scene.ledger.reading() as tx:
        assert [found.id for found in await outbox.pending(tx, None, 1, ids=later)] == earlier + later
        assert [found.id for found in await outbox.pending(tx, None, 1, ids=last)] == others + last
        assert await outbox.pending(tx, None, 10, ids=[]) == []
        assert await outbox.pending(tx, None, 10, ids=[10**9]) == []


async def test_many_messages_are_one_transaction_or_none(scene: Scene) -> None:
    row = await scene.submit("a")
    letters = [Letter(CLUSTER, row.uid, "w", "placed", attempt) for attempt in range(2500)]

    async def interrupted() -> None:
        async with scene.ledger.transaction() as tx:
            await outbox.add_all(tx, letters)
            raise RuntimeError

    with pytest.raises(RuntimeError):
        await interrupted()
    assert await scene.rows(select(table)) == []
    async with scene.ledger.transaction() as tx:
        await outbox.add_all(tx, letters)
    assert len(tx.outbox) == len(set(tx.outbox)) == 2500
    assert [found.body["attempt"] for found in await scene.messages(row)] == list(range(2500))


async def test_couriers_that_overlap_mark_once(scene: Scene) -> None:
    ids = await tell(scene, await scene.submit("a"), 1, 2)

    async def mark() -> float:
        async with scene.ledger.transaction() as tx:
            await outbox.mark_sent(tx, ids)
        return tx.now

    times = await asyncio.gather(*(mark() for _ in range(4)))
    sent = {row.sent_at for row in await scene.rows(select(table))}
    assert len(sent) == 1
    assert sent <= set(times)


async def test_old_deliveries_are_forgotten_and_nothing_else(scene: Scene) -> None:
    first, second = await tell(scene, await scene.submit("a"), 1, 2)
    async with scene.ledger.transaction() as tx:
        await outbox.mark_sent(tx, [first])
        await outbox.prune(tx, 3600)
    assert [row.id for row in await scene.rows(select(table).order_by(table.c.id))] == [first, second]
    async with scene.ledger.transaction() as tx:
        await outbox.prune(tx, -1)
    assert [row.id for row in await scene.rows(select(table))] == [second]
