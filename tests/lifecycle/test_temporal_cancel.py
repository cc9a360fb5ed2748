"""A cancellation from Temporal's own UI is an order like any other: nothing of the run stays behind."""

import pytest
from lifecycle.conftest import Live
from lifecycle.world import World, fail, nothing, reach, state_of, vanish


async def evict(world: World, attempt: int) -> None:
    """Room is needed."""
    known = world.at(attempt)
    known.intent, known.intent_by, known.intent_why = "preempted", "eval-release", "higher priority"
    await world.tell("preempt", attempt, "eval-release", "higher priority")


@pytest.mark.parametrize("phase", ["queue", "start", "run", "stop", "backoff", "held"])
async def test_a_cancel_in_temporals_own_ui_is_an_order_like_any_other(live: Live, phase: str) -> None:
    acts = {
        "queue": {"on_enter": [nothing]},
        "start": {"on_start": [nothing]},
        "run": {"on_open": [nothing]},
        "stop": {"on_open": [evict], "on_stop": [nothing]},
        "backoff": {"on_open": [fail]},
        "held": {"life": {"held_by": "ada"}},
    }[phase]
    async with live(**acts) as world:
        with world.env.auto_time_skipping_disabled():
            await reach(world, phase)
            assert world.started is not None
            await world.started.cancel()
            if phase == "stop":
                await vanish(world, 1)
            assert await state_of(world) == "Cancelled"
    assert not world.at(1).granted_at or len(world.closed) == 1
