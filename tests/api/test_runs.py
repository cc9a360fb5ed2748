"""Runs over HTTP: submitted once, found in any spelling, ordered about, deleted."""

import asyncio
import json
from datetime import datetime
from typing import Any

import pytest


async def test_a_run_is_stored_shown_and_started(both: Any, spec: Any) -> None:
    answer = await both.client().post("/runs", json=spec("ResNet-64GPU "))
    assert answer.status_code == 201, answer.text
    run = answer.json()
    assert run["metadata"]["name"] == "resnet-64gpu"
    assert (run["state"], run["cluster"], run["attempt"]) == ("Pending", "lab-a", 1)
    assert run["restarts"] == {"budget": 10, "left": 10, "next_earned_at": None}
    assert datetime.fromisoformat(run["submitted_at"]).utcoffset().total_seconds() == 0
    assert answer.headers["location"].endswith("/runs/resnet-64gpu")
    assert both.delivery.started == [run["metadata"]["uid"]]
    again = await both.client("viewer").get("/runs/RESNET-64gpu")
    assert again.json() == run
    events = (await both.client("viewer").get("/runs/resnet-64gpu/events")).json()["items"]
    assert [(event["kind"], event["actor"]) for event in events] == [("submitted", "editor")]


async def test_one_key_is_one_run(both: Any, spec: Any) -> None:
    key = {"Idempotency-Key": "k-1"}
    answers = await asyncio.gather(*(both.client().post("/runs", json=spec(), headers=key) for _ in range(4)))
    assert {answer.status_code for answer in answers} == {201}
    assert len({answer.json()["metadata"]["uid"] for answer in answers}) == 1
    assert sum("idempotent-replayed" in answer.headers for answer in answers) == 3
    other = await both.client().post("/runs", json=spec(priority=5), headers=key)
    assert (other.status_code, other.json()["code"]) == (409, "conflict")


async def test_a_live_name_is_taken(world: Any, spec: Any) -> None:
    await world.client().post("/runs", json=spec())
    answer = await world.client().post("/runs", json=spec("RESNET"))
    assert answer.status_code == 409
    assert answer.headers["content-type"] == "application/problem+json"
    assert "resnet" in answer.json()["detail"]


async def test_a_stored_run_is_accepted_while_temporal_is_away(world: Any, spec: Any) -> None:
    world.delivery.away = True
    assert (await world.client().post("/runs", json=spec())).status_code == 201
    world.delivery.away, world.delivery.slow = False, asyncio.Event()
    assert (await world.client().post("/runs", json=spec("slow"))).status_code == 201
    assert world.delivery.started == []
    world.delivery.slow.set()


async def test_every_fault_of_a_bad_spec_is_told(world: Any, spec: Any) -> None:
    bad = spec("Has.Dots", prioritty=3)
    bad["spec"]["task_template"]["requested_resources"]["gpu_requests"]["count"] = 63
    bad["metadata"]["labels"] = {f"k{i}": "v" for i in range(1000)}
    answer = await world.client().post("/runs", json=bad)
    problem = answer.json()
    assert (answer.status_code, problem["code"], problem["status"]) == (422, "bad-spec", 422)
    pointers = [fault["pointer"] for fault in problem["faults"]]
    assert pointers == [
        "/metadata/labels",
        "/metadata/name",
        "/spec/prioritty",
        "/spec/task_template/requested_resources/gpu_requests/count",
    ]
    assert "priority" in problem["faults"][2]["message"]
    assert "62 or 64" in problem["faults"][3]["message"]


@pytest.mark.parametrize(
    ("body", "status", "words"),
    [
        (b'{"metadata": {"name": "a",}}', 400, "line 1, column 27"),
        (b"", 400, "empty"),
        (b"\xff\xfe", 400, "UTF-8"),
        (b'{"a": NaN}', 400, "NaN"),
        (b'{"a": "\\ud800"}', 400, "surrogate"),
        (b'{"\\ud800": 1}', 400, "surrogate"),
        (b"[" * 100_000, 400, ""),
        (b'{"a": ' + b"9" * 5000 + b"}", 400, ""),
        (b"[]", 422, "object"),
        (b"null", 422, "object"),
        (b'{"metadata": null, "spec": 3}', 422, "object"),
    ],
)
async def test_a_body_that_is_no_submission(world: Any, body: bytes, status: int, words: str) -> None:
    answer = await world.client().post("/runs", content=body, headers={"Content-Type": "application/json"})
    assert answer.status_code == status
    assert answer.headers["content-type"] == "application/problem+json"
    assert words in answer.json()["detail"]


async def test_too_large_and_wrongly_labelled_bodies(world: Any) -> None:
    headers = {"Content-Type": "application/json"}

    async def endless() -> Any:
        while True:
            yield b" " * 65536

    stated = await world.client().post("/runs", content=b" " * (4 * 2**20 + 1), headers=headers)
    found = await world.client().post("/runs", content=endless(), headers=headers)
    assert (stated.status_code, found.status_code) == (413, 413)
    form = await world.client().post("/runs", data={"a": "b"})
    assert (form.status_code, form.json()["code"]) == (415, "wrong-content-type")


async def test_pages_follow_one_another(both: Any, spec: Any) -> None:
    for i in range(5):
        labels = {"labels": {"team": "a" if i % 2 else "b", "odd key/=": "x"}}
        await both.client().post("/runs", json=spec(f"r{i}", metadata=labels))
    names, cursor = [], None
    while True:
        params = {"limit": 2} | ({"cursor": cursor} if cursor else {})
        page = (await both.client("viewer").get("/runs", params=params)).json()
        names += [run["metadata"]["name"] for run in page["items"]]
        if (cursor := page["next_cursor"]) is None:
            break
    assert names == [f"r{i}" for i in range(5)]
    filtered = await both.client().get("/runs", params={"label": "team=a", "state": ["Pending", "Running"]})
    assert [run["metadata"]["name"] for run in filtered.json()["items"]] == ["r1", "r3"]
    everywhere = await both.client().get("/runs", params={"cluster": "LAB-A"})
    assert len(everywhere.json()["items"]) == 5
    unknown = await both.client().get("/runs", params={"cluster": "lab-b"})
    assert (unknown.status_code, unknown.json()["code"]) == (404, "not-found")


@pytest.mark.parametrize(
    "params", [{"limit": "0"}, {"limit": "x"}, {"label": "x"}, {"label": "a=\0"}, {"state": "Odd"}, {"cursor": "\0"}]
)
async def test_bad_filters(both: Any, params: dict[str, str]) -> None:
    answer = await both.client().get("/runs", params=params)
    assert answer.status_code == 422
    assert answer.headers["content-type"] == "application/problem+json"


async def test_a_cursor_that_no_list_gave_out(both: Any) -> None:
    for path in ("/runs", "/machines", "/events"):
        for cursor in ("", "?"):
            answer = await both.client().get(path, params={"cursor": cursor})
            assert (answer.status_code, answer.json()["code"]) == (404, "not-found"), path


@pytest.mark.parametrize("order", ["cancel", "preempt", "restart", "hold", "release"])
async def test_orders_may_be_repeated(world: Any, spec: Any, order: str) -> None:
    await world.client().post("/runs", json=spec())
    first = await world.client().post(f"/runs/resnet:{order}", json={"why": "maintenance"})
    second = await world.client().post(f"/runs/RESNET:{order}")
    assert (first.status_code, second.status_code) == (202, 202), first.text + second.text
    assert first.json()["held"] is (order == "hold")
    events = (await world.client().get("/runs/resnet/events")).json()["items"]
    assert [(event["kind"], event["actor"]) for event in events[1:]] == [(order, "editor")] * 2
    assert "maintenance" in events[1]["message"]
    assert len(world.delivery.delivered) == 2


async def test_deleting_frees_the_name_at_once_and_hides_what_is_final(both: Any, spec: Any) -> None:
    from astraeus.ledger import runs

    run = (await both.client().post("/runs", json=spec())).json()
    first = await both.client().delete("/runs/resnet")
    second = await both.client().delete("/runs/resnet")
    assert (first.status_code, second.status_code) == (202, 202)
    assert (await both.client().post("/runs", json=spec())).status_code == 201
    await both.client().post("/runs", json=spec("other"))
    other = (await both.client().get("/runs/other")).json()
    async with both.state.ledger.transaction() as tx:
        await runs.set_state(tx, run["metadata"]["uid"], "Cancelled", "Cancelled by editor")
        await runs.set_state(tx, other["metadata"]["uid"], "Succeeded", "All members ended well")
    assert (await both.client().post("/runs/other:cancel")).status_code == 409
    assert (await both.client().delete("/runs/other")).status_code == 204
    gone = await both.client().delete("/runs/other")
    assert (gone.status_code, gone.json()["code"]) == (404, "not-found")
    assert (await both.client().get("/runs/other")).status_code == 404


async def test_runs_of_one_name_are_told_apart_by_uid(both: Any, spec: Any) -> None:
    from astraeus.ledger import runs

    old = (await both.client().post("/runs", json=spec())).json()["metadata"]["uid"]
    await both.client().post("/runs/resnet:hold", json={"why": "the old one"})
    async with both.state.ledger.transaction() as tx:
        await runs.set_state(tx, old, "Failed", "resnet-0 exited with code 1")
    new = (await both.client().post("/runs", json=spec())).json()["metadata"]["uid"]
    await both.client().post("/runs", json=spec("other"))
    listed = (await both.client().get("/runs", params={"name": "ResNet"})).json()["items"]
    assert [run["metadata"]["uid"] for run in listed] == [old, new]
    assert (await both.client().get("/runs/resnet")).json()["metadata"]["uid"] == new
    assert (await both.client().get(f"/runs/{old.upper()}")).json()["state"] == "Failed"
    events = (await both.client().get(f"/runs/{old}/events")).json()["items"]
    assert "the old one" in events[1]["message"]
    assert {event["run_uid"] for event in events} == {old}
    assert [one["attempt"] for one in (await both.client().get(f"/runs/{old}/attempts")).json()["items"]] == [1]
    assert (await both.client().get(f"/runs/{old}/explain")).json()["reason"] == "resnet-0 exited with code 1"
    assert (await both.client().post(f"/runs/{old}:cancel")).status_code == 409
    assert (await both.client().delete(f"/runs/{old}")).status_code == 204
    assert (await both.client().get(f"/runs/{old}")).status_code == 404
    assert (await both.client().get("/runs/resnet")).json()["metadata"]["uid"] == new


async def test_an_uid_of_another_workspace_is_no_run_of_this_one(both: Any, spec: Any) -> None:
    uid = (await both.client().post("/runs", json=spec())).json()["metadata"]["uid"]
    elsewhere = f"http://test/api/o/acme/w/speech/runs/{uid}"
    assert (await both.client("stranger").get(elsewhere)).status_code == 404


@pytest.mark.parametrize("name", ["nobody", "a.b", "x" * 60, "%00", "%F0%9F%9A%80", "a:b", "%20"])
async def test_there_is_no_such_run(both: Any, name: str) -> None:
    for path in (f"/runs/{name}", f"/runs/{name}/events", f"/runs/{name}/attempts", f"/runs/{name}/explain"):
        answer = await both.client().get(path)
        assert answer.status_code == 404, path
        assert answer.headers["content-type"] == "application/problem+json"


async def test_a_plan_writes_nothing(world: Any, spec: Any, machine: Any) -> None:
    await world.sync(machine("m-1"), machine("m-2"))
    fits = (await world.client("viewer").post("/runs:plan", json=spec())).json()
    assert fits["fits"] is True
    assert (fits["network"]["network"], fits["machines"]) == ("leaf:leaf-r0-7-g0", ["m-1", "m-2"])
    large = {"requested_resources": {"gpu_requests": {"count": 64}, "machines": 8}}
    waits = (await world.client("viewer").post("/runs:plan", json=spec(task=large))).json()
    assert waits["fits"] is False
    assert "8 machines" in waits["reason"]
    assert (await world.client().get("/runs")).json()["items"] == []
    assert (await world.client().post("/runs:plan", json={})).status_code == 422


async def test_why_a_run_waits(world: Any, spec: Any) -> None:
    from astraeus.ledger import claims, runs

    await world.client().post("/runs", json=spec())
    early = (await world.client().get("/runs/resnet/explain")).json()
    assert (early["state"], early["reason"]) == ("Pending", "Waiting for the scheduler")
    async with world.state.ledger.transaction() as tx:
        row = await runs.find(tx, world.workspace.id, "resnet")
        await claims.enter(tx, row.uid, 1, "lab-a", 0, [], None)
    answer = (await world.client("viewer").get("/runs/resnet/explain")).json()
    assert answer["position"] == 1
    assert answer["blockers"]


async def test_labels_that_no_database_can_search_are_refused(world: Any, spec: Any) -> None:
    body = json.dumps(spec(metadata={"labels": {"a": "\0"}}))
    answer = await world.client().post("/runs", content=body, headers={"Content-Type": "application/json"})
    assert answer.status_code == 422
