"""Lives of runs whose workers start one by one: placed, failing, restarted and ordered each by itself."""

import pytest
from lifecycle.stage import Stage, running

from astraeus.model.run import RunView


def attempts(view: RunView) -> list[int]:
    return [one.attempt for one in view.workers]


async def test_workers_start_as_there_is_room_and_the_run_ends_with_the_last(stage: Stage) -> None:
    row = await stage.submit("sweep", 4, start="Independent")
    view = await stage.until(row, lambda view: len(running(view)) == 3 and "Needs" in view.reason)
    (waits,) = [one for one in view.workers if one.machine is None]
    assert (view.state, waits.state) == ("Running", "Waiting")
    assert view.reason.startswith("3 of 4 workers running; 1 waiting: Needs 1 machine with 8 free GPUs")
    assert waits.reason == view.reason.partition("waiting: ")[2]
    stage.exits = {f"sweep-{rank}": [0] for rank in range(4)}
    done = await stage.ended(row)
    assert (done.state, done.reason) == ("Succeeded", "All 4 workers exited with code 0")
    assert attempts(done) == [1, 1, 1, 1]
    await stage.scene.check()


async def test_a_worker_that_fails_is_restarted_alone_at_its_own_charge(stage: Stage) -> None:
    row = await stage.submit("sweep", 2, start="Independent")
    await stage.running(row, 2)
    stage.exits["sweep-1"] = [1]
    view = await stage.until(row, lambda view: "Restart:" in view.reason)
    said = "Restart: sweep-1 exited with code 1; restarting in 10 s (9 of 10 restarts left)"
    assert (view.state, view.reason) == ("Running", f"1 of 2 workers running; 1 waiting: {said}")
    view = await stage.running(row, 2)
    assert (attempts(view), view.attempt, view.restarts.left) == ([1, 2], 2, 9)
    assert [(one.worker, one.attempt, one.charged) for one in await stage.attempts(row)] == [
        ("sweep-0", 1, False),
        ("sweep-1", 1, True),
        ("sweep-1", 2, False),
    ]
    stage.exits = {"sweep-0": [0], "sweep-1": [0]}
    assert (await stage.ended(row)).state == "Succeeded"


async def test_a_worker_whose_budget_is_spent_fails_while_the_others_go_on(stage: Stage) -> None:
    row = await stage.submit("sweep", 2, start="Independent", restart_budget=0)
    await stage.running(row, 2)
    stage.exits["sweep-1"] = [3]
    view = await stage.until(row, lambda view: "failed" in view.reason)
    assert (view.state, view.reason) == ("Running", "1 of 2 workers running; 1 failed")
    stage.exits["sweep-0"] = [0]
    done = await stage.ended(row)
    assert done.state == "Failed"
    assert done.reason == "1 of 2 workers failed: sweep-1 exited with code 3: restart budget (0) spent"


async def test_restart_job_starts_all_again_and_charges_the_one_that_failed(stage: Stage) -> None:
    row = await stage.submit("sweep", 3, start="Independent", on_failure="RestartJob")
    await stage.running(row, 3)
    stage.exits["sweep-1"] = [1]
    view = await stage.until(row, lambda view: len(running(view)) == 3 and attempts(view) == [2, 2, 2])
    assert view.restarts.left == 9
    first = {one.worker: one for one in await stage.attempts(row) if one.attempt == 1}
    assert {name: (one.cause, one.charged) for name, one in first.items()} == {
        "sweep-0": ("restarted", False),
        "sweep-1": ("exited", True),
        "sweep-2": ("restarted", False),
    }


async def test_on_failure_fail_stops_the_others_for_good(stage: Stage) -> None:
    row = await stage.submit("sweep", 4, start="Independent", on_failure="Fail")
    name = running(await stage.running(row, 3))[1].name
    stage.exits[name] = [1]
    done = await stage.ended(row)
    assert (done.state, done.reason) == ("Failed", f"{name} exited with code 1; on_failure is Fail")
    assert [one.reason for one in done.workers if one.name != name] == [f"Cancelled by the failure of {name}"] * 3
    await stage.scene.check()


@pytest.mark.parametrize("kind", ["cancel", "delete"])
async def test_cancel_and_delete_end_every_worker(stage: Stage, kind: str) -> None:
    row = await stage.submit("sweep", 4, start="Independent")
    await stage.running(row, 3)
    await stage.order(row, kind)
    done = await stage.ended(row)
    assert (done.state, done.reason) == ("Cancelled", "Cancelled by grace")
    assert ((await stage.scene.run(row)).hidden_at is not None) == (kind == "delete")
    assert await stage.scene.used() == {}


async def test_a_hold_keeps_those_that_wait_from_starting_until_the_release(stage: Stage) -> None:
    row = await stage.submit("sweep", 4, start="Independent")
    view = await stage.running(row, 3)
    await stage.order(row, "hold")
    stage.exits[running(view)[0].name] = [0]
    view = await stage.until(row, lambda view: "succeeded" in view.reason and "Held" in view.reason)
    assert (view.held, view.reason) == (True, "2 of 4 workers running; 1 succeeded; 1 waiting: Held by grace")
    await stage.order(row, "release")
    view = await stage.running(row, 3)
    assert not view.held


async def test_a_lost_machine_costs_the_worker_on_it_a_restart_elsewhere(stage: Stage) -> None:
    row = await stage.submit("sweep", 2, start="Independent")
    view = await stage.running(row, 2)
    gone = view.workers[1].machine
    assert gone is not None
    await stage.lose(gone)
    view = await stage.until(row, lambda view: "lost its machine" in view.reason)
    assert view.reason == "1 of 2 workers running; 1 waiting: Restart: sweep-1 lost its machine"
    view = await stage.running(row, 2)
    assert attempts(view) == [1, 2]
    assert view.workers[1].machine not in (gone, view.workers[0].machine)
    assert [(one.worker, one.cause, one.charged) for one in await stage.attempts(row) if one.cause] == [
        ("sweep-1", "machine_lost", True)
    ]


async def test_one_worker_alone_makes_room_for_higher_work_and_comes_back_free(stage: Stage) -> None:
    row = await stage.submit("sweep", 3, start="Independent")
    await stage.running(row, 3)
    high = await stage.submit("eval", 1, priority=10)
    await stage.until(high, lambda view: view.state == "Running")
    view = await stage.until(row, lambda view: "Preempted" in view.reason)
    assert view.reason == "2 of 3 workers running; 1 waiting: " + (
        "Preempted by higher-priority work (eval); waiting to run again"
    )
    stage.exits["eval-0"] = [0]
    view = await stage.running(row, 3)
    assert sorted(attempts(view)) == [1, 1, 2]
    assert view.restarts.left == 10


async def test_workers_without_gpus_run_too(stage: Stage) -> None:
    stage.exits = {f"sweep-{rank}": [0] for rank in range(5)}
    row = await stage.submit("sweep", 5, gpus=0, start="Independent")
    assert (await stage.ended(row)).reason == "All 5 workers exited with code 0"
