"""Every cluster is watched and has a scheduler, whenever it was made and whatever became of its workflows."""

import asyncio
import os
import signal
import sysconfig
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, cast

import pytest
from sqlalchemy import select
from temporalio.client import Client, WorkflowHandle
from temporalio.service import RPCError, RPCStatusCode
from temporalio.testing import WorkflowEnvironment

from astraeus.ledger import tenancy
from astraeus.ledger.cipher import Cipher
from astraeus.ledger.core import Ledger, Tx
from astraeus.ledger.tables import cluster
from astraeus.model.errors import Away
from worker import clusters
from worker.clusters import clusters_kept
from worker.config import Settings
from worker.main import serve

PATIENCE = 20.0
GLANCE = 0.02


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clusters, "LOOK_SECONDS", GLANCE)


async def make(ledger: Ledger, name: str) -> None:
    async with ledger.transaction() as tx:
        await tenancy.ensure_cluster(tx, name)


async def watches(ledger: Ledger, name: str) -> int:
    """How many watches the cluster has had."""
    async with ledger.reading() as tx:
        return int(await tx.conn.scalar(select(cluster.c.watch_term).where(cluster.c.name == name)) or 0)


@pytest.fixture
async def temporal(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Client]:
    server = os.path.join(sysconfig.get_path("scripts"), "temporal")
    async with await WorkflowEnvironment.start_local(dev_server_existing_path=server) as env:
        monkeypatch.setenv("TEMPORAL_ADDRESS", env.client.service_client.config.target_host)
        yield env.client


async def until(seen: Callable[[], Awaitable[bool]]) -> None:
    """Nothing tells the outside of a watch that began, so it is looked for."""
    async with asyncio.timeout(PATIENCE):
        while True:
            if await seen():
                return
            await asyncio.sleep(GLANCE)


@pytest.fixture
async def serving(
    ledger: Ledger, ledger_url: str, temporal: Client, tmp_path: Path
) -> AsyncIterator[asyncio.Task[None]]:
    """A worker process's main task, on a ledger with one cluster; SIGTERM ends it."""
    await make(ledger, "lab-a")
    keys = tmp_path / "keys"
    keys.write_text(Cipher.generate_text())
    serving = asyncio.create_task(serve(Settings(ledger_url=ledger_url, keys_file=keys)))
    await until(lambda: has_had(ledger, "lab-a", 1))
    yield serving
    if not serving.done():
        signal.raise_signal(signal.SIGTERM)
        await asyncio.wait_for(serving, PATIENCE)


async def has_had(ledger: Ledger, name: str, number: int) -> bool:
    return await watches(ledger, name) >= number


async def other_run(handle: WorkflowHandle[Any, Any], ended: str) -> bool:
    return (await handle.describe()).run_id != ended


async def test_a_cluster_made_while_the_process_runs_is_watched(ledger: Ledger, serving: asyncio.Task[None]) -> None:
    await make(ledger, "lab-b")
    await until(lambda: has_had(ledger, "lab-b", 1))
    assert await watches(ledger, "lab-a") == 1
    signal.raise_signal(signal.SIGTERM)
    await asyncio.wait_for(serving, PATIENCE)


@pytest.mark.usefixtures("serving")
async def test_what_was_ended_from_outside_is_started_again(ledger: Ledger, temporal: Client) -> None:
    for kind in ("scheduler", "cluster"):
        handle = temporal.get_workflow_handle(f"{kind}/lab-a")
        ended = (await handle.describe()).run_id
        await handle.terminate()
        await until(partial(other_run, handle, ended))
    await until(lambda: has_had(ledger, "lab-a", 2))


@dataclass
class Server:
    """A Temporal that answers with these faults first, and always about `refused`; notes what is asked and started."""

    faults: list[Exception] = field(default_factory=list)
    refused: str | None = None
    asked: asyncio.Queue[str] = field(default_factory=asyncio.Queue)
    started: list[str] = field(default_factory=list)

    def get_workflow_handle(self, id: str) -> "Handle":
        return Handle(self, id)

    async def start_workflow(self, workflow: Any, cluster: str, *, id: str, **_: Any) -> None:
        self.started.append(id)


@dataclass
class Handle:
    server: Server
    id: str
    close_time: datetime | None = None

    async def describe(self, **_: Any) -> "Handle":
        self.server.asked.put_nowait(self.id)
        if self.server.faults:
            raise self.server.faults.pop(0)
        if self.id == self.server.refused:
            raise RPCError("refused", RPCStatusCode.PERMISSION_DENIED, b"")
        if self.id not in self.server.started:
            raise RPCError("workflow not found", RPCStatusCode.NOT_FOUND, b"")
        return self


async def rounds(server: Server, number: int) -> None:
    """Wait until the last of a cluster's workflows was asked for so many times."""
    async with asyncio.timeout(PATIENCE):
        while number:
            number -= await server.asked.get() == "cluster/lab-a"


async def test_what_is_there_is_not_started_again(sqlite_ledger: Ledger) -> None:
    await make(sqlite_ledger, "lab-a")
    server = Server()
    async with clusters_kept(cast(Client, server), sqlite_ledger, "q"):
        await rounds(server, 5)
    assert server.started == ["scheduler/lab-a", "cluster/lab-a"]


async def test_an_outage_of_temporal_is_survived_and_told_once(
    sqlite_ledger: Ledger, caplog: pytest.LogCaptureFixture
) -> None:
    await make(sqlite_ledger, "lab-a")
    server = Server([RPCError("away", RPCStatusCode.UNAVAILABLE, b"")] * 5)
    async with clusters_kept(cast(Client, server), sqlite_ledger, "q"):
        await rounds(server, 2)
    assert len(server.started) == len(clusters.KEPT)
    assert [record.getMessage() for record in caplog.records if record.levelname == "WARNING"] == [
        "not every cluster is looked after for now: away"
    ]


async def test_one_cluster_that_cannot_be_looked_after_keeps_no_other_from_it(sqlite_ledger: Ledger) -> None:
    for name in ("lab-0", "lab-a"):
        await make(sqlite_ledger, name)
    server = Server(refused="scheduler/lab-0")
    async with clusters_kept(cast(Client, server), sqlite_ledger, "q"):
        await rounds(server, 2)
    assert server.started == ["scheduler/lab-a", "cluster/lab-a"]


class Unsteady(Ledger):
    """A ledger that is away at first."""

    away = 5

    @asynccontextmanager
    async def reading(self) -> AsyncIterator[Tx]:
        if self.away:
            self.away -= 1
            raise Away("no answer")
        async with super().reading() as tx:
            yield tx


async def test_an_outage_of_the_ledger_is_survived_and_told_once(
    ledger_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    ledger = Unsteady(ledger_url)
    await make(ledger, "lab-a")
    async with clusters_kept(cast(Client, server := Server()), ledger, "q"):
        await rounds(server, 2)
    await ledger.close()
    assert server.started == ["scheduler/lab-a", "cluster/lab-a"]
    assert [record.getMessage() for record in caplog.records if record.levelname == "WARNING"] == [
        "not every cluster is looked after for now: no answer"
    ]
