from datetime import UTC, datetime
from typing import Any

import pytest
from sqlalchemy import select, update
from support.scene import LEAF_PLACE, Scene

from astraeus.ledger import views
from astraeus.ledger.core import Ledger
from astraeus.ledger.runs import RunRow
from astraeus.ledger.tables import claim, machine, run, worker
from astraeus.model.run import AttemptView, RunView, WorkerView


@pytest.fixture
async def scene(ledger: Ledger) -> Scene:
    return await Scene.start(ledger)


async def view(scene: Scene, row: RunRow) -> RunView:
    present = await scene.run(row)
    async with scene.ledger.reading() as tx:
        return (await views.run_views(tx, [present]))[0]


async def attempts(scene: Scene, row: RunRow) -> list[AttemptView]:
    async with scene.ledger.reading() as tx:
        return await views.attempt_views(tx, row.uid)


async def report(scene: Scene, row: RunRow, rank: int, **columns: Any) -> None:
    if columns:
        await scene.write(update(worker).where(worker.c.run_uid == row.uid, worker.c.rank == rank).values(columns))


async def test_no_runs_are_no_views(scene: Scene) -> None:
    async with scene.ledger.reading() as tx:
        assert await views.run_views(tx, []) == []


async def test_a_new_run_as_users_see_it(scene: Scene) -> None:
    row = await scene.submit("a", labels={"team": "x"}, priority=1)
    assert (await view(scene, row)).model_dump() == {
        "metadata": {"name": "a", "labels": {"team": "x"}, "uid": row.uid, "workspace": "acme/vision"},
        "spec": {"priority": 1, "task_template": {"command": "true"}},
        "cluster": "lab-a",
        "state": "Pending",
        "reason": "Waiting for the scheduler",
        "network": None,
        "attempt": 0,
        "restarts": {"budget": 10, "left": 10, "next_earned_at": None},
        "workers": [],
        "held": False,
        "submitted_at": datetime.fromtimestamp(row.submitted_at, UTC),
        "started_at": None,
        "finished_at": None,
    }


async def test_views_keep_the_order_of_the_rows(scene: Scene) -> None:
    rows = [await scene.submit(name) for name in ("c", "a", "b")]
    async with scene.ledger.reading() as tx:
        assert [found.metadata["name"] for found in await views.run_views(tx, rows)] == ["c", "a", "b"]


async def test_the_way_to_the_barrier_is_counted(scene: Scene) -> None:
    row = await scene.placed("a", [("m-0", 1), ("m-1", 1)])
    assert (await view(scene, row)).reason == "Starting together: 0 of 2 ready"
    await scene.write(update(claim).values(arrived=1))
    found = await view(scene, row)
    assert (found.reason, found.network) == ("Starting together: 1 of 2 ready", LEAF_PLACE)
    await scene.write(update(run).values(state="Running", reason="Running on one leaf group"))
    assert (await view(scene, row)).reason == "Running on one leaf group"


async def test_placed_members_wait_until_their_agents_speak(scene: Scene) -> None:
    row = await scene.placed("a", [("m-0", 0b11), ("m-1", 0b100)])
    assert (await view(scene, row)).workers == [
        WorkerView(name="a-0", rank=0, attempt=1, state="Waiting", machine="m-0", gpus=[0, 1], leaf="leaf-0"),
        WorkerView(name="a-1", rank=1, attempt=1, state="Waiting", machine="m-1", gpus=[2], leaf="leaf-0"),
    ]


STATES = [
    ({}, "Waiting"),
    ({"observed": "preparing"}, "Preparing"),
    ({"observed": "arrived", "arrived_at": 5.0}, "Ready"),
    ({"observed": "arrived", "desired": "run"}, "Ready"),
    ({"observed": "running", "desired": "run"}, "Running"),
    ({"observed": "running", "desired": "stop"}, "Stopping"),
    ({"observed": "none", "desired": "stop"}, "Stopping"),
    ({"observed": "running", "desired": "stop", "gone": True}, "Exited"),
    ({"observed": "exited", "gone": True, "exit_code": 3}, "Exited"),
    ({"observed": "failed", "gone": True, "error": "no such command"}, "Failed"),
    ({"observed": "running", "lost": True, "gone": True}, "Lost"),
]


@pytest.mark.parametrize(("columns", "state"), STATES)
async def test_the_state_of_a_member(scene: Scene, columns: dict[str, Any], state: str) -> None:
    row = await scene.placed("a", [("m-0", 1), ("m-1", 1)])
    await report(scene, row, 1, **columns)
    first, second = (await view(scene, row)).workers
    assert (first.state, second.state) == ("Waiting", state)
    assert (second.exit_code, second.error) == (columns.get("exit_code"), columns.get("error"))
    arrived = columns.get("arrived_at")
    assert second.arrived_at == (arrived and datetime.fromtimestamp(arrived, UTC))


async def test_members_outlive_their_attempt_and_their_machine_until_the_next_attempt(scene: Scene) -> None:
    row = await scene.placed("a", [("m-0", 1), ("m-1", 1)])
    await scene.release(row)
    await scene.write(machine.delete().where(machine.c.name == "m-1"))
    found = (await view(scene, row)).workers
    assert [(member.state, member.leaf) for member in found] == [("Exited", "leaf-0"), ("Exited", None)]
    await scene.enter(row, attempt=2)
    assert (await view(scene, row)).workers == []
    async with scene.ledger.reading() as tx:
        assert [member.name for member in await views.worker_views(tx, row.uid, 1)] == ["a-0", "a-1"]
        assert await views.worker_views(tx, row.uid, 2) == []
        assert await views.worker_views(tx, "nobody", 1) == []


@pytest.mark.parametrize(
    ("left", "ago", "shown", "next_in"),
    [(8, -10, 8, 10), (8, 0, 9, 600), (8, 599, 9, 1), (8, 600, 10, None), (8, 90_000, 10, None), (10, None, 10, None)],
)
async def test_running_earns_restarts_back_as_it_goes(
    scene: Scene, left: int, ago: float | None, shown: int, next_in: float | None
) -> None:
    row = await scene.submit("a")
    async with scene.ledger.transaction() as tx:
        due = None if ago is None else tx.now - ago
        await tx.conn.execute(update(run).values(state="Running", budget_left=left, next_earned_at=due))
        (present,) = await tx.conn.execute(select(run))
        found = (await views.run_views(tx, [RunRow.of(present._mapping)]))[0].restarts
    del row
    assert (found.budget, found.left) == (10, shown)
    assert (found.next_earned_at is None) == (next_in is None)
    if found.next_earned_at is not None and next_in is not None:
        assert found.next_earned_at.timestamp() == pytest.approx(tx.now + next_in, abs=0.01)


async def test_waiting_earns_nothing(scene: Scene) -> None:
    row = await scene.placed("a", [("m-0", 1)])
    await scene.release(row, next_earned_seconds=0.0)
    found = (await view(scene, row)).restarts
    assert (found.left, found.next_earned_at) == (9, None)


async def test_an_unlimited_budget_has_no_numbers(scene: Scene) -> None:
    row = await scene.submit("a", restart_budget="unlimited")
    assert (await view(scene, row)).restarts.model_dump() == {"budget": None, "left": None, "next_earned_at": None}


async def test_attempts_tell_where_and_how_each_ended(scene: Scene) -> None:
    row = await scene.placed("a", [("m-1", 1), ("m-0", 1), ("m-1", 2)])
    await scene.write(update(claim).values(gates_opened_at=1000.0))
    await scene.release(row)
    await scene.enter(row, attempt=2)
    first, second = await attempts(scene, row)
    assert first.model_dump(include={"attempt", "network", "machines", "cause", "detail", "charged"}) == {
        "attempt": 1,
        "network": LEAF_PLACE.model_dump(),
        "machines": ["m-1", "m-0"],
        "cause": "exited",
        "detail": "a-0 exited with code 1",
        "charged": True,
    }
    assert first.running_at == datetime.fromtimestamp(1000, UTC)
    assert first.placed_at is not None
    assert first.ended_at is not None
    assert (second.attempt, second.machines, second.placed_at, second.cause) == (2, [], None, None)
    async with scene.ledger.reading() as tx:
        assert await views.attempt_views(tx, "nobody") == []
