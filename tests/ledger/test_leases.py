import pytest
from sqlalchemy import select, update
from support.fleet import FakeAgent, GangScene, report
from support.scene import CLUSTER

from astraeus.ledger import leases
from astraeus.ledger.core import Ledger
from astraeus.ledger.tables import claim, cluster, event
from astraeus.model.errors import NotFound, StaleTerm


@pytest.fixture
async def scene(ledger: Ledger) -> GangScene:
    scene = await GangScene.start(ledger, machines=10)
    await watched(scene)
    return scene


async def watched(scene: GangScene) -> None:
    """As after a watch of an hour."""
    async with scene.ledger.transaction() as tx:
        values = {"watched_at": tx.now, "watch_resumed_at": tx.now - 3600}
        await tx.conn.execute(update(cluster).values(values))


async def resume(scene: GangScene) -> int:
    async with scene.ledger.transaction() as tx:
        return await leases.resume_watch(tx, CLUSTER)


async def expire(scene: GangScene, term: int) -> list[str]:
    async with scene.ledger.transaction() as tx:
        return await leases.expire_leases(tx, CLUSTER, term)


async def alarms(scene: GangScene) -> int:
    return len(await scene.rows(select(event).where(event.c.kind == "alarm")))


async def test_a_silent_machine_is_lost_and_what_ran_there_restarts_once(scene: GangScene) -> None:
    row, _ = await scene.running("a", ["m-0", "m-1"])
    term = await resume(scene)
    await scene.silent(14, "m-0")
    assert await expire(scene, term) == []
    await scene.silent(16, "m-0")
    assert await expire(scene, term) == ["m-0"]
    assert (await scene.states())["m-0"] == "Down"
    situation = await scene.situation(row)
    assert (situation.failure, situation.failure_machine, situation.gone) == ("a-0 lost its machine", "m-0", False)
    assert await scene.kinds(row) == ["arrived", "machine_lost"]
    assert await expire(scene, term) == []
    said = [one.message for one in await scene.rows(select(event).where(event.c.kind == "machine_lost"))]
    assert said == ["m-0 is lost: not heard for 16 s"]


async def test_nothing_is_placed_on_a_lost_machine(scene: GangScene) -> None:
    await scene.silent(16, "m-0")
    await expire(scene, await resume(scene))
    with pytest.raises(AssertionError):
        await scene.placed("a", [("m-0", 0xFF)])


async def test_an_older_watch_declares_nothing(scene: GangScene) -> None:
    old = await resume(scene)
    new = await resume(scene)
    await scene.silent(16, "m-0")
    with pytest.raises(StaleTerm):
        await expire(scene, old)
    assert (await scene.states())["m-0"] == "Ready"
    assert await expire(scene, new) == ["m-0"]


async def test_after_the_watch_was_away_everyone_gets_a_fresh_period(scene: GangScene) -> None:
    await scene.write(update(cluster).values(watched_at=cluster.c.watched_at - 60))
    await scene.silent(60, "m-0")
    term = await resume(scene)
    assert await expire(scene, term) == []
    assert (await scene.states())["m-0"] == "Ready"


async def test_a_watch_that_was_paused_gives_a_fresh_period_too(scene: GangScene) -> None:
    term = await resume(scene)
    await scene.write(update(cluster).values(watched_at=cluster.c.watched_at - 60))
    await scene.silent(60, "m-0")
    assert await expire(scene, term) == []


async def test_a_handover_without_a_gap_delays_nothing(scene: GangScene) -> None:
    await scene.silent(16, "m-0")
    await resume(scene)
    assert await expire(scene, await resume(scene)) == ["m-0"]


async def test_more_than_a_fifth_at_once_is_held_with_one_alarm(scene: GangScene) -> None:
    term = await resume(scene)
    await scene.silent(16, "m-0", "m-1", "m-2")
    for _ in range(3):
        assert await expire(scene, term) == []
    assert set((await scene.states()).values()) == {"Ready"}
    assert await alarms(scene) == 1
    await scene.silent(0, "m-1", "m-2")
    assert await expire(scene, term) == []
    await watched(scene)
    await scene.silent(16, "m-0")
    assert await expire(scene, term) == ["m-0"]
    await scene.silent(16, "m-3", "m-4", "m-5")
    assert await expire(scene, term) == []
    assert await alarms(scene) == 2


async def test_a_fifth_at_once_is_lost(scene: GangScene) -> None:
    await scene.silent(16, "m-0", "m-1")
    assert await expire(scene, await resume(scene)) == ["m-0", "m-1"]


async def test_an_operator_overrides_what_is_held(scene: GangScene) -> None:
    term = await resume(scene)
    await scene.silent(16, "m-0", "m-1", "m-2")
    await expire(scene, term)
    async with scene.ledger.transaction() as tx:
        lost = await leases.declare_lost(tx, CLUSTER, ["m-0", "m-1", "m-9"], "grace")
    assert lost == ["m-0", "m-1"], "m-9 was heard just now"
    assert (await scene.states())["m-2"] == "Ready"


async def test_reports_from_a_lost_machine_write_nothing(scene: GangScene) -> None:
    row, agent = await scene.running("a", ["m-0"])
    await scene.silent(16, "m-0")
    await expire(scene, await resume(scene))
    await agent.sync(report(row, 0, "m-0", "exited", 0))
    situation = await scene.situation(row)
    assert (situation.succeeded, situation.failure) == (False, "a-0 lost its machine")
    assert (await scene.states())["m-0"] == "Returning"


async def test_a_returning_machine_that_falls_silent_is_lost_again(scene: GangScene) -> None:
    term = await resume(scene)
    await scene.silent(16, "m-0")
    await expire(scene, term)
    await FakeAgent(scene.ledger, ["m-0"]).sync()
    assert (await scene.states())["m-0"] == "Returning"
    await scene.silent(16, "m-0")
    assert await expire(scene, term) == ["m-0"]


async def test_watching_needs_a_cluster(scene: GangScene) -> None:
    async with scene.ledger.transaction() as tx:
        with pytest.raises(NotFound):
            await leases.resume_watch(tx, "nowhere")
        with pytest.raises(StaleTerm):
            await leases.expire_leases(tx, "nowhere", 1)


async def test_while_no_api_process_hears_machines_their_silence_means_nothing(scene: GangScene) -> None:
    term = await resume(scene)
    async with scene.ledger.transaction() as tx:
        await leases.serve(tx)
    await scene.write(update(cluster).values(served_at=cluster.c.served_at - 12))
    await scene.silent(16, "m-0")
    assert await expire(scene, term) == []
    async with scene.ledger.transaction() as tx:
        await leases.serve(tx)
    assert await expire(scene, term) == []
    await scene.write(update(cluster).values(watch_resumed_at=cluster.c.watch_resumed_at - 16))
    assert await expire(scene, term) == ["m-0"]


async def test_peers_that_fail_in_the_silence_of_a_lost_machine_are_not_the_cause(scene: GangScene) -> None:
    row, agent = await scene.running("a", ["m-0", "m-1"])
    term = await resume(scene)
    await scene.silent(3, "m-1")
    del agent.live["m-1"]
    await agent.sync(report(row, 0, "m-0", "exited", 1))
    assert (await scene.situation(row)).failure == "a-0 exited with code 1"
    await scene.silent(16, "m-1")
    assert await expire(scene, term) == ["m-1"]
    situation = await scene.situation(row)
    assert (situation.failure, situation.cause, situation.failure_machine) == (
        "a-1 lost its machine",
        "machine_lost",
        "m-1",
    )


async def test_a_failure_before_the_silence_stays_the_cause(scene: GangScene) -> None:
    row, agent = await scene.running("a", ["m-0", "m-1"])
    term = await resume(scene)
    await agent.sync(report(row, 0, "m-0", "exited", 1))
    await scene.write(update(claim).values(failure_at=claim.c.failure_at - 60))
    await scene.silent(16, "m-1")
    assert await expire(scene, term) == ["m-1"]
    assert (await scene.situation(row)).failure == "a-0 exited with code 1"
