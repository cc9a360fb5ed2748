import asyncio
from typing import Any

import pytest
from sqlalchemy import select, update
from support.scene import CLUSTER, LEAF_PLACE, WHOLE, Scene, grant, wait

from astraeus.ledger import gangs
from astraeus.ledger.commit import commit_plan
from astraeus.ledger.core import Ledger
from astraeus.ledger.tables import allocation, claim, machine, reservation, run, worker
from astraeus.model.errors import StaleTerm
from astraeus.model.messages import HIGHER_PRIORITY, AttemptRef
from astraeus.placement.types import Ask, Eviction, Plan, Reserved


@pytest.fixture
async def scene(ledger: Ledger) -> Scene:
    return await Scene.start(ledger, machines=4)


async def asks(scene: Scene) -> dict[str, Ask]:
    return {ask.run_name: ask for ask in (await scene.snapshot()).asks}


async def test_a_grant_is_a_whole_gang_with_all_that_follows(scene: Scene) -> None:
    row = await scene.waiting("a")
    gang = grant((await asks(scene))["a"], [("m-1", WHOLE), ("m-2", WHOLE)])
    assert await scene.commit(Plan(grants=(gang,))) == [gang]
    placed = await scene.claim(row)
    assert (placed.state, placed.size, placed.gpus_per_worker, placed.rung) == ("Granted", 2, 8, 3)
    assert (placed.master_host, placed.master_port) == ("m-1.test", 20_000 + placed.id)
    assert placed.network == LEAF_PLACE.model_dump(mode="json")
    present = await scene.run(row)
    assert (present.state, present.reason) == ("Starting", "Starting together: 0 of 2 ready")
    assert present.network == placed.network
    held = await scene.rows(select(allocation).order_by(allocation.c.rank))
    assert [(a.rank, a.machine, a.gpu_mask, a.hcas) for a in held] == [
        (0, "m-1", WHOLE, ["mlx5_0:1"]),
        (1, "m-2", WHOLE, ["mlx5_0:1"]),
    ]
    (message,) = await scene.messages(row)
    assert (message.kind, message.body["attempt"]) == ("placed", 1)
    assert (await scene.events(row))[-1] == ("placed", "scheduler", "Placed on one leaf group")
    await scene.check()


async def test_committing_the_same_plan_again_changes_nothing(scene: Scene) -> None:
    await scene.placed("low", [("m-0", WHOLE)], priority=-1)
    await scene.waiting("a")
    await scene.waiting("b")
    known = await asks(scene)
    low = (await scene.snapshot()).holdings[0]
    plan = Plan(
        grants=(grant(known["a"], [("m-1", WHOLE)]),),
        waits=(wait(known["b"], "Needs 4 machines"),),
        evictions=(Eviction(low.claim, low.run_uid, 1, known["b"].claim, "b"),),
        reserved=(Reserved(known["b"].claim, "m-0", WHOLE),),
    )
    assert len(await scene.commit(plan)) == 1
    tables = (claim, run, machine, allocation, reservation)
    before = [sorted(map(tuple, await scene.rows(select(table))), key=str) for table in tables]
    term = await scene.term()
    async with scene.ledger.transaction() as tx:
        assert await commit_plan(tx, CLUSTER, term, plan) == []
    assert not tx.changes
    assert not tx.outbox
    assert [sorted(map(tuple, await scene.rows(select(table))), key=str) for table in tables] == before


async def test_a_stale_term_writes_nothing(scene: Scene) -> None:
    row = await scene.waiting("a")
    ask = (await asks(scene))["a"]
    old = await scene.term()
    await scene.term()
    with pytest.raises(StaleTerm, match="later pass"):
        await scene.commit(Plan(grants=(grant(ask, [("m-0", 1)]),)), old)
    assert (await scene.claim(row)).state == "Waiting"
    assert await scene.used() == {}
    assert await scene.messages(row) == []


async def test_a_term_taken_during_a_commit_waits_for_it_or_stops_it(scene: Scene) -> None:
    row = await scene.waiting("a")
    ask = (await asks(scene))["a"]
    term = await scene.term()
    commit = scene.commit(Plan(grants=(grant(ask, [("m-0", 1)]),)), term)
    result = (await asyncio.gather(commit, scene.term(), scene.term(), return_exceptions=True))[0]
    granted = (await scene.claim(row)).state == "Granted"
    assert granted == (not isinstance(result, StaleTerm))
    await scene.check()


async def test_two_stale_plans_at_once_grant_a_gpu_once(scene: Scene) -> None:
    names = ["a", "b", "c", "d"]
    for name in names:
        await scene.waiting(name)
    known = await asks(scene)
    term = await scene.term()
    places = [[("m-0", WHOLE), ("m-1", WHOLE)], [("m-1", WHOLE), ("m-2", WHOLE)]] * 2
    plans = [Plan(grants=(grant(known[name], places[i]),)) for i, name in enumerate(names)]
    results = await asyncio.gather(*(scene.commit(plan, term) for plan in plans))
    assert sorted(map(len, results)) == [0, 0, 0, 1]
    assert sorted((await scene.used()).values()) == [WHOLE, WHOLE]
    await scene.check()


async def test_one_claim_in_two_plans_is_granted_once(scene: Scene) -> None:
    await scene.waiting("a")
    ask = (await asks(scene))["a"]
    term = await scene.term()
    plans = [Plan(grants=(grant(ask, [(f"m-{i}", 1)]),)) for i in range(4)]
    results = await asyncio.gather(*(scene.commit(plan, term) for plan in plans))
    assert sorted(map(len, results)) == [0, 0, 0, 1]
    await scene.check()


@pytest.mark.parametrize(
    "change",
    [{"cordoned": True}, {"state": "Down"}, {"state": "Returning"}, {"used_gpus": 1}, {"gpus": 7}, {"used_cpu": 95.0}],
)
async def test_a_gang_with_one_place_gone_is_left_out_whole(scene: Scene, change: dict[str, Any]) -> None:
    await scene.waiting("a")
    await scene.waiting("b")
    known = await asks(scene)
    await scene.write(update(machine).where(machine.c.name == "m-1").values(**change))
    plan = Plan(grants=(grant(known["a"], [("m-0", WHOLE), ("m-1", WHOLE)]), grant(known["b"], [("m-2", WHOLE)])))
    applied = await scene.commit(plan)
    assert [done.run_uid for done in applied] == [known["b"].run_uid]
    assert (await scene.used()).get("m-0") is None
    assert len(await scene.rows(select(allocation))) == 1


async def test_members_that_overlap_or_miss_a_rank_are_no_gang(scene: Scene) -> None:
    await scene.waiting("a")
    ask = (await asks(scene))["a"]
    gang = grant(ask, [("m-0", 3), ("m-0", 6)])
    assert await scene.commit(Plan(grants=(gang,))) == []
    short = grant(ask, [("m-0", 3), ("m-0", 12)])
    for members in ((), short.members[1:], short.members[:1] * 2):
        wrong = type(short)(ask.claim, ask.run_uid, 1, short.rung, short.place, members)
        assert await scene.commit(Plan(grants=(wrong,))) == []
    assert await scene.commit(Plan(grants=(short,))) == [short]
    await scene.check()


@pytest.mark.parametrize("change", [{"held": True}, {"delete_asked_at": 1.0}, {"state": "Failed", "final": True}])
async def test_a_run_that_must_not_start_gets_nothing(scene: Scene, change: dict[str, Any]) -> None:
    await scene.waiting("a")
    ask = (await asks(scene))["a"]
    await scene.write(update(run).values(**change))
    assert await scene.commit(Plan(grants=(grant(ask, [("m-0", 1)]),))) == []
    assert await asks(scene) == {}
    await scene.check()


async def test_a_withdrawn_claim_gets_nothing(scene: Scene) -> None:
    row = await scene.waiting("a")
    ask = (await asks(scene))["a"]
    term = await scene.term()
    plan = Plan(grants=(grant(ask, [("m-0", WHOLE)]),), reserved=(Reserved(ask.claim, "m-1", 1),))
    await asyncio.gather(scene.commit(plan, term), scene.release(row))
    await scene.commit(plan, term)
    assert (await scene.claim(row)).state == "Released"
    assert await scene.used() == {}
    assert await scene.rows(select(reservation)) == []
    await scene.check()


async def test_leaders_on_one_host_get_ports_of_their_own(scene: Scene) -> None:
    await scene.write(update(machine).values(address="127.0.0.1"))
    for i in range(6):
        await scene.waiting(f"r{i}")
    known = await asks(scene)
    first = grant(known["r0"], [("m-0", 1)])
    await scene.commit(Plan(grants=(first,)))
    taken = await scene.rows(select(claim.c.id, claim.c.master_port).where(claim.c.state == "Granted"))
    collide = update(claim).where(claim.c.id == taken[0].id).values(master_port=taken[0].master_port + 1)
    await scene.write(collide)
    rest = tuple(grant(known[f"r{i}"], [("m-0", 1 << i)]) for i in range(1, 6))
    assert len(await scene.commit(Plan(grants=rest))) == 5
    ports = [row.master_port for row in await scene.rows(select(claim).where(claim.c.state == "Granted"))]
    assert len(set(ports)) == 6
    assert all(20_000 <= port < 30_000 for port in ports)


async def test_waits_are_written_only_when_they_change(scene: Scene) -> None:
    row = await scene.waiting("a")
    other = await scene.submit("b")
    await scene.enter(other, headline="Gang restart: b-0 lost its machine")
    known = await asks(scene)

    async def explain(a: str, b: str) -> set[tuple[str, str]]:
        term = await scene.term()
        async with scene.ledger.transaction() as tx:
            await commit_plan(tx, CLUSTER, term, Plan(waits=(wait(known["a"], a), wait(known["b"], b))))
        return set(tx.changes)

    mine = {("reason", f"{scene.workspace.id}/{row.uid}")}
    assert await explain("Needs 8 machines", "Needs 9 machines") == mine
    assert (await scene.run(row)).reason == "Needs 8 machines"
    assert (await scene.run(other)).reason == "Gang restart: b-0 lost its machine"
    assert (await scene.claim(other)).waiting_reason == "Needs 9 machines"
    assert await explain("Needs 8 machines", "Needs 9 machines") == set()
    assert await explain("Needs 7 machines", "Needs 9 machines") == mine


async def test_a_reason_to_wait_is_not_shown_by_a_run_that_waits_no_more(scene: Scene) -> None:
    row = await scene.waiting("a")
    ask = (await asks(scene))["a"]
    await scene.release(row, reason="Held by ada")
    await scene.commit(Plan(waits=(wait(ask, "Needs 8 machines"),)))
    assert (await scene.run(row)).reason == "Held by ada"


async def test_a_claim_that_was_told_to_stop_is_granted_no_more(scene: Scene) -> None:
    row = await scene.waiting("a")
    ask = (await asks(scene))["a"]
    async with scene.ledger.transaction() as tx:
        await gangs.stop(tx, AttemptRef(run_uid=row.uid, attempt=1), "cancelled", "ada")
    assert (await scene.run(row)).state == "Pending"
    assert await scene.commit(Plan(grants=(grant(ask, [("m-0", WHOLE)]),))) == []
    assert await scene.used() == {}


async def test_an_eviction_is_an_intent_a_stop_and_a_message(scene: Scene) -> None:
    victim = await scene.placed("low", [("m-0", WHOLE)])
    await scene.waiting("eval-release", priority=10)
    ask = (await asks(scene))["eval-release"]
    held = (await scene.snapshot()).holdings[0]
    eviction = Eviction(held.claim, held.run_uid, 1, ask.claim, "eval-release")
    await scene.commit(Plan(evictions=(eviction,), reserved=(Reserved(ask.claim, "m-0", WHOLE),)))
    found = await scene.claim(victim)
    assert (found.intent, found.intent_by, found.intent_why) == ("preempted", "eval-release", HIGHER_PRIORITY)
    assert [one.desired for one in await scene.rows(select(worker))] == ["stop"]
    message = (await scene.messages(victim))[-1]
    assert (message.kind, message.body) == (
        "preempt",
        {"attempt": 1, "who": "eval-release", "why": HIGHER_PRIORITY},
    )
    assert (await scene.events(victim))[-1][0] == "preempted"
    after = await scene.snapshot()
    assert after.holdings[0].stopping
    assert after.reserved == (Reserved(ask.claim, "m-0", WHOLE),)


@pytest.mark.parametrize("change", [{"failure": "exited"}, {"succeeded_at": 1.0}, {"intent": "cancelled"}])
async def test_a_run_whose_end_is_decided_is_not_evicted(scene: Scene, change: dict[str, Any]) -> None:
    victim = await scene.placed("low", [("m-0", WHOLE)])
    await scene.waiting("high")
    ask = (await asks(scene))["high"]
    held = (await scene.snapshot()).holdings[0]
    await scene.write(update(claim).where(claim.c.id == held.claim).values(**change))
    before = await scene.claim(victim)
    await scene.commit(Plan(evictions=(Eviction(held.claim, held.run_uid, 1, ask.claim, "high"),)))
    assert await scene.claim(victim) == before


async def test_nobody_is_evicted_for_a_claim_that_is_gone_or_granted(scene: Scene) -> None:
    victim = await scene.placed("low", [("m-0", WHOLE)])
    gone, high = await scene.waiting("gone"), await scene.waiting("high")
    known = await asks(scene)
    held = (await scene.snapshot()).holdings[0]
    await scene.release(gone, state="Cancelled")
    evictions = tuple(Eviction(held.claim, held.run_uid, 1, known[name].claim, name) for name in ("gone", "high"))
    plan = Plan(grants=(grant(known["high"], [("m-1", 1)]),), evictions=evictions)
    assert len(await scene.commit(plan)) == 1
    assert (await scene.claim(victim)).intent is None
    assert (await scene.run(high)).state == "Starting"


async def test_reservations_are_replaced(scene: Scene) -> None:
    await scene.waiting("a")
    await scene.waiting("b")
    known = await asks(scene)
    first, second = Reserved(known["a"].claim, "m-0", 3), Reserved(known["b"].claim, "m-1", WHOLE)
    await scene.commit(Plan(reserved=(first, Reserved(known["a"].claim, "m-0", 4))))
    assert (await scene.snapshot()).reserved == (Reserved(known["a"].claim, "m-0", 7),)
    await scene.commit(Plan(reserved=(first, second)))
    assert set((await scene.snapshot()).reserved) == {first, second}
    await scene.commit(Plan(grants=(grant(known["a"], [("m-0", 3)]),), reserved=(first,)))
    assert (await scene.snapshot()).reserved == ()
