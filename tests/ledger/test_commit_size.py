"""What a pass costs in statements does not grow with the gangs, the queue or the cluster."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from sqlalchemy import event, select
from support.scene import CLUSTER, Scene, grant, wait

from astraeus.ledger import claims, commit, views
from astraeus.ledger.core import Ledger
from astraeus.ledger.runs import RunRow
from astraeus.ledger.snapshot import load_snapshot
from astraeus.ledger.tables import claim, run
from astraeus.model.messages import AttemptRef
from astraeus.placement.types import Plan, Reserved


@contextmanager
def statements(ledger: Ledger) -> Iterator[list[str]]:
    seen: list[str] = []

    def note(_conn: Any, _cursor: Any, statement: str, *_: Any) -> None:
        seen.append(statement)

    event.listen(ledger.engine.sync_engine, "before_cursor_execute", note)
    try:
        yield seen
    finally:
        event.remove(ledger.engine.sync_engine, "before_cursor_execute", note)


async def scene_with(ledger: Ledger, machines: int, waiting: int) -> Scene:
    scene = await Scene.start(ledger, machines=machines)
    row = await scene.waiting("r0")
    mapping = dict((await scene.rows(select(run)))[0]._mapping)
    entered = dict((await scene.claim(row))._mapping)
    del entered["id"]
    async with ledger.transaction() as tx:
        more = range(1, waiting)
        if more:
            await tx.conn.execute(run.insert(), [mapping | {"uid": f"uid{i}", "name": f"r{i}"} for i in more])
            await tx.conn.execute(claim.insert(), [entered | {"run_uid": f"uid{i}"} for i in more])
    return scene


async def counts(ledger: Ledger, size: int) -> dict[str, int]:
    """Statements of each step, with `size` machines, workers and waiting claims."""
    scene = await scene_with(ledger, size, size)
    found: dict[str, int] = {}
    await scene.snapshot()
    with statements(ledger) as seen:
        snapshot = await scene.snapshot()
    found["snapshot"] = len(seen)
    assert len(snapshot.machines) == len(snapshot.asks) == size
    gang = grant(snapshot.asks[0], [(m.name, 1) for m in snapshot.machines])
    waits = tuple(wait(ask, f"Needs {i} machines") for i, ask in enumerate(snapshot.asks[1:]))
    reserved = tuple(Reserved(snapshot.asks[1].claim, m.name, 2) for m in snapshot.machines)
    plan = Plan(grants=(gang,), waits=waits, reserved=reserved)
    term = await scene.term()
    with statements(ledger) as seen:
        async with ledger.transaction() as tx:
            assert len(await commit.commit_plan(tx, CLUSTER, term, plan)) == 1
    found["commit"] = len(seen)
    with statements(ledger) as seen:
        async with ledger.transaction() as tx:
            await commit.commit_plan(tx, CLUSTER, term, plan)
    found["again"] = len(seen)
    await scene.check()
    ref = AttemptRef(run_uid=gang.run_uid, attempt=1)
    with statements(ledger) as seen:
        async with ledger.transaction() as tx:
            await claims.release(
                tx, ref, cause="exited", detail="d", charged=True, state="Failed", reason="r", budget_left=0
            )
    found["release"] = len(seen)
    await scene.check()
    return found


@pytest.mark.parametrize("size", [2, 1000])
async def test_a_pass_takes_a_bounded_number_of_statements(ledger: Ledger, size: int) -> None:
    found = await counts(ledger, size)
    assert found["snapshot"] <= 8
    # Rows go in batches of a thousand or so, whatever the statement.
    assert found["commit"] <= 20 + size // 200
    assert found["again"] <= 6
    assert found["release"] <= 14


async def test_a_page_of_views_takes_the_same_number_of_queries_however_long_it_is(ledger: Ledger) -> None:
    scene = await scene_with(ledger, 4, 60)
    snapshot = await scene.snapshot()
    await scene.commit(Plan(grants=tuple(grant(ask, [("m-0", 1 << i)]) for i, ask in enumerate(snapshot.asks[:8]))))
    rows = [RunRow.of(row._mapping) for row in await scene.rows(select(run).order_by(run.c.state.desc()))]
    taken = []
    for page in (rows[:1], rows):
        with statements(ledger) as seen:
            async with ledger.reading() as tx:
                assert len(await views.run_views(tx, page)) == len(page)
        taken.append(len(seen))
    assert taken[0] == taken[1] <= 5


async def test_a_specification_is_read_once_for_all_passes(ledger: Ledger) -> None:
    scene = await scene_with(ledger, 1, 3)
    with statements(ledger) as first:
        await scene.snapshot()
    with statements(ledger) as second:
        async with ledger.reading() as tx:
            await load_snapshot(tx, CLUSTER)
    assert len(second) < len(first)
    assert not any("task_template" in statement for statement in second)
