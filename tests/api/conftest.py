"""An API over a real ledger: a workspace with tokens, a client in process, and a real server for streams."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any

import httpx
import pytest
import uvicorn
from fastapi import FastAPI

from api.app import create_app
from api.state import AppState
from astraeus.ledger import claims, gangs, runs, tenancy
from astraeus.ledger.changes import ChangeHub
from astraeus.ledger.cipher import Cipher
from astraeus.ledger.commit import commit_plan
from astraeus.ledger.core import Ledger, Tx
from astraeus.ledger.runs import RunRow
from astraeus.ledger.snapshot import load_snapshot
from astraeus.ledger.tenancy import Workspace
from astraeus.model.machine import FABRIC, LEAF, SPINE
from astraeus.model.messages import AttemptRef
from astraeus.placement.planner import plan

BASE = "/api/o/acme/w/vision"
CLUSTER = "lab-a"


class Recorder:
    """The way to Temporal, kept as lists; `away` makes it fail, `slow` makes it hang until released."""

    def __init__(self) -> None:
        self.started: list[str] = []
        self.delivered: list[int] = []
        self.away = False
        self.slow: asyncio.Event | None = None

    async def after(self, tx: Tx) -> None:
        """Keep the ids of the messages."""
        await self._travel()
        self.delivered += tx.outbox

    async def start(self, row: RunRow, workspace: Workspace) -> None:
        """Keep the uid of the run."""
        await self._travel()
        self.started.append(row.uid)

    async def _travel(self) -> None:
        if self.away:
            raise ConnectionError("Temporal does not answer")
        if self.slow:
            await self.slow.wait()


@dataclass
class World:
    """One API, its ledger, and clients by role."""

    app: FastAPI
    state: AppState
    workspace: Workspace
    delivery: Recorder
    tokens: dict[str, str]
    clients: dict[str, httpx.AsyncClient] = field(default_factory=dict)

    def client(self, role: str = "editor") -> httpx.AsyncClient:
        """A client with the token of a role, at the base of the workspace; agents' at the root."""
        if role not in self.clients:
            token = self.tokens.get(role)
            self.clients[role] = httpx.AsyncClient(
                transport=httpx.ASGITransport(self.app),
                base_url="http://test" + ("" if role in ("machine", "nobody") else BASE),
                headers={"Authorization": f"Bearer {token}"} if token else {},
            )
        return self.clients[role]

    async def sync(self, *machines: dict[str, Any], **rest: Any) -> dict[str, Any]:
        """An agent's sync."""
        body = {"session": "s-1", "machines": list(machines), **rest}
        answer = await self.client("machine").post("/agent/v1/sync", json=body)
        assert answer.status_code == 200, answer.text
        result: dict[str, Any] = answer.json()
        return result


def facts(name: str, leaf: str = "leaf-r0-7-g0", gpus: int = 8) -> dict[str, Any]:
    """A machine of a sync, with its facts."""
    nics = [{"device": f"mlx5_{i}", "rail": i, "gbps": 400.0} for i in range(8)]
    labels = {LEAF: leaf, SPINE: "spine-0", FABRIC: "sm-0x0002c90300a1b2c3"}
    described = {
        "name": name,
        "boot_id": "b-1",
        "address": "127.0.0.1",
        "gpu_model": "H100",
        "gpus": gpus,
        "cpu_cores": 128.0,
        "memory_bytes": 2**41,
        "labels": labels,
        "nics": nics,
    }
    return {"name": name, "boot_id": "b-1", "facts": described, "live": []}


def submission(name: str = "resnet", **changes: Any) -> dict[str, Any]:
    """A small run."""
    task = {
        "command": "true",
        "requested_resources": {"gpu_requests": {"count": 16}, "machines": 2},
        **changes.pop("task", {}),
    }
    return {"metadata": {"name": name, **changes.pop("metadata", {})}, "spec": {"task_template": task, **changes}}


@pytest.fixture
def spec() -> Callable[..., dict[str, Any]]:
    """Makes submissions."""
    return submission


@pytest.fixture
def machine() -> Callable[..., dict[str, Any]]:
    """Makes machines of a sync."""
    return facts


async def place(world: World, name: str = "resnet") -> AttemptRef:
    """A run of two workers, granted on m-1 and m-2, with its workers asked for."""
    await world.sync(facts("m-1"), facts("m-2"))
    await world.client().post("/runs", json=submission(name))
    async with world.state.ledger.transaction() as tx:
        row = await runs.find(tx, world.workspace.id, name)
        assert row is not None
        ref = AttemptRef(run_uid=row.uid, attempt=1)
        await claims.enter(tx, row.uid, 1, CLUSTER, 0, [], None)
        term = await claims.take_pass_term(tx, CLUSTER)
        assert await commit_plan(tx, CLUSTER, term, plan(await load_snapshot(tx, CLUSTER), tx.now))
        await gangs.start(tx, ref)
    return ref


@pytest.fixture
def placed() -> Callable[..., Any]:
    """Places a run of two workers."""
    return place


async def _seed(ledger: Ledger) -> tuple[Workspace, dict[str, str]]:
    tokens: dict[str, str] = {}
    async with ledger.transaction() as tx:
        await tenancy.ensure_cluster(tx, CLUSTER)
        workspace = await tenancy.ensure_workspace(tx, "acme", "vision", CLUSTER)
        other = await tenancy.ensure_workspace(tx, "acme", "speech", CLUSTER)
        for role in ("viewer", "editor", "admin"):
            _, tokens[role] = await tenancy.create_token(
                tx, name=role, kind="user", role=role, workspace_id=workspace.id
            )
        _, tokens["stranger"] = await tenancy.create_token(
            tx, name="stranger", kind="user", role="admin", workspace_id=other.id
        )
        _, tokens["machine"] = await tenancy.create_token(
            tx, name="agents", kind="machine", role="machine", cluster=CLUSTER
        )
    return workspace, tokens


@contextlib.asynccontextmanager
async def a_world(ledger: Ledger) -> AsyncIterator[World]:
    """A world over `ledger`."""
    workspace, tokens = await _seed(ledger)
    hub, delivery = ChangeHub(ledger), Recorder()
    await hub.start()
    state = AppState(
        ledger=ledger,
        hub=hub,
        delivery=delivery,
        cipher=Cipher.from_text(Cipher.generate_text()),
        public_url="http://test",
        temporal_ui="http://temporal.test",
    )
    world = World(create_app(state), state, workspace, delivery, tokens)
    try:
        yield world
    finally:
        for client in world.clients.values():
            await client.aclose()
        await state.background.close()
        await hub.close()


@pytest.fixture
async def world(sqlite_ledger: Ledger) -> AsyncIterator[World]:
    """An API over SQLite."""
    async with a_world(sqlite_ledger) as world:
        yield world


@pytest.fixture
async def both(ledger: Ledger) -> AsyncIterator[World]:
    """An API over each kind of database."""
    async with a_world(ledger) as world:
        yield world


@contextlib.asynccontextmanager
async def a_server(world: World) -> AsyncIterator[str]:
    """A real server on loopback; its address, which is the world's `replica_url` from now on."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        base = f"http://127.0.0.1:{listening.getsockname()[1]}"
        world.state.replica_url = base
        config = uvicorn.Config(world.app, log_config=None, access_log=False, timeout_graceful_shutdown=1)
        server = uvicorn.Server(config)
        server.capture_signals = contextlib.nullcontext  # type: ignore[assignment,method-assign]
        serving = asyncio.create_task(server.serve([listening]))
        yield base
        server.should_exit = True
        await serving


@pytest.fixture
def serve() -> Callable[[World], contextlib.AbstractAsyncContextManager[str]]:
    """Puts a world behind a real server."""
    return a_server


@pytest.fixture
async def served(world: World) -> AsyncIterator[httpx.AsyncClient]:
    """A client, without a token, of a real server."""
    async with a_server(world) as base, httpx.AsyncClient(base_url=base, timeout=30) as client:
        yield client
