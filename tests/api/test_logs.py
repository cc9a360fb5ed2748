"""Logs: from an agent's upload to a reader, byte for byte, at the reader's pace."""

import asyncio
import os
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from api.relay import ReaderGone, Relay
from astraeus.ledger import claims
from astraeus.model.errors import Away, NotSignedIn
from astraeus.model.messages import AttemptRef

BASE = "/api/o/acme/w/vision"
MACHINES = tuple({"name": name, "boot_id": "b-1", "live": []} for name in ("m-1", "m-2"))


class Reader:
    """Reads a log through a real server, while the test plays the agent."""

    def __init__(self, world: Any, http: httpx.AsyncClient, path: str = "/runs/resnet/logs/resnet-1") -> None:
        self.world, self.http, self.path = world, http, path
        self.headers = {"Authorization": f"Bearer {world.tokens['viewer']}"}

    def request(self, query: str = "") -> httpx.Request:
        return self.http.build_request("GET", f"{BASE}{self.path}{query}", headers=self.headers)

    async def ask(self, query: str = "") -> tuple[asyncio.Task[httpx.Response], dict[str, Any]]:
        """Begin to read; the pending answer, and the request that an agent got."""
        request = self.request(query)
        seen = (await self.world.sync(*MACHINES))["version"]
        told = asyncio.create_task(self.world.sync(*MACHINES, seen=seen, wait_seconds=30))
        answer = asyncio.create_task(self.http.send(request, stream=True))
        (log,) = (await told)["logs"]
        return answer, log

    async def upload(self, log: dict[str, Any], content: bytes | AsyncIterator[bytes]) -> httpx.Response:
        """Send a log as its agent does."""
        headers = {"Authorization": f"Bearer {self.world.tokens['machine']}"}
        url = f"{log['reply_to']}/agent/v1/logs/{log['id']}"
        return await self.http.post(url, content=content, headers=headers)


@pytest.fixture
async def reader(world: Any, served: httpx.AsyncClient, placed: Any) -> Reader:
    """A reader of a placed run's log."""
    await placed(world)
    return Reader(world, served)


async def test_every_byte_arrives(reader: Reader) -> None:
    content = os.urandom(3_000_000) + b"\xf0\x9f"
    answer, log = await reader.ask("?tail=5&follow=1")
    assert (log["rank"], log["attempt"], log["tail"], log["follow"]) == (1, 1, 5, True)
    sent, got = await asyncio.gather(reader.upload(log, content), answer)
    assert got.headers["content-type"] == "application/octet-stream"
    assert await got.aread() == content
    assert sent.status_code == 204
    again = await reader.upload(log, b"x")
    assert (again.status_code, again.json()["code"]) == (404, "not-found")


async def test_a_log_ends_with_its_readers_token(reader: Reader) -> None:
    made = (await reader.world.client("admin").post("/tokens", json={"name": "ci", "role": "viewer"})).json()
    reader.headers = {"Authorization": f"Bearer {made['token']}"}
    revoked = asyncio.Event()

    async def lines() -> AsyncIterator[bytes]:
        yield b"before"
        await revoked.wait()
        while True:
            yield b"after"

    answer, log = await reader.ask("?follow=1")
    upload = asyncio.create_task(reader.upload(log, lines()))
    chunks = (await answer).aiter_raw()
    assert await anext(chunks) == b"before"
    await reader.world.client("admin").delete(f"/tokens/{made['id']}")
    revoked.set()
    with pytest.raises(httpx.RemoteProtocolError):
        await anext(chunks)
    await asyncio.gather(upload, return_exceptions=True)
    assert reader.world.state.relays.count == 0


async def test_a_silent_log_ends_with_its_readers_token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("api.relay.ASKED_SECONDS", 0.01)
    answers = [True, True, False]

    async def may_read() -> bool:
        return answers.pop(0)

    with pytest.raises(NotSignedIn):
        await anext(Relay("c").read(may_read))
    assert answers == []


async def test_between_two_attempts_the_log_is_that_of_the_last(reader: Reader) -> None:
    world = reader.world
    uid = (await world.client().get("/runs/resnet")).json()["metadata"]["uid"]
    async with world.state.ledger.transaction() as tx:
        await claims.release(
            tx,
            AttemptRef(run_uid=uid, attempt=1),
            state="Pending",
            reason="x",
            cause="preempted",
            detail="x",
            charged=False,
            budget_left=10,
        )
        await claims.enter(tx, uid, 2, "lab-a", 0)
    answer, log = await reader.ask("?follow=1")
    assert (log["attempt"], log["rank"]) == (1, 1)
    await asyncio.gather(reader.upload(log, b"of the first attempt"), answer)
    assert await answer.result().aread() == b"of the first attempt"


async def test_an_empty_log_is_an_empty_answer(reader: Reader) -> None:
    answer, log = await reader.ask()
    _, got = await asyncio.gather(reader.upload(log, b""), answer)
    assert (got.status_code, await got.aread()) == (200, b"")


async def test_the_upload_ends_when_the_reader_leaves(reader: Reader) -> None:
    sent = 0

    async def endless() -> AsyncIterator[bytes]:
        nonlocal sent
        while True:
            sent += 65536
            yield bytes(65536)

    answer, log = await reader.ask("?follow=true")
    upload = asyncio.create_task(reader.upload(log, endless()))
    got = await answer
    chunks = got.aiter_raw()
    assert await anext(chunks)
    await got.aclose()
    (ended,) = await asyncio.gather(upload, return_exceptions=True)
    assert isinstance(ended, httpx.TransportError) or ended.status_code == 410
    assert reader.world.state.relays.count == 0
    assert sent < 64 * 2**20


async def test_a_machine_that_is_away_is_said_to_be(reader: Reader, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("api.services.logs.ANSWER_SECONDS", 0.05)
    got = await reader.http.send(reader.request())
    assert (got.status_code, got.json()["code"]) == (503, "away")
    assert "m-2" in got.json()["detail"]
    assert (await reader.world.sync(*MACHINES, seen=""))["logs"] == []


async def test_a_silent_machine_is_not_even_asked(world: Any, placed: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    await placed(world)
    monkeypatch.setattr("api.services.logs.LOST_AFTER_SECONDS", -1.0)
    answer = await world.client().get("/runs/resnet/logs/resnet-0")
    assert answer.status_code == 503
    assert (await world.sync(*MACHINES, seen=""))["logs"] == []


async def test_the_log_of_an_older_run_is_asked_for_by_its_uid(world: Any, placed: Any, spec: Any, served: Any) -> None:
    ref = await placed(world)
    async with world.state.ledger.transaction() as tx:
        await claims.release(
            tx, ref, state="Failed", reason="x", cause="exited", detail="x", charged=True, budget_left=9
        )
    assert (await world.client().post("/runs", json=spec())).status_code == 201
    for worker in ("resnet-1", f"{ref.run_uid}-1"):
        reader = Reader(world, served, f"/runs/{ref.run_uid}/logs/{worker}")
        answer, log = await reader.ask()
        assert (log["run_uid"], log["attempt"], log["rank"]) == (ref.run_uid, 1, 1)
        await asyncio.gather(reader.upload(log, b"of the old one"), answer)
        assert await answer.result().aread() == b"of the old one"


@pytest.mark.parametrize("worker", ["resnet-2", "resnet", "other-0", "resnet-99999999999999999999", "%00-0"])
async def test_there_is_no_such_worker(world: Any, placed: Any, worker: str) -> None:
    await placed(world)
    assert (await world.client().get(f"/runs/resnet/logs/{worker}")).status_code == 404
    assert (await world.client().get("/runs/resnet/logs/resnet-0?attempt=2")).status_code == 404


async def test_a_run_that_was_never_placed_has_no_logs(world: Any, spec: Any) -> None:
    await world.client().post("/runs", json=spec())
    answer = await world.client().get("/runs/resnet/logs/resnet-0")
    assert (answer.status_code, "not been placed" in answer.json()["detail"]) == (404, True)


async def test_uploads_of_other_clusters_find_nobody(world: Any) -> None:
    world.state.relays.open("r-1", "lab-b")
    answer = await world.client("machine").post("/agent/v1/logs/r-1", content=_chunks(b"x"))
    assert answer.status_code == 404
    assert answer.headers["connection"] == "close"


async def test_a_small_body_nobody_reads_does_not_cost_the_connection_or_the_answer(world: Any) -> None:
    answer = await world.client("machine").post("/agent/v1/logs/r-1", content=b"x" * 1000)
    assert answer.status_code == 404
    assert "connection" not in answer.headers


async def _chunks(*parts: bytes) -> AsyncIterator[bytes]:
    for part in parts:
        yield part


async def test_the_upload_waits_for_the_reader() -> None:
    relay, taken = Relay("c"), 0

    async def many() -> AsyncIterator[bytes]:
        nonlocal taken
        for _ in range(100):
            taken += 1
            yield b"x"

    upload = asyncio.create_task(relay.upload(many()))
    reading = relay.read()
    await anext(reading)
    for _ in range(100):
        await asyncio.sleep(0)
    assert taken == 3
    relay.close()
    with pytest.raises(ReaderGone):
        await upload


async def test_a_log_cut_short_is_no_whole_log() -> None:
    relay = Relay("c")

    async def broken() -> AsyncIterator[bytes]:
        yield b"first"
        raise ConnectionError("agent lost")

    upload = asyncio.create_task(relay.upload(broken()))
    reading = relay.read()
    assert await anext(reading) == b"first"
    with pytest.raises(Away, match="agent lost"):
        await anext(reading)
    with pytest.raises(ConnectionError):
        await upload


async def test_chunks_keep_their_order() -> None:
    relay = Relay("c")
    upload = asyncio.create_task(relay.upload(_chunks(b"a", b"", b"b", b"c")))
    assert [chunk async for chunk in relay.read()] == [b"a", b"b", b"c"]
    await upload
