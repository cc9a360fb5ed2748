"""Cancels while something else goes on."""

import pytest
from lifecycle.conftest import Live
from lifecycle.world import World, nothing, state_of

from astraeus.model.messages import RunMessage


@pytest.mark.parametrize("kind", ["cancel", "delete"])
async def test_a_cancel_during_a_stop_for_another_reason_enters_no_further_claim(live: Live, kind: str) -> None:
    async def cancelled_while_stopping(world: World, attempt: int) -> None:
        await world.order(kind)
        world.at(attempt).gone = True

    async with live(on_open=[evict], on_stop=[cancelled_while_stopping]) as world:
        assert await state_of(world) == "Cancelled"
    assert [closing.cause for closing in world.closed] == ["preempted"]
    assert [(note.reason, note.actor) for note in world.notes] == [("Cancelled by alice", "alice")]


@pytest.mark.parametrize("attempt", [0, 3])
async def test_a_workflow_that_begins_with_a_cancel_withdraws_what_may_wait(live: Live, attempt: int) -> None:
    cancel = RunMessage(id=7, kind="cancel", who="alice")
    async with live(on_enter=[nothing], life={"attempt": attempt}, first=cancel) as world:
        assert await state_of(world) == "Cancelled"
    assert [order.ref.attempt for order in world.claims] == [attempt + 1]
    assert [closing.state for closing in world.closed] == ["Cancelled"]


async def evict(world: World, attempt: int) -> None:
    """Room is needed."""
    known = world.at(attempt)
    known.gone = False
    known.intent, known.intent_by, known.intent_why = "preempted", "eval-release", "higher priority"
    await world.tell("preempt", attempt, "eval-release", "higher priority")
