"""Processes that outlive a stop, and those that only had no time yet to obey it."""

from lifecycle.stage import Stage
from sqlalchemy import select
from support.clock import Clocked
from support.fleet import FakeAgent, ref

from activities.gang import Gang
from astraeus.executors.agent import AgentExecutor
from astraeus.ledger.runs import RunRow
from astraeus.ledger.tables import machine
from astraeus.model.run import RunView

SURVIVED = "a-0 on m-0, a-1 on m-1 survived SIGKILL for 60 s; the machine is drained"


async def living(stage: Stage, row: RunRow, size: int) -> FakeAgent:
    """The run's workers run, on machines whose agent shows them alive."""
    view = await stage.running(row, size)
    agent = FakeAgent(stage.scene.ledger, [str(one.machine) for one in view.workers])
    for one in view.workers:
        agent.live[str(one.machine)].add(f"{row.uid}/{view.attempt}/{one.rank}")
    await agent.sync()
    return agent


async def later(stage: Stage, seconds: int) -> None:
    """Time goes by, in the ledger and in Temporal."""
    ledger = stage.scene.ledger
    assert isinstance(ledger, Clocked)
    ledger.ahead += seconds
    await stage.env.sleep(seconds)


async def heard(stage: Stage, row: RunRow, seconds: int, agent: FakeAgent) -> RunView:
    """So much time in which the agent beats, or until the stop has an end."""
    for _ in range(0, seconds, 5):
        await agent.sync()
        if (view := await stage.see(row)).state != "Stopping":
            break
        await later(stage, 5)
    return view


async def cordoned(stage: Stage) -> list[str]:
    return [row.name for row in await stage.scene.rows(select(machine).where(machine.c.cordoned))]


async def test_members_that_hear_of_a_stop_after_an_outage_have_their_grace(stage: Stage) -> None:
    row = await stage.submit("a", 2)
    agent = await living(stage, row, 2)
    await stage.order(row, "preempt")
    await later(stage, 170)
    assert (await heard(stage, row, 30, agent)).state == "Stopping"
    agent.live = {name: set() for name in agent.live}
    again = await stage.running(row, 2)
    assert (again.attempt, await cordoned(stage)) == (2, [])


async def test_what_outlives_sigkill_after_an_outage_ends_the_run_in_time(stage: Stage) -> None:
    row = await stage.submit("a", 2)
    agent = await living(stage, row, 2)
    await stage.order(row, "preempt")
    await later(stage, 170)
    view = await heard(stage, row, 190, agent)
    assert (view.state, view.reason) == ("Failed", SURVIVED)
    assert await cordoned(stage) == ["m-0", "m-1"]


async def test_a_verdict_whose_answer_was_lost_ends_the_run_all_the_same(stage: Stage) -> None:
    row = await stage.submit("a", 2)
    agent = await living(stage, row, 2)
    await stage.order(row, "restart")
    ledger = stage.scene.ledger
    assert isinstance(ledger, Clocked)
    for _ in range(20):
        ledger.ahead += 5
        await agent.sync()
    assert len(await Gang(ledger, stage.courier, AgentExecutor(ledger)).disown_undead(ref(row))) == 2
    view = await heard(stage, row, 30, agent)
    assert (view.state, view.reason, view.attempt) == ("Failed", SURVIVED, 1)
    assert await cordoned(stage) == ["m-0", "m-1"]
