"""Between the submission and the first step of its workflow the ledger and the scheduler are at work on a run."""

import pytest
from lifecycle.stage import Stage, running
from sqlalchemy import delete, select

from astraeus.ledger import claims
from astraeus.ledger.tables import claim
from workflows.scheduler import SAFETY_SECONDS

WHOLE_PAIR = {"machines": 2, "gpu_requests": {"count": 16}}


async def test_members_may_be_at_their_gates_before_the_workflow_begins(stage: Stage) -> None:
    row = await stage.enter("early", 2)
    early = await stage.until(row, lambda view: [one.state for one in view.workers] == ["Ready", "Ready"])
    assert early.state == "Starting"
    await stage.start(row)
    await stage.running(row, 2)
    stage.exits = {"early-0": [0], "early-1": [0]}
    assert (await stage.ended(row)).state == "Succeeded"
    assert [(one.attempt, one.cause) for one in await stage.attempts(row)] == [(1, "succeeded")]


async def test_an_api_that_died_before_it_woke_the_scheduler_costs_no_minute(stage: Stage) -> None:
    other = await stage.submit("other", 1)
    await stage.running(other, 1)
    await stage.env.sleep(2)
    row = await stage.scene.submit("woken", task={"requested_resources": WHOLE_PAIR})
    async with stage.scene.ledger.transaction() as tx:
        await claims.enter_first(tx, row, 0.0)
    began = await stage.env.get_current_time()
    await stage.start(row)
    await stage.running(row, 2)
    assert (await stage.env.get_current_time() - began).total_seconds() < SAFETY_SECONDS / 2


@pytest.mark.parametrize("kind", ["cancel", "delete"])
@pytest.mark.parametrize("machines", [2, 9], ids=["placed", "waiting"])
async def test_a_run_cancelled_before_its_workflow_begins_leaves_nothing(
    stage: Stage, kind: str, machines: int
) -> None:
    row = await stage.enter("short", machines)
    if machines == 2:
        await stage.until(row, lambda view: len(view.workers) == 2)
    letters = await stage.scene.order(row, kind)
    await stage.start(row)
    await stage.courier.deliver(letters)
    assert (await stage.ended(row)).reason == "Cancelled by grace"
    assert await stage.scene.used() == {}
    assert [one.state for one in await stage.scene.rows(select(claim))] == ["Released"]


async def test_a_run_whose_claim_was_lost_with_the_ledger_can_be_cancelled(stage: Stage) -> None:
    row = await stage.submit("later", 9)
    await stage.until(row, lambda view: "Needs 9 machines" in view.reason)
    await stage.scene.write(delete(claim).where(claim.c.run_uid == row.uid))
    await stage.order(row, "cancel")
    assert (await stage.ended(row)).reason == "Cancelled by grace"


async def test_a_run_held_before_its_workflow_begins_waits_for_its_release(stage: Stage) -> None:
    row = await stage.enter("later", 9)
    await stage.scene.order(row, "hold")
    await stage.start(row)
    await stage.until(row, lambda view: view.reason.startswith("Held by") and view.held)
    assert [one.state for one in await stage.scene.rows(select(claim))] == ["Released"]
    await stage.order(row, "release")
    await stage.until(row, lambda view: "Needs 9 machines" in view.reason)
    assert running(await stage.see(row)) == []
