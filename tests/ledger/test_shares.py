"""Quotas and shares in the ledger: set, read, and charged with what attempts have used; on both databases."""

from typing import Any

import pytest
from sqlalchemy import select, update
from support.scene import CLUSTER, WHOLE, Scene, grant

from astraeus.ledger import shares, tenancy
from astraeus.ledger.core import Ledger
from astraeus.ledger.tables import allotment, change, claim
from astraeus.model.errors import Invalid, NotFound, StaleTerm
from astraeus.placement.planner import uses
from astraeus.placement.types import Allotment, Plan

HOUR = 3600.0


async def allot(scene: Scene, **due: Any) -> None:
    async with scene.ledger.transaction() as tx:
        await shares.allot(tx, scene.workspace.id, CLUSTER, **due)


async def ran_for(scene: Scene, name: str, seconds: float) -> Any:
    """A run of 16 GPUs that was let go this long ago."""
    row = await scene.placed(name, [("m-0", WHOLE), ("m-1", WHOLE)])
    async with scene.ledger.transaction() as tx:
        mine = claim.c.run_uid == row.uid
        await tx.conn.execute(update(claim).where(mine).values(gates_opened_at=tx.now - seconds, granted_at=1.0))
        tx.announce("run", f"{row.workspace}/{row.uid}")
    return row


async def test_nobody_has_a_quota_or_a_share_at_first(ledger: Ledger) -> None:
    scene = await Scene.start(ledger)
    row = await ran_for(scene, "a", HOUR)
    await scene.release(row)
    assert (await scene.snapshot()).allotments == {}
    assert await scene.rows(select(allotment)) == [], "use is kept only where somebody has a share"


async def test_a_quota_alone_keeps_no_use(ledger: Ledger) -> None:
    scene = await Scene.start(ledger)
    await allot(scene, gpu_quota=64)
    await scene.release(await ran_for(scene, "a", HOUR))
    due = (await scene.snapshot()).allotments["acme/vision"]
    assert (due.gpu_quota, due.share, due.used) == (64, None, 0.0)


async def test_what_an_attempt_used_is_counted_once_at_its_end(ledger: Ledger) -> None:
    scene = await Scene.start(ledger)
    await allot(scene, share=2.0)
    row = await ran_for(scene, "a", HOUR)
    before = await scene.snapshot()
    async with ledger.reading() as tx:
        running = uses(before, tx.now)["acme/vision"].gpu_seconds
    assert await scene.release(row)
    assert not await scene.release(row)
    after = (await scene.snapshot()).allotments["acme/vision"]
    assert after.used == pytest.approx(running, rel=0.01), "the end of a run changes nothing of what it has used"
    assert after.used == pytest.approx(16 * HOUR, rel=0.02)


async def test_use_of_workspaces_without_a_share_is_kept_where_others_have_one(ledger: Ledger) -> None:
    scene = await Scene.start(ledger)
    async with ledger.transaction() as tx:
        other = await tenancy.ensure_workspace(tx, "acme", "ml", CLUSTER)
        await shares.allot(tx, other.id, CLUSTER, share=1.0)
    await scene.release(await ran_for(scene, "a", HOUR))
    found = (await scene.snapshot()).allotments
    assert found["acme/ml"].used == 0.0
    assert found["acme/vision"].share is None
    assert found["acme/vision"].used == pytest.approx(16 * HOUR, rel=0.02)


async def test_use_halves_and_the_row_stays_one(ledger: Ledger) -> None:
    scene = await Scene.start(ledger)
    await allot(scene, share=1.0)
    async with ledger.transaction() as tx:
        await shares.set_half_life(tx, CLUSTER, HOUR)
        await tx.conn.execute(update(allotment).values(used=1000.0, used_at=tx.now - HOUR))
    await scene.release(await ran_for(scene, "a", 0.0))
    [row] = await scene.rows(select(allotment))
    assert row.used == pytest.approx(500.0, rel=0.2)
    assert (await scene.snapshot()).half_life_seconds == HOUR


async def test_a_claim_that_was_never_granted_is_not_counted(ledger: Ledger) -> None:
    scene = await Scene.start(ledger)
    await allot(scene, share=1.0)
    await scene.release(await scene.waiting("a"))
    assert (await scene.snapshot()).allotments["acme/vision"].used == 0.0


async def test_setting_replaces_and_none_takes_away(ledger: Ledger) -> None:
    scene = await Scene.start(ledger)
    await allot(scene, gpu_quota=8, share=3.0)
    assert (await scene.snapshot()).allotments["acme/vision"] == Allotment(8, 3.0, 0.0, pytest.approx(0, abs=1e12))
    await allot(scene, share=None)
    due = (await scene.snapshot()).allotments["acme/vision"]
    assert (due.gpu_quota, due.share) == (8, None), "what is not named stays"
    await allot(scene, gpu_quota=None)
    assert (await scene.snapshot()).allotments == {}


async def test_a_pass_that_began_before_writes_nothing_after_a_quota_is_set(ledger: Ledger) -> None:
    scene = await Scene.start(ledger)
    await scene.waiting("a")
    term, [ask] = await scene.term(), (await scene.snapshot()).asks
    await allot(scene, gpu_quota=4)
    with pytest.raises(StaleTerm):
        await scene.commit(Plan(grants=(grant(ask, [("m-0", WHOLE)]),)), term)
    assert await scene.used() == {}


async def test_who_reads_the_feed_hears_of_it(ledger: Ledger) -> None:
    scene = await Scene.start(ledger)
    await allot(scene, share=1.0)
    told = {(row.kind, row.key) for row in await scene.rows(select(change.c.kind, change.c.key))}
    assert {("allotment", CLUSTER), ("cluster", CLUSTER)} <= told


@pytest.mark.parametrize(
    "due", [{"gpu_quota": -1}, {"gpu_quota": 2**31}, {"share": 0.0}, {"share": float("nan")}, {"share": float("inf")}]
)
async def test_what_cannot_be_is_refused(ledger: Ledger, due: Any) -> None:
    scene = await Scene.start(ledger)
    with pytest.raises(Invalid):
        await allot(scene, **due)


async def test_there_must_be_such_a_cluster(ledger: Ledger) -> None:
    scene = await Scene.start(ledger)
    async with ledger.transaction() as tx:
        with pytest.raises(NotFound):
            await shares.allot(tx, scene.workspace.id, "nowhere", share=1.0)
        with pytest.raises(NotFound):
            await shares.set_half_life(tx, "nowhere", HOUR)
        with pytest.raises(Invalid):
            await shares.set_half_life(tx, CLUSTER, float("nan"))
