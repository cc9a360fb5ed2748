"""The courier and the watch around it: nobody waits for the message or the run of another."""

import asyncio
from collections.abc import Iterable
from typing import Any, cast

import pytest
from sqlalchemy import update
from support.scene import CLUSTER, Scene
from temporalio.client import Client
from temporalio.common import WorkflowIDReusePolicy
from temporalio.service import RPCError, RPCStatusCode
from temporalio.testing import ActivityEnvironment

from activities import machines
from activities.delivery import Courier
from activities.machines import Watch
from astraeus.ledger import leases, outbox
from astraeus.ledger.core import Ledger, Tx
from astraeus.ledger.outbox import OutboxRow
from astraeus.ledger.runs import RunRow
from astraeus.ledger.tables import run
from astraeus.ledger.tenancy import Workspace
from workflows.contracts import RunLife

PATIENCE = 10.0


class Server:
    """A Temporal that has only the workflows in `there`, and notes what is signalled and started."""

    def __init__(self, *there: str) -> None:
        self.there = set(there)
        self.signalled: list[str] = []
        self.started: list[tuple[RunLife, Any]] = []

    def get_workflow_handle(self, id: str) -> "Handle":
        return Handle(self, id)

    async def start_workflow(self, workflow: Any, life: Any, *, id: str, id_reuse_policy: Any = None, **_: Any) -> None:
        self.there.add(id)
        self.started.append((life, id_reuse_policy))


class Handle:
    def __init__(self, server: Server, id: str) -> None:
        self.server, self.id = server, id

    async def signal(self, *args: Any, **_: Any) -> None:
        if self.id not in self.server.there:
            raise RPCError("workflow not found", RPCStatusCode.NOT_FOUND, b"")
        self.server.signalled.append(self.id)


def courier_of(ledger: Ledger, server: Server) -> Courier:
    return Courier(ledger, cast(Client, server), "q")


async def pending(scene: Scene) -> list[OutboxRow]:
    async with scene.ledger.reading() as tx:
        return await outbox.pending(tx)


async def spoil(scene: Scene, row: RunRow) -> None:
    """Let the run's specification be one that this version does not read."""
    await scene.write(update(run).where(run.c.uid == row.uid).values(spec={"task_template": 5}))


async def test_a_run_that_cannot_be_told_keeps_nobody_else_from_hearing(sqlite_ledger: Ledger) -> None:
    scene = await Scene.start(sqlite_ledger)
    bad, good = await scene.submit("bad"), await scene.submit("good")
    await spoil(scene, bad)
    for row in (bad, good):
        await scene.order(row, "cancel")
    rows = await pending(scene)
    assert await courier_of(sqlite_ledger, Server(rows[1].workflow_id)).send(rows) == 1
    assert [row.run_uid for row in await pending(scene)] == [bad.uid]


async def test_a_run_that_cannot_be_started_keeps_nobody_else_from_starting(
    sqlite_ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machines, "LEFT_OVER_SECONDS", -1.0)
    scene = await Scene.start(sqlite_ledger)
    bad, good = await scene.submit("bad"), await scene.submit("good")
    await spoil(scene, bad)
    server = Server()
    await Watch(sqlite_ledger, courier_of(sqlite_ledger, server)).carry(CLUSTER)
    assert [life.run_uid for life, _ in server.started] == [good.uid]


async def test_a_run_whose_workflow_was_ended_from_outside_gets_another_that_goes_on(sqlite_ledger: Ledger) -> None:
    scene = await Scene.start(sqlite_ledger)
    row = await scene.placed("a", [("m-0", 0xFF)])
    await scene.release(row)
    await scene.enter(row, 2)
    await scene.order(row, "cancel")
    rows = await pending(scene)
    server = Server()
    courier = courier_of(sqlite_ledger, server)
    assert await courier.send(rows) == 0
    [(life, policy)] = server.started
    assert (life.attempt, life.charged) == (1, 1)
    assert policy == WorkflowIDReusePolicy.ALLOW_DUPLICATE_FAILED_ONLY
    assert await courier.send(rows) == len(rows)


class Stuck:
    """A courier that never comes to an end."""

    async def after(self, tx: Tx) -> None:
        return

    async def send(self, rows: Iterable[OutboxRow]) -> int:
        await asyncio.Event().wait()
        return 0


class Faulty:
    """A courier whose first try ends in a fault that nobody thought of."""

    def __init__(self) -> None:
        self.tries = 0
        self.carried: asyncio.Queue[str] = asyncio.Queue()

    async def after(self, tx: Tx) -> None:
        return

    async def send(self, rows: Iterable[OutboxRow]) -> int:
        self.tries += 1
        if self.tries == 1:
            raise ZeroDivisionError
        for row in rows:
            self.carried.put_nowait(row.signal)
        return 0

    async def start(self, row: RunRow, workspace: Workspace) -> None:
        return


async def test_the_courier_outlives_a_fault_that_nobody_thought_of(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(machines, "TICK_SECONDS", 0.01)
    monkeypatch.setattr(machines, "LEFT_OVER_SECONDS", -1.0)
    scene = await Scene.start(ledger)
    await scene.order(await scene.submit("a"), "cancel")
    courier = Faulty()
    watch = Watch(ledger, cast(Courier, courier))
    watching = asyncio.create_task(ActivityEnvironment().run(watch.watch_cluster, CLUSTER))
    async with asyncio.timeout(PATIENCE):
        assert await courier.carried.get() == "cancel"
    assert "ZeroDivisionError" in caplog.text
    async with scene.ledger.transaction() as tx:
        await leases.resume_watch(tx, CLUSTER)
    await watching


async def test_leases_do_not_wait_for_the_courier(sqlite_ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machines, "TICK_SECONDS", 0.01)
    scene = await Scene.start(sqlite_ledger)
    beats: asyncio.Queue[None] = asyncio.Queue()
    env = ActivityEnvironment()
    env.on_heartbeat = lambda *_: beats.put_nowait(None)
    watch = Watch(sqlite_ledger, cast(Courier, Stuck()))
    watching = asyncio.create_task(env.run(watch.watch_cluster, CLUSTER))
    for _ in range(3):
        await beats.get()
    async with scene.ledger.transaction() as tx:
        await leases.resume_watch(tx, CLUSTER)
    await watching
