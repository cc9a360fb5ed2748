"""Machines, clusters and the network: what operators see, and their orders."""

from typing import Literal

from pydantic import BaseModel

from api.auth import Scope
from api.services.pages import cursor_of_ours
from api.services.runs import known_cluster
from api.services.topology import MACHINES_MOST as MACHINES_MOST
from api.services.topology import findings as findings
from api.services.topology import topology as topology
from astraeus.ledger import leases, machines, tenancy
from astraeus.ledger.core import Tx
from astraeus.model.errors import Conflict, NotFound
from astraeus.model.machine import MachineView
from astraeus.model.names import canonical

MachineOrder = Literal["drain", "cordon", "return", "lost"]


class MachinePage(BaseModel):
    """Some machines, by name, and where to go on."""

    items: list[MachineView]
    next_cursor: str | None = None


class ClusterView(BaseModel):
    """A cluster and how it starts workers."""

    name: str
    executor: str
    default: bool


class ClusterPage(BaseModel):
    """All clusters."""

    items: list[ClusterView]
    next_cursor: str | None = None


async def page(scope: Scope, cluster: str | None, limit: int, cursor: str | None) -> MachinePage:
    """Machines of a cluster, the workspace's own unless another is named."""
    async with scope.state.ledger.reading() as tx:
        cluster = await known_cluster(tx, scope, cluster)
        with cursor_of_ours():
            found, following = await machines.machine_views(tx, cluster, limit, cursor)
        return MachinePage(items=found, next_cursor=following)


async def get(scope: Scope, name: str, cluster: str | None) -> MachineView:
    """One machine. Raises `NotFound`."""
    async with scope.state.ledger.reading() as tx:
        cluster = await known_cluster(tx, scope, cluster)
        return await _machine(tx, cluster, name)


async def order(scope: Scope, name: str, order: MachineOrder, why: str | None, cluster: str | None) -> MachineView:
    """Take a machine out of work, with or without moving what runs there, declare it lost, or take it back."""
    actor = scope.caller.name
    async with scope.state.ledger.transaction() as tx:
        cluster = await known_cluster(tx, scope, cluster)
        name = (await _machine(tx, cluster, name)).name
        if order == "drain":
            await machines.drain(tx, cluster, name, actor, why)
        elif order == "cordon":
            await machines.cordon(tx, cluster, name, actor, why)
        elif order == "lost":
            if not await leases.declare_lost(tx, cluster, [name], actor):
                raise Conflict(f"{name} was heard a moment ago, or is down already; only a silent machine can be lost")
        else:
            await machines.return_machine(tx, cluster, name, actor)
        view = await _machine(tx, cluster, name)
    await scope.state.deliver(tx)
    return view


async def clusters(scope: Scope) -> ClusterPage:
    """Every cluster."""
    async with scope.state.ledger.reading() as tx:
        found = await tenancy.clusters(tx)
    default = scope.workspace.default_cluster
    return ClusterPage(
        items=[ClusterView(name=one.name, executor=one.executor, default=one.name == default) for one in found]
    )


async def _machine(tx: Tx, cluster: str, name: str) -> MachineView:
    wanted = canonical(name)
    found = None if "\0" in wanted else await machines.get(tx, cluster, wanted)
    if found is None:
        raise NotFound(f"There is no machine {wanted!r} in {cluster}.")
    return found
