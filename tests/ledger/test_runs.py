import asyncio
from typing import Any

import pytest
from sqlalchemy import select, update
from support.scene import CLUSTER, Scene, body

from astraeus.ledger import orders, runs, tenancy
from astraeus.ledger.core import Ledger
from astraeus.ledger.tables import claim, event, run
from astraeus.model.errors import Conflict, Invalid
from astraeus.model.faults import parse_submission


@pytest.fixture
async def scene(ledger: Ledger) -> Scene:
    return await Scene.start(ledger)


async def test_a_submitted_run_is_pending_and_known(scene: Scene) -> None:
    row = await scene.submit("a", labels={"team": "x"}, priority=5, restart_budget=3)
    assert (row.state, row.reason, row.attempt, row.final) == ("Pending", "Waiting for the scheduler", 0, False)
    assert (row.priority, row.budget, row.budget_left, row.labels) == (5, 3, 3, {"team": "x"})
    assert row.spec == {"priority": 5, "restart_budget": 3, "task_template": {"command": "true"}}
    assert await scene.run(row) == row
    assert await scene.events(row) == [("submitted", "ada", "Submitted to lab-a")]
    assert runs.workflow_id(row, scene.workspace) == f"run/acme/vision/a/{row.uid}"


async def test_an_unlimited_budget_is_none(scene: Scene) -> None:
    row = await scene.submit("a", restart_budget="unlimited")
    assert (row.budget, row.budget_left) == (None, None)


async def test_the_same_key_answers_the_same_run_and_no_other_content(scene: Scene) -> None:
    row = await scene.submit("a", key="k")
    assert await scene.submit("a", key="k") == row
    with pytest.raises(Conflict, match="Idempotency-Key k was used for another submission"):
        await scene.submit("a", key="k", priority=1)
    await scene.write(update(run).values(state="Succeeded", final=True))
    assert (await scene.submit("a", key="k")).uid == row.uid
    assert len(await scene.rows(select(event))) == 1


async def test_a_key_belongs_to_its_workspace(scene: Scene) -> None:
    row = await scene.submit("a", key="k")
    async with scene.ledger.transaction() as tx:
        other = await tenancy.ensure_workspace(tx, "acme", "speech", CLUSTER)
    assert (await Scene(scene.ledger, other).submit("a", key="k")).uid != row.uid


async def test_a_live_name_is_taken_until_it_ends_or_is_deleted(scene: Scene) -> None:
    first = await scene.submit("a")
    with pytest.raises(Conflict, match="A live run is named a"):
        await scene.submit("a")
    await scene.order(first, "delete")
    second = await scene.submit("a")
    await scene.write(update(run).where(run.c.uid == second.uid).values(state="Failed", final=True))
    assert len({first.uid, second.uid, (await scene.submit("a")).uid}) == 3


async def test_of_simultaneous_submissions_one_gets_the_name(scene: Scene) -> None:
    results = await asyncio.gather(*(scene.submit("a") for _ in range(6)), return_exceptions=True)
    assert sorted(type(result).__name__ for result in results) == ["Conflict"] * 5 + ["RunRow"]


async def test_simultaneous_submissions_with_one_key_are_one_run(scene: Scene) -> None:
    results = await asyncio.gather(*(scene.submit("a", key="k") for _ in range(6)))
    assert len({result.uid for result in results}) == 1


async def test_a_name_means_the_live_run_else_the_latest_that_is_not_hidden(scene: Scene) -> None:
    async def meant(name: str = " A ") -> str | None:
        async with scene.ledger.reading() as tx:
            found = await runs.find(tx, scene.workspace.id, name)
        return None if found is None else found.uid

    assert await meant() is None
    first = await scene.submit("a")
    assert await meant() == first.uid
    await scene.order(first, "delete")
    assert await meant() == first.uid
    second = await scene.submit("a")
    await scene.write(update(run).where(run.c.uid == second.uid).values(submitted_at=0))
    assert await meant() == second.uid
    await scene.write(update(run).values(state="Cancelled", final=True))
    assert await meant() == first.uid
    await scene.order(first, "delete")
    assert await meant() == second.uid
    await scene.order(second, "delete")
    assert await meant() is None


async def listed(scene: Scene, **filters: Any) -> list[str]:
    """Names over all pages."""
    names, cursor = [], None
    async with scene.ledger.reading() as tx:
        while True:
            rows, cursor = await runs.list_runs(tx, scene.workspace.id, cursor=cursor, **filters)
            names += [row.name for row in rows]
            if cursor is None:
                return names


async def test_pages_hold_every_run_once_in_a_stable_order(scene: Scene) -> None:
    for i in range(7):
        await scene.submit(f"r{i}")
    everything = await listed(scene)
    assert everything == [f"r{i}" for i in range(7)]
    assert await listed(scene, limit=3) == everything
    assert await listed(scene, limit=7) == everything
    await scene.write(update(run).values(submitted_at=1.1))
    assert sorted(await listed(scene, limit=2)) == everything


async def test_lists_are_filtered(scene: Scene) -> None:
    odd = {'a"b.c$[0]': "1", "team": "x'; --"}
    await scene.submit("a", labels={"team": "x"})
    await scene.submit("b", labels=odd)
    hidden = await scene.submit("c", labels={"team": "x"})
    await scene.write(update(run).where(run.c.name == "b").values(state="Running"))
    await scene.write(update(run).where(run.c.name == "c").values(state="Failed", final=True))
    assert await listed(scene, labels={"team": "x"}) == ["a", "c"]
    assert await listed(scene, labels=odd) == ["b"]
    assert await listed(scene, labels={"team": "x", "no": "x"}) == []
    assert await listed(scene, states=["Running", "Failed"]) == ["b", "c"]
    assert await listed(scene, states=["Running"], cluster=CLUSTER) == ["b"]
    assert await listed(scene, cluster="lab-b") == []
    await scene.order(hidden, "delete")
    assert await listed(scene) == ["a", "b"]


@pytest.mark.parametrize("cursor", ["x", "", "é", "bnVsbA", "WzEsMl0", "W05hTiwiYSJd", "WzFlOTk5LCJhIl0", "AAAA" * 9])
async def test_a_bad_cursor_says_what_to_do(scene: Scene, cursor: str) -> None:
    async with scene.ledger.reading() as tx:
        with pytest.raises(Invalid, match="leave it out to start from the first page"):
            await runs.list_runs(tx, scene.workspace.id, cursor=cursor)


async def test_a_final_state_never_changes(scene: Scene) -> None:
    row = await scene.submit("a")
    states = ["Succeeded", "Failed", "Cancelled"] * 3

    async def end(state: str) -> bool:
        async with scene.ledger.transaction() as tx:
            return await runs.set_state(tx, row.uid, state, f"said {state}")

    written = await asyncio.gather(*map(end, states))
    assert written.count(True) == 1
    present = await scene.run(row)
    assert present.state == states[written.index(True)]
    assert not await end("Pending")
    assert await scene.run(row) == present
    assert [kind for kind, _, _ in await scene.events(row)].count("state") == 1


async def test_a_state_of_another_attempt_is_not_shown(scene: Scene) -> None:
    row = await scene.waiting("a")
    async with scene.ledger.transaction() as tx:
        assert not await runs.set_state(tx, row.uid, "Running", "old", attempt=2)
        assert await runs.set_state(tx, row.uid, "Running", "Running on one machine", attempt=1, started_at=tx.now)
    present = await scene.run(row)
    assert (present.state, present.started_at) == ("Running", tx.now)
    assert not await nobody_is_set(scene)


async def nobody_is_set(scene: Scene) -> bool:
    async with scene.ledger.transaction() as tx:
        return await runs.set_state(tx, "nobody", "Running", "r")


INTENTS = [("cancel", "cancelled"), ("delete", "cancelled"), ("preempt", "preempted"), ("restart", "restarted")]


@pytest.mark.parametrize(("kind", "intent"), INTENTS)
async def test_an_order_against_a_placed_run_records_the_intent_first(scene: Scene, kind: str, intent: str) -> None:
    row = await scene.placed("a", [("m-0", 1)])
    ids = await scene.order(row, kind, "maintenance")
    found = await scene.claim(row)
    assert (found.intent, found.intent_by, found.intent_why) == (intent, "grace", "maintenance")
    message = (await scene.messages(row))[-1]
    assert ids == [message.id]
    assert message.kind == kind
    fence = 1 if kind in ("preempt", "restart") else None
    assert message.body == {"attempt": fence, "who": "grace", "why": "maintenance"}
    kind_said, actor, said = (await scene.events(row))[-1]
    assert (kind_said, actor) == (kind, "grace")
    assert said.endswith("asked for: maintenance")


@pytest.mark.parametrize("end", [{"failure": "exited"}, {"succeeded_at": 5.0}, {"intent": "drained"}])
@pytest.mark.parametrize("kind", ["cancel", "preempt"])
async def test_an_order_after_the_end_is_decided_changes_no_cause(scene: Scene, kind: str, end: dict[str, Any]) -> None:
    row = await scene.placed("a", [("m-0", 1)])
    await scene.write(update(claim).values(**end))
    before = await scene.claim(row)
    assert len(await scene.order(row, kind)) == 1
    assert await scene.claim(row) == before


async def test_waiting_claims_get_no_intent(scene: Scene) -> None:
    row = await scene.waiting("a")
    for kind in ("cancel", "cancel", "preempt", "restart", "delete", "delete"):
        await scene.order(row, kind)
    assert (await scene.claim(row)).intent is None
    assert [message.kind for message in await scene.messages(row)].count("delete") == 2


async def test_hold_and_release_show_at_once(scene: Scene) -> None:
    row = await scene.waiting("a")
    for kind, held in [("hold", True), ("hold", True), ("cancel", True), ("release", False), ("release", False)]:
        await scene.order(row, kind)
        assert (await scene.run(row)).held is held


async def test_a_run_that_ended_is_not_held_any_more(scene: Scene) -> None:
    row = await scene.waiting("a")
    await scene.order(row, "hold")
    await scene.release(row, state="Cancelled")
    assert not (await scene.run(row)).held


async def test_releasing_a_held_run_lets_the_scheduler_look_again(scene: Scene) -> None:
    row = await scene.waiting("a")
    await scene.order(row, "hold")
    assert (await scene.snapshot()).asks == ()
    async with scene.ledger.transaction() as tx:
        await orders.order(tx, row, "release", "grace")
    assert ("cluster", CLUSTER) in tx.changes
    assert len((await scene.snapshot()).asks) == 1


async def test_words_with_a_nul_can_be_stored(scene: Scene) -> None:
    row = await scene.placed("a", [("m-0", 1)])
    await scene.order(row, "preempt", "be\0cause")
    assert await scene.release(row, detail="a-0 could not start: \0", reason="Gang restart: \0")
    assert (await scene.run(row)).reason == "Gang restart: \N{REPLACEMENT CHARACTER}"
    await scene.enter(row, 2, headline="Gang restart: \0")


@pytest.mark.parametrize("kind", ["cancel", "preempt", "hold", "release", "restart"])
async def test_a_final_run_takes_no_order_but_delete(scene: Scene, kind: str) -> None:
    row = await scene.submit("a")
    await scene.write(update(run).values(state="Failed", final=True, reason="r"))
    with pytest.raises(Conflict, match="a is Failed, which is final"):
        await scene.order(row, kind)
    assert await scene.order(row, "delete") == []
    hidden = (await scene.run(row)).hidden_at
    assert hidden is not None
    assert await scene.order(row, "delete") == []
    present = await scene.run(row)
    assert (present.hidden_at, present.state, present.reason) == (hidden, "Failed", "r")


async def test_an_unknown_order_names_the_known_ones(scene: Scene) -> None:
    with pytest.raises(Invalid, match="cancel, delete, preempt"):
        await scene.order(await scene.submit("a"), "explode")


async def test_orders_and_ends_at_once_leave_one_story(scene: Scene) -> None:
    row = await scene.placed("a", [("m-0", 1)])
    orders = [scene.order(row, kind) for kind in ("cancel", "delete", "preempt", "restart", "hold")]
    results = await asyncio.gather(scene.release(row, state="Succeeded"), *orders, return_exceptions=True)
    assert results[0] is True
    assert all(isinstance(result, list | Conflict) for result in results[1:])
    present = await scene.run(row)
    assert present.state == "Succeeded"
    assert present.hidden_at is not None
    await scene.check()


async def test_runs_without_a_workflow_are_found_until_it_is_started(scene: Scene) -> None:
    rows = [await scene.submit(name) for name in ("a", "b", "c")]
    async with scene.ledger.transaction() as tx:
        assert [row.name for row in await runs.without_workflow(tx, 2)] == ["a", "b"]
        await runs.mark_workflow_started(tx, rows[0].uid)
        await runs.mark_workflow_started(tx, rows[0].uid)
        assert [row.name for row in await runs.without_workflow(tx, 2)] == ["b", "c"]


async def test_content_is_the_same_whatever_the_order_of_its_fields(scene: Scene) -> None:
    raw = body("a", priority=1, preemptible=False)
    turned = {"spec": dict(reversed(raw["spec"].items())), "metadata": {"name": " A "}}
    async with scene.ledger.transaction() as tx:
        first, new = await runs.submit(tx, scene.workspace, CLUSTER, parse_submission(raw), raw, "ada", "k")
        second, again = await runs.submit(tx, scene.workspace, CLUSTER, parse_submission(turned), turned, "bo", "k")
    assert (new, again) == (True, False)
    assert first == second
