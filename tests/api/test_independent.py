"""Runs that start `Independent`, over HTTP: one run with its workers, whatever stands behind each of them."""

import asyncio
from typing import Any

from astraeus.ledger import claims, gangs
from astraeus.ledger.commit import commit_plan
from astraeus.ledger.snapshot import load_snapshot
from astraeus.model.independent import worker_uid
from astraeus.model.messages import AttemptRef
from astraeus.placement.planner import plan


def sweep(spec: Any, workers: int = 3, **more: Any) -> Any:
    wanted = {"gpu_requests": {"count": 8 * workers}, "machines": workers}
    return spec("sweep", task={"requested_resources": wanted}, start="Independent", **more)


async def place_first(world: Any, uid: str) -> AttemptRef:
    """The first worker alone is placed and asked for."""
    async with world.state.ledger.transaction() as tx:
        for rank in range(3):
            await claims.enter(tx, worker_uid(uid, rank), 1, "lab-a", 0, [], None)
        term = await claims.take_pass_term(tx, "lab-a")
        assert await commit_plan(tx, "lab-a", term, plan(await load_snapshot(tx, "lab-a"), tx.now))
        ref = AttemptRef(run_uid=worker_uid(uid, 0), attempt=1)
        await gangs.start(tx, ref)
    return ref


async def test_it_is_one_run_with_a_workflow_for_each_worker(both: Any, spec: Any) -> None:
    answer = await both.client().post("/runs", json=sweep(spec))
    assert answer.status_code == 201, answer.text
    run = answer.json()
    uid = run["metadata"]["uid"]
    assert (run["state"], run["reason"]) == ("Pending", "3 workers waiting: Waiting for the scheduler")
    assert [worker["name"] for worker in run["workers"]] == ["sweep-0", "sweep-1", "sweep-2"]
    assert {worker["state"] for worker in run["workers"]} == {"Waiting"}
    assert both.delivery.started == [worker_uid(uid, rank) for rank in range(3)]
    listed = (await both.client().get("/runs")).json()["items"]
    assert [one["metadata"]["uid"] for one in listed] == [uid]
    assert (await both.client().get("/runs/sweep")).json()["metadata"]["uid"] == uid


async def test_faults_are_told_before_anything_is_written(world: Any, spec: Any) -> None:
    body = sweep(spec, on_failure="RestartWorker")
    del body["spec"]["task_template"]["requested_resources"]["machines"]
    answer = await world.client().post("/runs", json=body)
    assert answer.status_code == 422
    assert [fault["pointer"] for fault in answer.json()["faults"]] == [
        "/spec/task_template/requested_resources/machines"
    ]


async def test_a_plan_says_who_could_start_and_what_the_others_wait_for(world: Any, spec: Any, machine: Any) -> None:
    await world.sync(machine("m-1"), machine("m-2"))
    some = (await world.client().post("/runs:plan", json=sweep(spec))).json()
    assert some["fits"] is False
    assert some["reason"].startswith("2 of 3 workers can start now; 1 would wait: Needs 1 machine with 8 free GPUs")
    assert sorted(some["machines"]) == ["m-1", "m-2"]
    assert some["blockers"]
    every = (await world.client().post("/runs:plan", json=sweep(spec, 2))).json()
    assert (every["fits"], every["reason"]) == (True, "2 workers can start now")


async def test_where_it_stands_is_shown_for_each_worker(both: Any, spec: Any, machine: Any) -> None:
    await both.sync(machine("m-1"))
    uid = (await both.client().post("/runs", json=sweep(spec))).json()["metadata"]["uid"]
    await place_first(both, uid)
    run = (await both.client().get("/runs/sweep")).json()
    assert run["state"] == "Starting"
    assert run["reason"].startswith("1 of 3 workers starting; 2 waiting: Needs 1 machine")
    assert [worker["machine"] for worker in run["workers"]] == ["m-1", None, None]
    explained = (await both.client().get("/runs/sweep/explain")).json()
    assert (explained["position"], explained["state"]) == (1, "Starting")
    assert explained["blockers"] == ["1 in use by sweep"]
    attempts = (await both.client().get("/runs/sweep/attempts")).json()["items"]
    assert [(one["worker"], one["attempt"], one["machines"]) for one in attempts] == [
        ("sweep-0", 1, ["m-1"]),
        ("sweep-1", 1, []),
        ("sweep-2", 1, []),
    ]
    events = (await both.client().get("/runs/sweep/events")).json()["items"]
    assert ("placed", "sweep", "sweep-0") in [(one["kind"], one["run"], one["worker"]) for one in events]


async def test_a_workers_log_is_asked_of_its_own_machine(world: Any, spec: Any, machine: Any, served: Any) -> None:
    await world.sync(machine("m-1"))
    uid = (await world.client().post("/runs", json=sweep(spec))).json()["metadata"]["uid"]
    ref = await place_first(world, uid)
    for worker, status in (("sweep-1", 404), ("sweep-9", 404), ("other-0", 404)):
        assert (await world.client().get(f"/runs/sweep/logs/{worker}")).status_code == status
    beat = {"name": "m-1", "boot_id": "b-1", "live": []}
    seen = (await world.sync(beat))["version"]
    told = asyncio.create_task(world.sync(beat, seen=seen, wait_seconds=30))
    headers = {"Authorization": f"Bearer {world.tokens['viewer']}"}
    path = "/api/o/acme/w/vision/runs/sweep/logs/sweep-0"
    answer = asyncio.create_task(served.get(path, headers=headers))
    (log,) = (await told)["logs"]
    assert (log["run_uid"], log["attempt"], log["rank"]) == (ref.run_uid, 1, 0)
    agent = {"Authorization": f"Bearer {world.tokens['machine']}"}
    await served.post(f"{log['reply_to']}/agent/v1/logs/{log['id']}", content=b"step 1\n", headers=agent)
    assert (await answer).content == b"step 1\n"


async def test_an_order_to_the_run_reaches_its_workers(world: Any, spec: Any) -> None:
    await world.client().post("/runs", json=sweep(spec))
    answer = await world.client().post("/runs/sweep:hold", json={"why": "maintenance"})
    assert (answer.status_code, answer.json()["held"]) == (202, True)
    assert len(world.delivery.delivered) == 3
    assert (await world.client().delete("/runs/sweep")).status_code == 202
    assert (await world.client().post("/runs", json=sweep(spec))).status_code == 201
