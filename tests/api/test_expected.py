"""When runs that wait start at the latest, as the API and the console tell it."""

from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Any

import pytest
from sqlalchemy import update

from api.auth import Scope
from api.console.pages import queue
from astraeus.ledger import claims, runs
from astraeus.ledger.commit import commit_plan
from astraeus.ledger.snapshot import load_snapshot
from astraeus.ledger.tables import claim
from astraeus.ledger.tokens import Caller
from astraeus.placement import expect
from astraeus.placement.planner import plan

LIMIT = 600
Enter = Callable[..., Awaitable[str]]


@pytest.fixture
def enter(world: Any, spec: Any) -> Enter:
    """Has a run of two workers submitted and its claim entered; answers its uid."""

    async def submit(name: str, limit: int | None = None, **rest: Any) -> str:
        body = spec(name, task={"time_limit_seconds": limit} if limit else {}, **rest)
        assert (await world.client().post("/runs", json=body)).status_code == 201
        async with world.state.ledger.transaction() as tx:
            row = await runs.find(tx, world.workspace.id, name)
            await claims.enter(tx, row.uid, 1, "lab-a", 0, [], None)
        return str(row.uid)

    return submit


@pytest.fixture
async def until(world: Any, machine: Any, enter: Enter) -> float:
    """When the run that holds both machines reaches its time limit."""
    await world.sync(machine("m-1"), machine("m-2"))
    uid = await enter("first", LIMIT, priority=10)
    async with world.state.ledger.transaction() as tx:
        term = await claims.take_pass_term(tx, "lab-a")
        assert await commit_plan(tx, "lab-a", term, plan(await load_snapshot(tx, "lab-a"), tx.now))
        await tx.conn.execute(update(claim).where(claim.c.run_uid == uid).values(gates_opened_at=tx.now))
        return float(tx.now) + LIMIT


async def explained(world: Any, name: str) -> dict[str, Any]:
    answer: dict[str, Any] = (await world.client("viewer").get(f"/runs/{name}/explain")).json()
    return answer


def near(stamp: str, at: float) -> bool:
    return 0 <= datetime.fromisoformat(stamp).timestamp() - at < 1


async def test_everyone_in_line_is_told_a_start_and_so_is_who_is_not_yet(
    world: Any, spec: Any, until: float, enter: Enter
) -> None:
    await enter("second", 100)
    await enter("third")
    second, third = await explained(world, "second"), await explained(world, "third")
    assert near(second["expected_start"], until)
    assert near(third["expected_start"], until + 100)
    assert third["expected_words"] == "in 12 min at the latest, by time limits"
    planned = (await world.client("viewer").post("/runs:plan", json=spec())).json()
    assert (planned["fits"], planned["expected_start"]) == (False, "unknown")
    assert planned["expected_words"] == "unknown: no time limit brings it room"


@pytest.fixture
def worked_out(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """How many claims expected starts were worked out for, each time; `took` is what that is said to have taken."""
    noted: dict[str, Any] = {"asked": [], "took": 0.4}

    def timed(snapshot: Any, now: float) -> tuple[Any, float]:
        noted["asked"].append(len(snapshot.asks))
        return expect.expected(snapshot, now), noted["took"]

    monkeypatch.setattr("api.outlook._timed", timed)
    return noted


async def test_a_change_is_in_the_next_answer_and_nothing_is_worked_out_twice(
    world: Any, until: float, enter: Enter, worked_out: dict[str, Any]
) -> None:
    await enter("second")
    for _ in range(2):
        assert near((await explained(world, "second"))["expected_start"], until)
    assert worked_out["asked"] == [1]
    await enter("urgent", 50, priority=7)
    second = await explained(world, "second")
    assert second["position"] == 2
    assert near(second["expected_start"], until + 50)
    assert worked_out["asked"] == [1, 2]


async def test_who_would_be_preempted_is_told_before_and_after_submitting(
    world: Any, spec: Any, until: float, enter: Enter
) -> None:
    planned = (await world.client("viewer").post("/runs:plan", json=spec(priority=99))).json()
    assert (planned["fits"], planned["victims"]) == (False, ["first"])
    assert planned["expected_words"] == "once what is being stopped is gone"
    await enter("urgent", priority=99)
    answer = await explained(world, "urgent")
    assert answer["victims"] == ["first"]
    assert answer["expected_words"] == "once what is being stopped is gone"


async def test_a_run_that_does_not_wait_has_no_expected_start(world: Any, until: float) -> None:
    answer = await explained(world, "first")
    assert (answer["expected_start"], answer["expected_words"], answer["victims"]) == (None, None, [])


async def test_the_queue_page_tells_all_of_them(world: Any, until: float, enter: Enter) -> None:
    await enter("second", 100)
    await enter("third")
    await enter("fourth")
    scope = Scope(world.state, Caller("viewer", "viewer", None, None, "user"), world.workspace)
    rows = (await queue.load(scope, {}))["rows"]
    assert [(row["run"], row["start"]) for row in rows] == [("second", until), ("third", until + 100), ("fourth", None)]
    assert rows[2]["start_words"] == "unknown: no time limit brings it room"


async def test_on_a_large_cluster_it_is_not_worked_out_at_every_change(
    world: Any, until: float, enter: Enter, worked_out: dict[str, Any]
) -> None:
    worked_out["took"] = 100.0
    await enter("second", 100)
    await enter("third")
    assert near((await explained(world, "third"))["expected_start"], until + 100)
    await world.client().post("/runs/second:cancel")
    assert near((await explained(world, "third"))["expected_start"], until + 100)
    assert worked_out["asked"] == [2]
    await enter("fourth", 70, priority=1)
    assert near((await explained(world, "fourth"))["expected_start"], until)
    assert worked_out["asked"] == [2, 3]


async def test_the_snapshot_is_read_once_and_then_followed(world: Any, until: float, enter: Enter) -> None:
    keeper = world.state.outlooks.of("lab-a")._keeper
    await enter("second")
    for _ in range(3):
        await explained(world, "second")
        await world.client("admin").get("/snapshot")
    assert keeper.loads == 1
