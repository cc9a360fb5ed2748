"""Members that outlive their stop: given up on only when their machine had the order for long enough."""

from collections.abc import AsyncIterator

import pytest
from sqlalchemy import select
from support.clock import Clocked
from support.fleet import FakeAgent, GangScene, ref
from support.scene import CLUSTER

from astraeus.ledger import machines, undead
from astraeus.ledger.runs import RunRow
from astraeus.ledger.tables import machine
from astraeus.model.agent import HEARTBEAT_SECONDS
from astraeus.model.machine import DEFAULT_GRACE_SECONDS

LONG = DEFAULT_GRACE_SECONDS + 61
NAMES = ["m-0", "m-1"]


@pytest.fixture
async def clock(ledger_url: str) -> AsyncIterator[Clocked]:
    ledger = Clocked(ledger_url)
    yield ledger
    await ledger.close()


@pytest.fixture
async def scene(clock: Clocked) -> GangScene:
    return await GangScene.start(clock)


async def heard(clock: Clocked, seconds: float, *agents: FakeAgent) -> None:
    """So much time, in which these agents beat."""
    end = clock.ahead + seconds
    while clock.ahead < end:
        clock.ahead = min(end, clock.ahead + HEARTBEAT_SECONDS)
        for agent in agents:
            await agent.sync()


async def disown(scene: GangScene, row: RunRow) -> list[str]:
    async with scene.ledger.transaction() as tx:
        return await undead.disown(tx, ref(row))


async def cordoned(scene: GangScene) -> list[str]:
    return [row.name for row in await scene.rows(select(machine).where(machine.c.cordoned))]


async def test_a_member_that_its_machine_cannot_kill_is_given_up_on(scene: GangScene, clock: Clocked) -> None:
    row, agent = await scene.running("a", NAMES)
    await scene.stop(row)
    agent.live["m-0"].clear()
    await agent.read()
    await heard(clock, LONG - 5, agent)
    assert await disown(scene, row) == []
    await heard(clock, 5, agent)
    assert await disown(scene, row) == ["a-1 on m-1"]
    assert await cordoned(scene) == ["m-1"]
    assert (await scene.situation(row)).gone
    await scene.check()


async def test_a_verdict_whose_answer_was_lost_is_answered_again(scene: GangScene, clock: Clocked) -> None:
    row, agent = await scene.running("a", NAMES)
    await scene.stop(row)
    await heard(clock, LONG, agent)
    named = await disown(scene, row)
    async with scene.ledger.transaction() as tx:
        await machines.return_machine(tx, CLUSTER, "m-0", "ada")
    assert await disown(scene, row) == named == ["a-0 on m-0", "a-1 on m-1"]
    assert (await scene.situation(row)).undead == named
    assert await cordoned(scene) == ["m-1"]
    assert (await scene.kinds(row)).count("gone") == 1


async def test_a_stop_that_was_ordered_in_an_outage_counts_from_contact(scene: GangScene, clock: Clocked) -> None:
    row, agent = await scene.running("a", NAMES)
    await scene.stop(row)
    clock.ahead += 170
    await agent.sync()
    assert await disown(scene, row) == []
    await heard(clock, LONG - 5, agent)
    assert await disown(scene, row) == []
    assert await cordoned(scene) == []
    await heard(clock, 5, agent)
    assert await disown(scene, row) == ["a-0 on m-0", "a-1 on m-1"]


async def test_a_gap_after_the_order_starts_the_wait_anew(scene: GangScene, clock: Clocked) -> None:
    row, agent = await scene.running("a", NAMES)
    await scene.stop(row)
    await heard(clock, 60, agent)
    clock.ahead += 12
    await heard(clock, 60, agent)
    assert await disown(scene, row) == []
    await heard(clock, LONG - 58, agent)
    assert await disown(scene, row) == ["a-0 on m-0", "a-1 on m-1"]


async def test_each_machine_has_a_contact_of_its_own(scene: GangScene, clock: Clocked) -> None:
    row, _ = await scene.running("a", NAMES)
    near, far = (FakeAgent(clock, [name]) for name in NAMES)
    for rank, agent in enumerate((near, far)):
        agent.live[NAMES[rank]].add(f"{row.uid}/1/{rank}")
        await agent.sync()
    await scene.stop(row)
    await heard(clock, 40, near)
    await heard(clock, LONG - 40, near, far)
    assert await disown(scene, row) == ["a-0 on m-0"]
    assert await cordoned(scene) == ["m-0"]
    await heard(clock, LONG, near, far)
    assert await disown(scene, row) == ["a-0 on m-0", "a-1 on m-1"]
    assert await cordoned(scene) == ["m-0", "m-1"]


async def test_a_gang_that_was_heard_for_hours_has_its_grace_from_the_order(scene: GangScene, clock: Clocked) -> None:
    row, agent = await scene.running("a", NAMES)
    await heard(clock, 3 * LONG, agent)
    await scene.stop(row)
    await heard(clock, 10, agent)
    assert await disown(scene, row) == []


async def test_a_machine_that_is_silent_now_says_nothing_of_its_processes(scene: GangScene, clock: Clocked) -> None:
    row, agent = await scene.running("a", NAMES)
    await scene.stop(row)
    await heard(clock, LONG, agent)
    clock.ahead += 12
    assert await disown(scene, row) == []
