"""Agents, orders, the watch, drains and releases at the same moment, on gangs that share machines."""

import asyncio
import random

import pytest
from sqlalchemy import text
from support.fleet import FakeAgent, GangScene, ref, report
from support.scene import CLUSTER, grant

from astraeus.executors.agent import AgentExecutor
from astraeus.executors.base import Executor
from astraeus.ledger import commit, leases, machines
from astraeus.ledger.core import Ledger
from astraeus.ledger.members import lock_attempt
from astraeus.ledger.runs import RunRow
from astraeus.placement.types import Plan

PLACES = [f"m-{i}" for i in range(6)]


async def drain(scene: GangScene, name: str) -> None:
    async with scene.ledger.transaction() as tx:
        await machines.drain(tx, CLUSTER, name, "grace", "busy")


async def lose(scene: GangScene, name: str) -> None:
    await scene.silent(60, name)
    async with scene.ledger.transaction() as tx:
        await leases.declare_lost(tx, CLUSTER, [name], "grace")


async def live(scene: GangScene, row: RunRow, rank: int, place: str) -> None:
    agent = FakeAgent(scene.ledger, [place], session="s")
    for state, code in (("arrived", None), ("running", None), ("exited", rank % 2)):
        await agent.read()
        await agent.sync(report(row, rank, place, state, code))


async def test_a_sync_after_a_reboot_locks_all_its_claims_in_one_order(ledger: Ledger) -> None:
    """Two that lock in two steps could wait for each other: on PostgreSQL one of them would be undone."""
    if ledger.dialect != "postgresql":
        pytest.skip("SQLite has one writer at a time")
    scene = await GangScene.start(ledger)
    rebooted = await scene.gang("a", ["m-0"])
    reporting = await scene.gang("b", ["m-1"])
    agent = FakeAgent(scene.ledger, ["m-0", "m-1"], boot_id="another")
    async with scene.ledger.transaction() as tx:
        assert await lock_attempt(tx, rebooted.uid, 1)
        syncing = asyncio.create_task(agent.sync(report(reporting, 0, "m-1", "arrived")))
        while not await tx.conn.scalar(text("SELECT count(*) FROM pg_locks WHERE NOT granted")):
            pass
        assert await lock_attempt(tx, reporting.uid, 1)
    await syncing
    assert (await scene.situation(rebooted)).cause is None


@pytest.mark.parametrize("seed", range(3))
async def test_everything_at_once_neither_locks_up_nor_contradicts_itself(ledger: Ledger, seed: int) -> None:
    chance = random.Random(seed)
    scene = await GangScene.start(ledger, machines=0)
    await scene.add_machines(PLACES)
    rows = []
    for gang, mask in enumerate((0b11, 0b1100, 0b110000)):
        places = [(place, mask) for place in chance.sample(PLACES, 4)]
        row = await scene.placed(f"g{gang}", places)
        await scene.start_workers(row)
        rows.append((row, places))
    acts = [live(scene, row, rank, place) for row, places in rows for rank, (place, _) in enumerate(places)]
    acts += [scene.stop(row) for row, _ in rows[:2]] + [scene.order(rows[2][0], "preempt")]
    acts += [drain(scene, chance.choice(PLACES)), lose(scene, chance.choice(PLACES))]
    acts += [scene.release(rows[0][0]), scene.open_gates(rows[1][0])]
    chance.shuffle(acts)
    await asyncio.gather(*acts)
    await scene.check()
    for row, _ in rows:
        situation = await scene.situation(row)
        assert sum([situation.failure is not None, situation.succeeded, situation.intent is not None]) <= 1
        kinds = [kind for kind in await scene.kinds(row) if kind != "preempt"]
        assert len(kinds) == len(set(kinds))


async def test_a_drain_that_meets_a_pass_moves_what_the_pass_places(ledger: Ledger) -> None:
    scene = await GangScene.start(ledger)
    row = await scene.waiting("a")
    ask = (await scene.snapshot()).asks[0]
    term = await scene.term()
    async with ledger.transaction() as tx:
        await commit.commit_plan(tx, CLUSTER, term, Plan(grants=(grant(ask, [("m-0", 0xFF)]),)))
        draining = asyncio.create_task(drain(scene, "m-0"))
        await until_it_waits(ledger)
    await draining
    assert (await scene.situation(row)).intent == "drained"
    agent = FakeAgent(ledger, ["m-0"])
    await agent.read()
    await agent.sync()
    assert await scene.kinds(row) == ["preempt", "gone"]


async def until_it_waits(ledger: Ledger) -> None:
    """Until some transaction waits for a lock; on SQLite it has no other choice."""
    if ledger.dialect == "sqlite":
        return
    while True:
        async with ledger.reading() as tx:
            if await tx.conn.scalar(text("SELECT count(*) FROM pg_locks WHERE NOT granted")):
                return


async def test_the_agent_executor_brings_a_gang_through_its_life(ledger: Ledger) -> None:
    scene = await GangScene.start(ledger)
    row = await scene.placed("a", [("m-0", 0xFF), ("m-1", 0xFF)])
    executor: Executor = AgentExecutor(ledger)
    for _ in range(2):
        await executor.start(ref(row))
    agent = FakeAgent(ledger, ["m-0", "m-1"])
    await agent.sync(*(report(row, rank, f"m-{rank}", "arrived") for rank in range(2)))
    for _ in range(2):
        await executor.open(ref(row), 9, 600.0)
    assert (await scene.run(row)).state == "Running"
    for _ in range(2):
        await executor.stop(ref(row), "cancelled", "ada", None)
    assert (await scene.run(row)).state == "Stopping"
    await agent.read()
    await agent.sync()
    assert (await scene.situation(row)).gone
