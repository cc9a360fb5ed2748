"""Events as pages, and as a stream that goes on where it was cut."""

import json
from collections.abc import AsyncIterator
from typing import Any

import httpx

BASE = "/api/o/acme/w/vision"


async def _read(answer: httpx.Response, count: int) -> list[dict[str, Any]]:
    """The next events of a stream; `id` is the one that clients send back."""
    found: list[dict[str, Any]] = []
    lines: AsyncIterator[str] = answer.aiter_lines()
    fields: dict[str, str] = {}
    async for line in lines:
        if line.startswith(":"):
            continue
        if line:
            key, _, value = line.partition(": ")
            fields[key] = value
        elif fields:
            found.append({**json.loads(fields["data"]), "sse": (fields["id"], fields["event"])})
            fields = {}
        if len(found) == count:
            return found
    raise AssertionError(f"the stream ended after {found}")


async def test_events_page_by_page(both: Any, spec: Any) -> None:
    for name in ("a", "b", "c"):
        await both.client().post("/runs", json=spec(name))
    first = (await both.client("viewer").get("/events", params={"limit": 2})).json()
    rest = (await both.client("viewer").get("/events", params={"cursor": first["next_cursor"]})).json()
    assert [event["run"] for event in first["items"] + rest["items"]] == ["a", "b", "c"]
    assert rest["next_cursor"] is None


async def test_a_stream_goes_on_where_it_was_cut(world: Any, served: httpx.AsyncClient, spec: Any) -> None:
    headers = {"Authorization": f"Bearer {world.tokens['viewer']}"}
    await world.client().post("/runs", json=spec("before"))
    async with served.stream("GET", f"{BASE}/events?follow=1", headers=headers) as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        started = answer.aiter_raw()
        assert (await anext(started)).startswith(b": following")
    async with served.stream("GET", f"{BASE}/events?follow=1", headers=headers) as answer:
        await world.client().post("/runs", json=spec("a"))
        await world.client().post("/runs/a:hold", json={"why": "lines\nof\nwords"})
        first = await _read(answer, 2)
    assert [(event["run"], event["kind"]) for event in first] == [("a", "submitted"), ("a", "hold")]
    assert first[0]["sse"] == (str(first[0]["id"]), "submitted")
    await world.client().post("/runs", json=spec("b"))
    headers["Last-Event-ID"] = first[0]["sse"][0]
    async with served.stream("GET", f"{BASE}/events?follow=1", headers=headers) as answer:
        again = await _read(answer, 2)
    assert [(event["run"], event["kind"]) for event in again] == [("a", "hold"), ("b", "submitted")]


async def test_a_stream_ends_with_its_token(world: Any, served: httpx.AsyncClient, monkeypatch: Any) -> None:
    monkeypatch.setattr("api.services.events.HEARTBEAT_SECONDS", 0.01)
    made = (await world.client("admin").post("/tokens", json={"name": "ci", "role": "viewer"})).json()
    headers = {"Authorization": f"Bearer {made['token']}"}
    async with served.stream("GET", f"{BASE}/events?follow=1", headers=headers) as answer:
        lines = answer.aiter_lines()
        assert await anext(lines) == ": following"
        await world.client("admin").delete(f"/tokens/{made['id']}")
        assert [line async for line in lines if line and not line.startswith(": still")] == []


async def test_a_busy_stream_ends_with_its_token_too(world: Any, served: httpx.AsyncClient, spec: Any) -> None:
    made = (await world.client("admin").post("/tokens", json={"name": "ci", "role": "viewer"})).json()
    headers = {"Authorization": f"Bearer {made['token']}"}
    async with served.stream("GET", f"{BASE}/events?follow=1", headers=headers) as answer:
        lines = answer.aiter_lines()
        assert await anext(lines) == ": following"
        await world.client().post("/runs", json=spec("before"))
        assert (await anext(lines), (await anext(lines))[:4]) == ("", "id: ")
        await world.client("admin").delete(f"/tokens/{made['id']}")
        await world.client().post("/runs", json=spec("after"))
        assert not [line async for line in lines if '"after"' in line]


async def test_a_bad_place_to_go_on_from(world: Any) -> None:
    answer = await world.client().get("/events?follow=1", headers={"Last-Event-ID": "x"})
    assert answer.status_code == 404
