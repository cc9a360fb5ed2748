"""Cancels while something else goes on."""

import pytest
from lifecycle.conftest import Live
from lifecycle.world import World, state_of


@pytest.mark.parametrize("kind", ["cancel", "delete"])
async def test_a_cancel_during_a_stop_for_another_reason_enters_no_further_claim(live: Live, kind: str) -> None:
    async def cancelled_while_stopping(world: World, attempt: int) -> None:
        await world.order(kind)
        world.at(attempt).gone = True

    async with live(on_open=[evict], on_stop=[cancelled_while_stopping]) as world:
        assert await state_of(world) == "Cancelled"
    assert [closing.cause for closing in world.closed] == ["preempted"]
    assert [(note.reason, note.actor) for note in world.notes] == [("Cancelled by alice", "alice")]


async def evict(world: World, attempt: int) -> None:
    """Room is needed."""
    known = world.at(attempt)
    known.gone = False
    known.intent, known.intent_by, known.intent_why = "preempted", "eval-release", "higher priority"
    await world.tell("preempt", attempt, "eval-release", "higher priority")
