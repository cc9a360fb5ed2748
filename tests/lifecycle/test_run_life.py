"""A run's life on the time-skipping server: what each end of an attempt means, and when things happen."""

import pytest
from lifecycle.conftest import Live
from lifecycle.world import Known, World, arrive, fail, lose_machine, nothing, place, reach, state_of, succeed, vanish

from workflows.run import RunWorkflow

BUDGET_BACKOFFS = [10, 20, 40, 80, 160, 300, 300, 300, 300, 300]


async def test_a_gang_that_succeeds_is_placed_started_opened_and_closed_once(live: Live) -> None:
    async with live() as world:
        assert await state_of(world) == "Succeeded"
    assert [name for name, _ in world.calls] == ["enter_claim", "start_workers", "open_gates", "close_attempt"]
    assert [(c.cause, c.charged, c.state, c.budget_left) for c in world.closed] == [
        ("succeeded", False, "Succeeded", 10)
    ]


async def test_eleven_failures_spend_ten_restarts_with_doubling_pauses(live: Live) -> None:
    async with live(on_open=[fail]) as world:
        assert await state_of(world) == "Failed"
    assert len(world.closed) == 11
    assert all(closing.charged for closing in world.closed)
    assert [closing.budget_left for closing in world.closed] == [9, 8, 7, 6, 5, 4, 3, 2, 1, 0, 0]
    assert world.closed[1].reason == (
        "Gang restart: resnet-64gpu-5 exited with code 1; restarting in 20 s (8 of 10 restarts left)"
    )
    assert world.closed[-1].reason == (
        "resnet-64gpu-5 exited with code 1: restart budget (10) spent; the gang does not run without it"
    )
    closed, entered = world.when("close_attempt"), world.when("enter_claim")
    pauses = [round(after - before) for before, after in zip(closed, entered[1:], strict=False)]
    assert pauses == BUDGET_BACKOFFS
    assert world.claims[1].avoid == ["m-5"]


async def test_ten_minutes_of_running_earn_a_restart_back(live: Live) -> None:
    async with live(on_open=[fail, nothing]) as world:
        await reach_attempt(world, 2, "run")
        await world.env.sleep(601)
        await fail(world, 2)
        await reach_attempt(world, 3, "run")
        await succeed(world, 3)
        assert await state_of(world) == "Succeeded"
    assert [closing.budget_left for closing in world.closed] == [9, 9, 9]


async def reach_attempt(world: World, attempt: int, phase: str) -> None:
    assert world.handle is not None
    for _ in range(400):
        life = await world.handle.query(RunWorkflow.state)
        if (life.attempt, life.phase) == (attempt, phase) and world.at(attempt).gates_opened_at:
            return
        await world.env.sleep(1)
    raise AssertionError(f"attempt {attempt} never reached {phase}: {life}")


async def test_a_lost_machine_restarts_the_gang_in_the_recipes_words(live: Live) -> None:
    async with live(on_open=[lose_machine, succeed]) as world:
        assert await state_of(world) == "Succeeded"
    lost = world.closed[0]
    assert (lost.cause, lost.charged, lost.state) == ("machine_lost", True, "Pending")
    assert lost.reason == "Gang restart: resnet-64gpu-5 lost its machine"
    assert world.claims[1].headline == "Gang restart: resnet-64gpu-5 lost its machine"


async def test_preemption_is_never_charged_and_waits_in_its_place(live: Live) -> None:
    async def evict(world: World, attempt: int) -> None:
        known = world.at(attempt)
        known.intent, known.intent_by, known.intent_why = "preempted", "eval-release", "higher priority"
        await world.tell("preempt", attempt, "eval-release", "higher priority")

    async with live(on_open=[evict, evict, evict, succeed]) as world:
        assert await state_of(world) == "Succeeded"
    assert [(c.cause, c.charged, c.budget_left) for c in world.closed[:3]] == [("preempted", False, 10)] * 3
    assert world.closed[0].reason == "Preempted by higher-priority work (eval-release); waiting to run again"
    assert world.claims[1].headline == world.closed[0].reason
    closed, entered = world.when("close_attempt"), world.when("enter_claim")
    assert round(entered[1] - closed[0]) == 0


async def test_a_preempted_script_that_exits_0_has_not_succeeded(live: Live) -> None:
    async def evict(world: World, attempt: int) -> None:
        known = world.at(attempt)
        known.intent, known.intent_by = "preempted", "bob"
        await world.tell("ended", attempt)

    async with live(on_open=[evict, succeed]) as world:
        assert await state_of(world) == "Succeeded"
    assert [c.cause for c in world.closed] == ["preempted", "succeeded"]
    assert world.closed[0].reason == "Preempted by bob; waiting to run again"


async def test_patience_that_runs_out_widens_the_claim_at_its_deadline(live: Live) -> None:
    async with live(on_enter=[nothing], life={"patience_seconds": 900}) as world:
        assert await state_of(world) == "Succeeded"
    assert [round(at - world.when("enter_claim")[0]) for at in world.when("widen_claim")] == [900]


async def test_a_grant_whose_message_was_lost_is_found_within_minutes(live: Live) -> None:
    async def place_silently(world: World, attempt: int) -> None:
        world.at(attempt).granted_at = await world.now()

    async with live(on_enter=[place_silently]) as world:
        assert await state_of(world) == "Succeeded"
    assert 0 < world.when("start_workers")[0] - world.when("enter_claim")[0] <= 301


async def test_a_workflow_made_anew_goes_on_at_once_with_the_grant_that_the_ledger_has(live: Live) -> None:
    async with live(on_enter=[nothing], attempts={1: Known(granted_at=0.0)}, life={"patience_seconds": 900}) as world:
        assert await state_of(world) == "Succeeded"
    assert world.when("start_workers")[0] - world.when("enter_claim")[0] < 5
    assert not world.when("widen_claim")


async def test_a_claim_that_the_ledger_lost_is_entered_again(live: Live) -> None:
    async def lose_once(world: World, attempt: int) -> None:
        known = world.at(attempt)
        if world.when("enter_claim")[1:]:
            known.claimed = True
            await place(world, attempt)
        else:
            known.claimed = False

    async with live(on_enter=[lose_once]) as world:
        assert await state_of(world) == "Succeeded"
    first, second = world.when("enter_claim")
    assert 0 < second - first <= 301


async def test_the_barrier_ends_thirty_minutes_after_placement_when_nobody_arrives(live: Live) -> None:
    async with live(on_start=[nothing, arrive]) as world:
        assert await state_of(world) == "Succeeded"
    late = world.closed[0]
    assert (late.cause, late.charged) == ("barrier_timeout", True)
    assert late.reason.startswith("Gang barrier timed out waiting for all members (missing: resnet-64gpu-0, ")
    assert round(world.when("stop_gang")[0] - world.when("start_workers")[0]) == 1800


async def test_the_barrier_ends_fifteen_minutes_after_the_first_arrival(live: Live) -> None:
    async def six_of_eight(world: World, attempt: int) -> None:
        known = world.at(attempt)
        known.first_arrived_at, known.arrived = await world.now(), 6
        known.missing = ["resnet-64gpu-3", "resnet-64gpu-6"]

    async with live(on_start=[six_of_eight, arrive]) as world:
        assert await state_of(world) == "Succeeded"
    assert "(missing: resnet-64gpu-3, resnet-64gpu-6)" in world.closed[0].reason
    assert round(world.when("stop_gang")[0] - world.when("start_workers")[0]) == 900


async def test_a_member_that_comes_between_the_last_look_and_the_stop_is_not_late(live: Live) -> None:
    async def come_but_one(world: World, attempt: int) -> None:
        known = world.at(attempt)
        known.first_arrived_at, known.arrived, known.gone = await world.now(), 7, False

    async def come_at_the_last_moment(world: World, attempt: int) -> None:
        known = world.at(attempt)
        if known.first_arrived_at is not None and await world.now() - known.first_arrived_at >= 900:
            known.arrived, known.all_arrived, known.missing = 8, True, []

    async with live(on_start=[come_but_one], after_look=come_at_the_last_moment) as world:
        assert await state_of(world) == "Succeeded"
    assert [closing.cause for closing in world.closed] == ["succeeded"]
    assert [stop.cause for stop in world.stops] == ["barrier_timeout"]


async def test_a_time_limit_ends_the_run_for_good(live: Live) -> None:
    async with live(on_open=[nothing], life={"time_limit_seconds": 3600}) as world:
        assert await state_of(world) == "Failed"
    assert world.closed[0].reason == "Reached its time limit (3600 s)"
    assert round(world.when("stop_gang")[0] - world.when("open_gates")[0]) == 3600
    assert len(world.closed) == 1


@pytest.mark.parametrize("kind", ["cancel", "delete"])
async def test_cancel_while_running_stops_the_gang_first(live: Live, kind: str) -> None:
    async with live(on_open=[nothing]) as world:
        with world.env.auto_time_skipping_disabled():
            await reach(world, "run")
            await world.order(kind)
            assert await state_of(world) == "Cancelled"
    assert [stop.cause for stop in world.stops] == ["cancelled"]
    assert world.closed[0].reason == "Cancelled by alice"


async def test_cancel_while_waiting_withdraws_the_claim(live: Live) -> None:
    async with live(on_enter=[nothing]) as world:
        with world.env.auto_time_skipping_disabled():
            await reach(world, "queue")
            await world.order("cancel")
            assert await state_of(world) == "Cancelled"
    assert [stop.cause for stop in world.stops] == ["cancelled"]
    assert [c.state for c in world.closed] == ["Cancelled"]


@pytest.mark.parametrize(("before", "pause"), [(0.3, 9.7), (4.0, 9.5), (3600.0, 9.5)])
async def test_the_pause_counts_from_the_end_of_the_last_member_however_late_that_is_heard(
    live: Live, before: float, pause: float
) -> None:
    async def vanished_before(world: World, attempt: int) -> None:
        world.at(attempt).ended_at = await world.now() - before
        await vanish(world, attempt)

    async with live(on_open=[fail, succeed], on_stop=[vanished_before]) as world:
        assert await state_of(world) == "Succeeded"
    waited = world.when("enter_claim")[1] - world.when("close_attempt")[0]
    assert pause - 0.15 < waited < pause + 0.15


async def test_a_pause_is_waited_out_however_long_it_took_to_write_the_end(live: Live) -> None:
    async def ended_now(world: World, attempt: int) -> None:
        world.at(attempt).ended_at = await world.now()
        await vanish(world, attempt)

    async with live(on_open=[fail, succeed], on_stop=[ended_now], close_fails=3) as world:
        assert await state_of(world) == "Succeeded"
    assert world.when("enter_claim")[1] - world.when("close_attempt")[0] > 9.4


async def test_cancel_during_backoff_ends_at_once(live: Live) -> None:
    async with live(on_open=[fail]) as world:
        with world.env.auto_time_skipping_disabled():
            await reach(world, "backoff")
            await world.order("cancel")
            assert await state_of(world) == "Cancelled"
    assert [(note.state, note.reason) for note in world.notes] == [("Cancelled", "Cancelled by alice")]


async def test_a_success_recorded_before_the_cancel_stands(live: Live) -> None:
    async def succeed_then_cancel(world: World, attempt: int) -> None:
        world.at(attempt).succeeded = world.at(attempt).gone = True
        await world.order("cancel")

    async with live(on_open=[succeed_then_cancel]) as world:
        assert await state_of(world) == "Succeeded"


async def test_on_failure_fail_never_restarts(live: Live) -> None:
    async with live(on_open=[fail], life={"failure_rule": "Fail"}) as world:
        assert await state_of(world) == "Failed"
    assert world.closed[0].reason == "resnet-64gpu-5 exited with code 1; on_failure is Fail"


async def test_a_budget_of_zero_means_never_restart(live: Live) -> None:
    async with live(on_open=[fail], life={"budget_size": 0}) as world:
        assert await state_of(world) == "Failed"
    assert len(world.closed) == 1


async def test_hold_keeps_a_waiting_run_from_being_placed_until_released(live: Live) -> None:
    async with live(on_enter=[nothing, place]) as world:
        with world.env.auto_time_skipping_disabled():
            await reach(world, "queue")
            await world.order("hold")
            await reach(world, "held")
            await world.order("release")
            assert await state_of(world) == "Succeeded"
    assert world.closed[0].reason == "Held by alice"
    assert [closing.charged for closing in world.closed] == [False, False]


async def test_a_person_restarts_a_running_gang_free_of_charge(live: Live) -> None:
    async with live(on_open=[nothing, succeed]) as world:
        with world.env.auto_time_skipping_disabled():
            await reach(world, "run")
            await world.order("restart", why="new data")
            assert await state_of(world) == "Succeeded"
    assert world.closed[0].reason == "Restarted by alice (new data); waiting to run again"
    assert not world.closed[0].charged


async def test_repeated_and_foreign_messages_change_nothing(live: Live) -> None:
    async def noise(world: World, attempt: int) -> None:
        assert world.handle is not None
        world.messages -= 1
        await world.tell("placed", attempt)
        await world.tell("failed", attempt + 7)
        await world.tell("machine_lost", 0)
        await arrive(world, attempt)

    async with live(on_start=[noise]) as world:
        assert await state_of(world) == "Succeeded"
    assert len(world.closed) == 1


async def test_an_executor_that_refuses_to_start_charges_nothing(live: Live) -> None:
    async def refuse(world: World, attempt: int) -> None:
        raise RuntimeError("image registry is away")

    async with live(on_start=[refuse, arrive]) as world:
        assert await state_of(world) == "Succeeded"
    first = world.closed[0]
    assert (first.cause, first.charged, first.budget_left) == ("never_started", False, 10)
    assert "image registry is away" in first.reason


async def test_a_process_that_survives_sigkill_ends_the_run_and_is_named(live: Live) -> None:
    async with live(on_open=[fail], on_stop=[keep_living]) as world:
        assert await state_of(world) == "Failed"
    assert world.closed[0].reason == "resnet-64gpu-3 on m-3 survived SIGKILL for 60 s; the machine is drained"
    assert round(world.when("disown_undead")[0] - world.when("stop_gang")[0]) == 90


async def test_a_workflow_made_anew_finds_in_the_ledger_what_survived_sigkill(live: Live) -> None:
    over = Known(granted_at=0.0, intent="restarted", intent_by="alice", undead=["resnet-64gpu-3 on m-3"])
    async with live(on_enter=[nothing, place], on_start=[nothing, arrive], attempts={1: over}) as world:
        assert await state_of(world) == "Failed"
    assert world.closed[0].reason == "resnet-64gpu-3 on m-3 survived SIGKILL for 60 s; the machine is drained"
    assert len(world.claims) == 1
    assert not world.when("disown_undead")


async def test_a_silent_machine_is_waited_for_and_its_loss_ends_the_wait(live: Live) -> None:
    async with live(on_open=[fail, succeed], on_stop=[keep_living], undead_shown=False) as world:
        with world.env.auto_time_skipping_disabled():
            await reach(world, "stop")
        await world.env.sleep(200)
        await vanish(world, 1)
        assert await state_of(world) == "Succeeded"
    assert world.closed[0].cause == "exited"


async def keep_living(world: World, attempt: int) -> None:
    """The processes go on."""
    world.at(attempt).gone = False
