import asyncio

import pytest
from sqlalchemy import delete, update
from support.fleet import FakeAgent, GangScene, ref, report
from support.scene import CLUSTER, WHOLE

from astraeus.ledger import gangs
from astraeus.ledger.core import Ledger
from astraeus.ledger.tables import claim, worker
from astraeus.model.messages import AttemptRef


@pytest.fixture
async def scene(ledger: Ledger) -> GangScene:
    return await GangScene.start(ledger)


async def test_every_member_is_asked_for_once_and_held_at_its_gate(scene: GangScene) -> None:
    row = await scene.placed("a", [("m-0", 0xFF), ("m-1", 0xFF)])
    workers = await scene.workers(row)
    assert [(one.rank, one.machine, one.desired, one.observed) for one in workers] == [
        (0, "m-0", "hold", "none"),
        (1, "m-1", "hold", "none"),
    ]
    assert not (await scene.start_workers(row)).changes
    assert await scene.workers(row) == workers


async def test_members_that_the_grant_did_not_ask_for_are_asked_for_at_the_start(scene: GangScene) -> None:
    """As those of a claim that an earlier release granted."""
    row = await scene.placed("a", [("m-0", 0xFF), ("m-1", 0xFF)])
    workers = await scene.workers(row)
    await scene.write(delete(worker))
    tx = await scene.start_workers(row)
    assert {("machine", "lab-a/m-0"), ("machine", "lab-a/m-1")} <= set(tx.changes)
    assert await scene.workers(row) == workers


async def test_simultaneous_starts_ask_for_each_member_once(scene: GangScene) -> None:
    row = await scene.placed("a", [("m-0", 0xFF), ("m-1", 0xFF)])
    await asyncio.gather(*(scene.start_workers(row) for _ in range(6)))
    assert len(await scene.workers(row)) == 2


async def test_the_grace_is_the_specs_own_or_else_the_machines(scene: GangScene) -> None:
    own = await scene.gang("own", ["m-0"], task={"stop_grace_seconds": 5})
    assert (await scene.workers(own))[0].grace_seconds == 5
    other = await scene.gang("other", ["m-1"])
    assert (await scene.workers(other))[0].grace_seconds == 30
    assert (await scene.situation(own)).grace_seconds == 5


async def test_nothing_starts_without_a_grant_or_after_an_order_to_stop(scene: GangScene) -> None:
    waiting = await scene.waiting("w")
    assert not (await scene.start_workers(waiting)).changes
    row = await scene.placed("a", [("m-0", 0xFF)])
    await scene.write(delete(worker))
    await scene.order(row, "cancel")
    await scene.start_workers(row)
    assert await scene.workers(row) == []
    assert (await scene.situation(row)).gone
    async with scene.ledger.transaction() as tx:
        await gangs.start(tx, AttemptRef(run_uid="nobody", attempt=1))
        await gangs.stop(tx, AttemptRef(run_uid="nobody", attempt=1), "cancelled", "ada")
    assert not tx.changes


async def test_gates_open_together_once_all_have_arrived(scene: GangScene) -> None:
    row = await scene.gang("a", ["m-0", "m-1"])
    agent = FakeAgent(scene.ledger, ["m-0", "m-1"])
    await agent.sync(report(row, 0, "m-0", "arrived"))
    assert not await scene.open_gates(row)
    before = await scene.situation(row)
    assert (before.arrived, before.size, before.all_arrived, before.missing) == (1, 2, False, ["a-1"])
    await agent.sync(report(row, 1, "m-1", "arrived"))
    assert await scene.kinds(row) == ["arrived"]
    assert await scene.open_gates(row, 7, 42.0)
    assert not await scene.open_gates(row, 3, 1.0)
    assert {one.desired for one in await scene.workers(row)} == {"run"}
    now = await scene.run(row)
    assert (now.state, now.reason, now.budget_left) == ("Running", "Running on one leaf group", 7)
    situation = await scene.situation(row)
    assert now.started_at == situation.gates_opened_at
    assert now.next_earned_at == pytest.approx(now.started_at + 42.0)
    assert (situation.all_arrived, situation.missing) == (True, [])


async def test_a_barrier_does_not_time_out_once_the_last_has_come(scene: GangScene) -> None:
    row = await scene.gang("a", ["m-0"])
    await FakeAgent(scene.ledger, ["m-0"]).sync(report(row, 0, "m-0", "arrived"))
    assert not (await scene.stop(row, "barrier_timeout", "astraeus")).changes
    assert (await scene.situation(row)).intent is None
    assert await scene.open_gates(row)


async def test_gates_stay_shut_after_an_order_to_stop(scene: GangScene) -> None:
    row = await scene.gang("a", ["m-0"])
    await FakeAgent(scene.ledger, ["m-0"]).sync(report(row, 0, "m-0", "arrived"))
    await scene.order(row, "preempt")
    assert not await scene.open_gates(row)
    assert (await scene.workers(row))[0].desired == "stop"
    assert (await scene.run(row)).state == "Starting"


async def test_gates_stay_shut_after_a_failure_at_the_barrier(scene: GangScene) -> None:
    row = await scene.gang("a", ["m-0"])
    agent = FakeAgent(scene.ledger, ["m-0"])
    await agent.sync(report(row, 0, "m-0", "arrived"))
    await agent.sync(report(row, 0, "m-0", "failed", error="no such command"))
    assert not await scene.open_gates(row)
    assert (await scene.situation(row)).failure == "a-0 could not start: no such command"


async def test_whatever_decides_the_end_stops_the_members_in_the_same_transaction(scene: GangScene) -> None:
    failed, agent = await scene.running("a", ["m-0", "m-1"])
    await agent.sync(report(failed, 0, "m-0", "exited", 1))
    assert {one.rank: one.desired for one in await scene.workers(failed)}[1] == "stop"
    await scene.add_machines(["m-2"])
    ordered, _ = await scene.running("b", ["m-2"])
    await scene.order(ordered, "cancel")
    assert [one.desired for one in await scene.workers(ordered)] == ["stop"]


async def test_the_room_is_free_when_the_last_member_is_gone_and_is_given_back_once(scene: GangScene) -> None:
    row, agent = await scene.running("a", ["m-0", "m-1"])
    await scene.order(row, "preempt")
    for gone in agent.live.values():
        gone.clear()
    await agent.sync(report(row, 0, "m-0", "exited", 0))
    assert set(await scene.used()) == {"m-0", "m-1"}
    tx = await agent.sync(report(row, 1, "m-1", "exited", 0))
    assert ("cluster", CLUSTER) in tx.changes
    assert await scene.used() == {}
    await scene.check()
    other = await scene.placed("b", [("m-0", WHOLE)])
    assert await scene.release(row)
    assert await scene.used() == {"m-0": WHOLE}
    assert (await scene.claim(other)).state == "Granted"
    await scene.check()


async def test_a_stop_records_the_first_reason_and_a_second_changes_nothing(scene: GangScene) -> None:
    row, _ = await scene.running("a", ["m-0", "m-1"])
    tx = await scene.stop(row, "cancelled", "ada")
    assert ("machine", "lab-a/m-1") in tx.changes
    assert {one.desired for one in await scene.workers(row)} == {"stop"}
    assert (await scene.run(row)).reason == "Stopping: cancelled by ada"
    situation = await scene.situation(row)
    assert (situation.intent, situation.intent_by, situation.gone) == ("cancelled", "ada", False)
    assert situation.lingering == ["a-0", "a-1"]
    assert not (await scene.stop(row, "preempted", "bob")).changes
    assert (await scene.situation(row)).intent_by == "ada"


async def test_a_stop_never_becomes_a_start(scene: GangScene) -> None:
    row = await scene.gang("a", ["m-0"])
    await FakeAgent(scene.ledger, ["m-0"]).sync(report(row, 0, "m-0", "arrived"))
    await scene.stop(row)
    await scene.start_workers(row)
    assert not await scene.open_gates(row)
    assert (await scene.workers(row))[0].desired == "stop"


async def test_stopping_a_claim_that_waits_leaves_nothing_to_wait_for(scene: GangScene) -> None:
    row = await scene.waiting("a")
    await scene.stop(row, "cancelled", "ada")
    situation = await scene.situation(row)
    assert (situation.intent, situation.gone, situation.released) == ("cancelled", True, False)


async def test_after_a_failure_the_rest_is_stopped_and_no_intent_is_recorded(scene: GangScene) -> None:
    row, agent = await scene.running("a", ["m-0", "m-1"])
    await agent.sync(report(row, 0, "m-0", "exited", 1))
    await scene.stop(row, None, "astraeus")
    situation = await scene.situation(row)
    assert (situation.intent, situation.failure) == (None, "a-0 exited with code 1")
    assert (await scene.run(row)).reason == "Stopping: a-0 exited with code 1"
    assert situation.lingering == ["a-0", "a-1"]


async def test_a_released_attempt_is_not_touched_any_more(scene: GangScene) -> None:
    row, _ = await scene.running("a", ["m-0"])
    await scene.release(row)
    before = await scene.workers(row)
    await scene.stop(row)
    assert await scene.workers(row) == before
    situation = await scene.situation(row)
    assert (situation.released, situation.gone, situation.intent) == (True, True, None)


async def test_an_attempt_without_a_claim_is_gone(scene: GangScene) -> None:
    row = await scene.submit("a")
    situation = await scene.situation(row)
    assert (situation.gone, situation.granted_at, situation.size) == (True, None, 0)


async def test_losing_a_machine_before_anything_was_started_fails_the_attempt(scene: GangScene) -> None:
    row = await scene.placed("a", [("m-0", 0xFF), ("m-1", 0xFF)])
    async with scene.ledger.transaction() as tx:
        await gangs.lose(tx, "lab-a", ["m-1"])
    await scene.start_workers(row)
    situation = await scene.situation(row)
    assert (situation.failure, situation.cause, situation.failure_machine) == (
        "a-1 lost its machine",
        "machine_lost",
        "m-1",
    )
    assert not situation.gone
    agent = FakeAgent(scene.ledger, ["m-0"])
    await agent.read()
    await agent.sync()
    assert (await scene.situation(row)).gone
    assert await scene.kinds(row) == ["machine_lost", "gone"]


async def test_an_attempt_has_ended_when_its_last_member_has(scene: GangScene) -> None:
    row, agent = await scene.running("a", ["m-0", "m-1"])
    await scene.stop(row)
    await agent.read()
    for rank, place in enumerate(("m-0", "m-1")):
        assert (await scene.situation(row)).ended_at is None
        agent.live[place].clear()
        await agent.sync(report(row, rank, place, "exited", 0))
    situation = await scene.situation(row)
    assert situation.gone
    assert situation.ended_at == max(one.ended_at for one in await scene.workers(row))


async def test_losing_many_machines_is_one_failure_of_the_lowest_rank(scene: GangScene) -> None:
    row, _ = await scene.running("a", ["m-0", "m-1"])
    for _ in range(2):
        async with scene.ledger.transaction() as tx:
            await gangs.lose(tx, "lab-a", ["m-0", "m-1"])
    assert (await scene.situation(row)).failure == "a-0 lost its machine"
    assert await scene.kinds(row) == ["arrived", "machine_lost", "gone"]
    assert all(one.lost and one.gone for one in await scene.workers(row))


async def test_a_machine_lost_while_stopping_is_no_failure_but_its_members_are_gone(scene: GangScene) -> None:
    row, _ = await scene.running("a", ["m-0"])
    await scene.stop(row)
    async with scene.ledger.transaction() as tx:
        await gangs.lose(tx, "lab-a", ["m-0"])
    situation = await scene.situation(row)
    assert (situation.failure, situation.gone) == (None, True)
    assert await scene.kinds(row) == ["arrived", "gone"]


async def test_a_member_that_had_ended_well_is_no_loss(scene: GangScene) -> None:
    row, agent = await scene.running("a", ["m-0", "m-1"])
    agent.live["m-0"].clear()
    await agent.sync(report(row, 0, "m-0", "exited", 0))
    async with scene.ledger.transaction() as tx:
        await gangs.lose(tx, "lab-a", ["m-0"])
    assert (await scene.situation(row)).failure is None


async def test_a_state_that_is_final_stays(scene: GangScene) -> None:
    row, _ = await scene.running("a", ["m-0"])
    await scene.release(row, state="Cancelled")
    await scene.write(update(claim).where(claim.c.run_uid == row.uid).values(state="Granted"))
    await scene.stop(row)
    assert (await scene.run(row)).state == "Cancelled"
    assert ref(row).attempt == 1
