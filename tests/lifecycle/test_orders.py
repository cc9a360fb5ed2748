"""Orders given twice, late, or one after the other: the last word counts."""

from lifecycle.conftest import Live
from lifecycle.world import World, nothing, place, reach, state_of


async def test_a_hold_given_twice_is_released_once(live: Live) -> None:
    async with live(on_enter=[nothing, place]) as world:
        with world.env.auto_time_skipping_disabled():
            await reach(world, "queue")
            await world.order("hold")
            await world.order("hold", "bob")
            await reach(world, "held")
            await world.order("release")
            assert await state_of(world) == "Succeeded"
    assert world.notes[-1].reason == "Released; waiting to be placed"


async def test_a_release_of_a_run_that_is_not_held_undoes_no_later_hold(live: Live) -> None:
    async with live(on_enter=[nothing, place]) as world:
        with world.env.auto_time_skipping_disabled():
            await reach(world, "queue")
            await world.order("release")
            await world.order("hold")
            await reach(world, "held")
            assert [note.held for note in world.notes] == [True]
            await world.order("release")
            assert await state_of(world) == "Succeeded"


async def test_the_holder_shown_is_the_one_whose_hold_counts(live: Live) -> None:
    async with live(life={"held_by": "ada"}) as world:
        with world.env.auto_time_skipping_disabled():
            await reach(world, "held")
            await world.order("hold", "bob")
            await reach_reason(world, "Held by bob")
            await world.order("release")
            assert await state_of(world) == "Succeeded"


async def reach_reason(world: World, reason: str) -> None:
    """Wait until the workflow has said so."""
    for _ in range(400):
        await reach(world, "held")
        if world.notes and world.notes[-1].reason == reason:
            return
    raise AssertionError(f"never said {reason!r}: {world.notes}")
