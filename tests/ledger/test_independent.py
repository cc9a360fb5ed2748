"""Runs that start `Independent`, in the ledger: workers with lives of their own, one run that users see."""

import asyncio
from typing import Any

import pytest
from support.fleet import report
from support.scene import CLUSTER, WHOLE, Scene, grant, wait

from astraeus.ledger import desired, gangs, independent, leases, reports, runs, views
from astraeus.ledger.cipher import Cipher
from astraeus.ledger.core import Ledger
from astraeus.ledger.keeper import SnapshotKeeper
from astraeus.ledger.runs import RunRow
from astraeus.model.agent import WorkerReport
from astraeus.model.errors import Conflict
from astraeus.model.independent import worker_uid
from astraeus.model.messages import AttemptRef
from astraeus.placement.types import Plan, Snapshot, Wait


def task(workers: int, gpus: int = 8, **more: Any) -> dict[str, Any]:
    """So many workers, each of a machine with so many GPUs."""
    return {"requested_resources": {"machines": workers, "gpu_requests": {"count": workers * gpus}}, **more}


async def submitted(
    scene: Scene, workers: int = 3, rule: str | None = None, name: str = "sweep", **more: Any
) -> RunRow:
    spec = {"on_failure": rule} if rule else {}
    return await scene.submit(name, task=task(workers, **more), start="Independent", **spec)


async def worker(scene: Scene, row: RunRow, rank: int) -> RunRow:
    async with scene.ledger.reading() as tx:
        found = await runs.by_uid(tx, worker_uid(row.uid, rank))
    assert found is not None
    return found


async def running(scene: Scene, row: RunRow, *ranks: int, attempt: int = 1) -> list[RunRow]:
    """Workers that run, each on the machine of its rank."""
    found = [await worker(scene, row, rank) for rank in ranks]
    for one in found:
        await scene.enter(one, attempt)
    asks = {ask.run_uid: ask for ask in (await scene.snapshot()).asks}
    grants = tuple(grant(asks[one.uid], [(f"m-{one.rank}", WHOLE)]) for one in found)
    assert len(await scene.commit(Plan(grants=grants))) == len(found)
    for one in found:
        ref = AttemptRef(run_uid=one.uid, attempt=attempt)
        async with scene.ledger.transaction() as tx:
            await gangs.start(tx, ref)
        async with scene.ledger.transaction() as tx:
            await reports.record(tx, CLUSTER, [reported(one, attempt, "arrived")])
        async with scene.ledger.transaction() as tx:
            assert await gangs.open_gates(tx, ref, budget_left=10)
        async with scene.ledger.transaction() as tx:
            await reports.record(tx, CLUSTER, [reported(one, attempt, "running")])
    return found


def reported(one: RunRow, attempt: int, state: str) -> WorkerReport:
    """What the agent of a worker's machine says of it."""
    assert one.rank is not None
    return report(one, one.rank, f"m-{one.rank}", state, attempt=attempt)


async def shown(scene: Scene, row: RunRow) -> tuple[str, str]:
    now = await scene.run(row)
    return now.state, now.reason


async def test_a_run_is_one_and_each_of_its_workers_waits_alone(ledger: Ledger) -> None:
    scene = await Scene.start(ledger)
    row = await submitted(scene)
    assert await shown(scene, row) == ("Pending", "3 workers waiting: Waiting for the scheduler")
    async with ledger.reading() as tx:
        assert [found.uid for found in (await runs.list_runs(tx, row.workspace))[0]] == [row.uid]
        found = await runs.find(tx, row.workspace, "sweep")
        unstarted = [one.worker for one in await runs.without_workflow(tx)]
    assert found is not None
    assert found.uid == row.uid
    assert unstarted == ["sweep-0", "sweep-1", "sweep-2"]
    for rank in (2, 0, 1):
        await scene.enter(await worker(scene, row, rank))
    asks = (await scene.snapshot()).asks
    assert [ask.run_uid for ask in asks] == [worker_uid(row.uid, rank) for rank in range(3)]
    assert [ask.run_name for ask in asks] == ["sweep"] * 3
    assert {(ask.resources.machines, ask.resources.gpu_requests.count) for ask in asks} == {(1, 8)}
    assert len({id(ask.resources) for ask in asks}) == 1
    with pytest.raises(Conflict, match="A live run is named sweep"):
        await submitted(scene)


async def test_a_worker_has_its_rank_and_its_part_of_the_specification(ledger: Ledger) -> None:
    scene = await Scene.start(ledger)
    row = await submitted(scene, 2, configs=[{"mounts": ["/a"], "value": "x" * 1000}], env={"A": "1"})
    (second,) = await running(scene, row, 1)
    assert "configs" not in second.spec["task_template"]
    async with ledger.reading() as tx:
        _, (wanted,) = await desired.desired(tx, CLUSTER, ["m-1"])
        ref = AttemptRef(run_uid=second.uid, attempt=1)
        launch = await desired.launch(tx, Cipher.from_text(Cipher.generate_text()), ref)
    assert (wanted.name, wanted.rank) == ("sweep-1", 1)
    assert (wanted.env["RANK"], wanted.env["WORLD_SIZE"]) == ("1", "2")
    assert (wanted.env["ASTRAEUS_RUN_NAME"], wanted.env["ASTRAEUS_WORKER_NAME"]) == ("sweep", "sweep-1")
    assert (wanted.env["ASTRAEUS_GPU_COUNT"], wanted.env["MASTER_ADDR"]) == ("8", "m-1.test")
    assert (launch.env, len(launch.configs), launch.memory_bytes) == ({"A": "1"}, 1, 1024)


async def test_the_run_stands_as_its_workers_do(ledger: Ledger) -> None:
    scene = await Scene.start(ledger, machines=3)
    row = await submitted(scene)
    await running(scene, row, 0)
    assert await shown(scene, row) == ("Running", "1 of 3 workers running; 2 waiting: Waiting for the scheduler")
    others = await running(scene, row, 1, 2)
    assert await shown(scene, row) == ("Running", "3 workers running")
    await scene.release(others[0], reason="Restart: sweep-1 exited with code 1; restarting in 10 s")
    state, reason = await shown(scene, row)
    assert (state, reason.partition(":")[0]) == ("Running", "2 of 3 workers running; 1 waiting")
    for rank in (0, 2):
        ended = await worker(scene, row, rank)
        await scene.release(ended, state="Succeeded", charged=False, reason="The worker exited with code 0")
    assert (await shown(scene, row))[0] == "Pending"
    await running(scene, row, 1, attempt=2)
    assert (await scene.run(row)).attempt == 2
    await scene.release(others[0], 2, state="Succeeded", charged=False, reason="The worker exited with code 0")
    assert await shown(scene, row) == ("Succeeded", "All 3 workers exited with code 0")
    assert (await scene.run(row)).final
    await scene.check()


async def test_workers_attempts_and_events_are_told_with_the_run(ledger: Ledger) -> None:
    scene = await Scene.start(ledger)
    row = await submitted(scene, 2)
    (first,) = await running(scene, row, 0)
    await scene.release(first, budget_left=9)
    async with ledger.reading() as tx:
        (view,) = await views.run_views(tx, [await scene.run(row)])
        attempts = await views.attempt_views(tx, row.uid)
    assert [(one.name, one.machine, one.attempt, one.state) for one in view.workers] == [
        ("sweep-0", "m-0", 1, "Exited"),
        ("sweep-1", None, 0, "Waiting"),
    ]
    assert view.workers[1].reason == "Waiting for the scheduler"
    assert (view.restarts.left, view.restarts.budget, view.network) == (9, 10, None)
    assert [(one.worker, one.attempt, one.machines, one.charged) for one in attempts] == [("sweep-0", 1, ["m-0"], True)]
    kinds = [kind for kind, _, _ in await scene.events(row)]
    assert kinds[0] == "submitted"
    assert {"placed", "state", "attempt_ended"} <= set(kinds)
    assert await scene.events(first) == []


async def test_a_loss_is_of_the_worker_whose_machine_it_was(ledger: Ledger) -> None:
    scene = await Scene.start(ledger, heard_at=0.0)
    row = await submitted(scene, 2)
    first, second = await running(scene, row, 0, 1)
    async with ledger.transaction() as tx:
        assert await leases.declare_lost(tx, CLUSTER, ["m-1"], "ada") == ["m-1"]
    assert [one.kind for one in await scene.messages(second)] == ["placed", "arrived", "machine_lost", "gone"]
    assert (await scene.claim(second)).failure_detail == "sweep-1 lost its machine"
    assert [one.kind for one in await scene.messages(first)] == ["placed", "arrived"]


@pytest.mark.parametrize("kind", ["cancel", "delete", "preempt", "restart", "hold"])
async def test_an_order_goes_to_every_worker_that_has_not_ended(ledger: Ledger, kind: str) -> None:
    scene = await Scene.start(ledger)
    row = await submitted(scene)
    first, second = await running(scene, row, 0, 1)
    await scene.release(first, state="Succeeded", charged=False, reason="The worker exited with code 0")
    sent = await scene.order(row, kind, "enough")
    assert len(sent) == 2
    assert kind not in [one.kind for one in await scene.messages(first)]
    (told,) = [one for one in await scene.messages(second) if one.kind == kind]
    assert told.body["attempt"] == (1 if kind in ("preempt", "restart") else None)
    claim = await scene.claim(second)
    wanted = {"cancel": "cancelled", "delete": "cancelled", "preempt": "preempted", "restart": "restarted"}
    assert (claim.intent, claim.intent_why) == (wanted.get(kind), "enough" if kind in wanted else None)
    assert [event for event, _, _ in await scene.events(row)].count(kind) == 1


async def test_held_workers_are_not_placed(ledger: Ledger) -> None:
    scene = await Scene.start(ledger)
    row = await submitted(scene, 2)
    await scene.enter(await worker(scene, row, 0))
    keeper = SnapshotKeeper(CLUSTER)
    for kind, asks in (("hold", 0), ("release", 1), ("delete", 0)):
        async with ledger.reading() as tx:
            await keeper.current(tx)
        await scene.order(row, kind)
        async with ledger.reading() as tx:
            assert len((await keeper.current(tx)).asks) == asks
        assert len((await scene.snapshot()).asks) == asks


async def test_a_deleted_run_frees_its_name_and_is_hidden_at_its_end(ledger: Ledger) -> None:
    scene = await Scene.start(ledger)
    row = await submitted(scene, 2)
    await scene.order(row, "delete")
    assert (await submitted(scene, 1)).uid != row.uid
    for rank in range(2):
        async with ledger.transaction() as tx:
            await runs.set_state(tx, worker_uid(row.uid, rank), "Cancelled", "Cancelled by grace")
    ended = await scene.run(row)
    assert (ended.state, ended.reason, ended.hidden_at is not None) == ("Cancelled", "Cancelled by grace", True)


async def test_restart_job_starts_the_others_again_free(ledger: Ledger) -> None:
    scene = await Scene.start(ledger, machines=3)
    row = await submitted(scene, 4, "RestartJob")
    first, second, third = await running(scene, row, 0, 1, 2)
    await scene.release(third, state="Succeeded", charged=False, reason="The worker exited with code 0")
    await scene.release(first, detail="sweep-0 exited with code 1")
    (told,) = [one for one in await scene.messages(second) if one.kind == "restart"]
    assert told.body == {"attempt": 1, "who": "the failure of sweep-0", "why": "sweep-0 exited with code 1"}
    assert (await scene.claim(second)).intent == "restarted"
    waiting = await worker(scene, row, 3)
    assert not await scene.messages(waiting)
    assert "restart" not in [one.kind for one in await scene.messages(third)]


@pytest.mark.parametrize("rule", ["Fail", "RestartJob"])
async def test_a_worker_failed_for_good_stops_the_others(ledger: Ledger, rule: str) -> None:
    scene = await Scene.start(ledger)
    row = await submitted(scene, 3, rule)
    first, second = await running(scene, row, 0, 1)
    reason = "sweep-0 exited with code 1; on_failure is Fail"
    await scene.release(first, state="Failed", reason=reason)
    waiting = await worker(scene, row, 2)
    for other in (second, waiting):
        assert [one.kind for one in await scene.messages(other)][-1] == "cancel"
    assert (await scene.claim(second)).intent == "cancelled"
    await scene.release(second, state="Cancelled", charged=False, reason="Cancelled by the failure of sweep-0")
    async with ledger.transaction() as tx:
        await runs.set_state(tx, waiting.uid, "Cancelled", "Cancelled by the failure of sweep-0")
    assert await shown(scene, row) == ("Failed", reason)


async def test_a_worker_that_restarts_alone_fails_alone(ledger: Ledger) -> None:
    scene = await Scene.start(ledger)
    row = await submitted(scene, 2)
    first, second = await running(scene, row, 0, 1)
    reason = "sweep-0 exited with code 1: restart budget (10) spent"
    await scene.release(first, state="Failed", reason=reason, budget_left=0)
    assert await shown(scene, row) == ("Running", "1 of 2 workers running; 1 failed")
    assert [one.kind for one in await scene.messages(second)] == ["placed", "arrived"]
    await scene.release(second, state="Succeeded", charged=False, reason="The worker exited with code 0")
    assert await shown(scene, row) == ("Failed", f"1 of 2 workers failed: {reason}")


async def test_workers_that_end_at_once_leave_the_run_right(ledger: Ledger) -> None:
    scene = await Scene.start(ledger, machines=4)
    row = await submitted(scene, 4)
    ended = await running(scene, row, 0, 1, 2, 3)
    await asyncio.gather(
        *(scene.release(one, state="Succeeded", charged=False, reason="The worker exited with code 0") for one in ended)
    )
    assert await shown(scene, row) == ("Succeeded", "All 4 workers exited with code 0")


async def test_failures_orders_and_passes_at_once_wait_for_one_another_in_one_order(ledger: Ledger) -> None:
    scene = await Scene.start(ledger, machines=4)
    row = await submitted(scene, 5, "RestartJob")
    placed = await running(scene, row, 0, 1, 2, 3)
    last = await worker(scene, row, 4)
    await scene.enter(last)
    plan = Plan(waits=(no_room(await scene.snapshot(), last),))
    await asyncio.gather(
        *(scene.release(one) for one in placed),
        scene.order(row, "preempt"),
        scene.commit(plan),
        scene.order(row, "hold"),
    )
    state, reason = await shown(scene, row)
    assert state == "Pending"
    assert reason.startswith("5 workers waiting: ")
    await scene.check()


def no_room(snapshot: Snapshot, row: RunRow) -> Wait:
    return wait(next(ask for ask in snapshot.asks if ask.run_uid == row.uid), "No room")


async def test_why_a_worker_waits_is_why_its_run_does(ledger: Ledger) -> None:
    scene = await Scene.start(ledger)
    row = await submitted(scene, 2)
    first = await worker(scene, row, 0)
    await scene.enter(first)
    await scene.commit(Plan(waits=(no_room(await scene.snapshot(), first),)))
    assert await shown(scene, row) == ("Pending", "2 workers waiting: No room")


async def test_workers_of_a_run_that_is_over_are_not_ordered(ledger: Ledger) -> None:
    scene = await Scene.start(ledger)
    row = await submitted(scene, 1)
    async with ledger.transaction() as tx:
        await runs.set_state(tx, worker_uid(row.uid, 0), "Cancelled", "Cancelled by grace")
        assert await independent.lock_live(tx, row.uid) == []
    with pytest.raises(Conflict, match="final"):
        await scene.order(row, "hold")
    assert await scene.order(row, "delete") == []
