"""Machines: health, who holds them, who took them out of work and why."""

import asyncio
from typing import Any

from sqlalchemy import func, select

from api.auth import Scope
from api.console.chart import colour, tiles
from api.console.view import Action, Do, Params, Values, View, model
from api.services import fleet
from api.services.fleet import MachineOrder
from api.services.orders import MachineOrderInput
from api.services.runs import known_cluster
from astraeus.ledger.core import Tx
from astraeus.ledger.tables import allocation, claim, machine, run
from astraeus.model.machine import MachineView
from astraeus.placement.types import Snapshot

HISTORY = 50


async def load(scope: Scope, params: Params) -> Values:
    """Every machine of one cluster, in short: from the planner's snapshot, which costs the least for thousands."""
    wanted = str(params["only"]) if params.get("only") else None
    async with scope.state.ledger.reading() as tx:
        cluster = await known_cluster(tx, scope, wanted)
        snapshot = await scope.state.outlooks.of(cluster).snapshot(tx)
        words = select(*machine.c["name", "cordoned", "drain_reason", "drained_by"]).where(
            machine.c.cluster == cluster, machine.c.cordoned
        )
        out = {row["name"]: dict(row) for row in (await tx.conn.execute(words)).mappings()}
    return {
        "rows": await asyncio.to_thread(_rows, snapshot, out),
        "cluster": cluster,
        "clusters": [one.name for one in (await fleet.clusters(scope)).items],
    }


def _rows(snapshot: Snapshot, out: dict[str, Values]) -> list[Values]:
    shown = tiles(snapshot)
    rows = []
    for one in snapshot.machines:
        name, health, gpus, free, runs, _, rack, model = shown[one.name]
        words = out.get(name, {})
        ports = sum(not port.up for port in one.ports)
        rows.append(
            {
                "name": name,
                "cluster": snapshot.cluster,
                "health": health,
                "cordoned": name in out,
                "why": words.get("drain_reason"),
                "by": words.get("drained_by"),
                "model": model,
                "gpus": gpus,
                "free": free,
                "faults": one.broken.bit_count() + one.doubtful.bit_count() + ports,
                "leaf": one.leaf,
                "rack": rack,
                "runs": runs,
            }
        )
    return rows


async def load_one(scope: Scope, params: Params) -> Values:
    """One machine with its ports, labels, and the attempts that ran here."""
    view = await fleet.get(scope, params["machine"], params["cluster"])
    async with scope.state.ledger.reading() as tx:
        there = (machine.c.cluster == view.cluster) & (machine.c.name == view.name)
        since = (await tx.conn.execute(select(machine.c.state_since).where(there))).scalar_one()
        now, history = await _runs(tx, scope, view)
    shown = view.model_dump(mode="json", exclude={"heard_seconds_ago"}) | {
        "health": colour(view.state.lower(), view.cordoned, view.runs),
        "why": view.drain_reason,
        "by": view.drained_by,
        "free": view.free_gpus if view.state == "Ready" and not view.cordoned else 0,
    }
    return {"machine": shown, "since": since, "history": history, "now": now}


async def _runs(tx: Tx, scope: Scope, view: MachineView) -> tuple[list[Values], list[Values]]:
    """Who holds something of the machine now, and the attempts that ran there; workers by themselves as their run."""
    uid = func.coalesce(run.c.parent, run.c.uid).label("uid")
    who = (uid, run.c.name, (run.c.workspace == scope.workspace.id).label("ours"))
    placed = run.join(claim, claim.c.run_uid == run.c.uid).join(allocation, allocation.c.claim == claim.c.id)
    here = (allocation.c.cluster == view.cluster) & (allocation.c.machine == view.name)
    now = select(*who).select_from(placed).where(here, allocation.c.live).order_by(run.c.name).distinct()
    attempts = (
        select(*who, *claim.c["attempt", "granted_at", "released_at", "cause", "detail"])
        .select_from(placed)
        .where(here)
        .order_by(claim.c.granted_at.desc())
        .limit(HISTORY)
    )
    holders, history = [[dict(row) for row in (await tx.conn.execute(q)).mappings()] for q in (now, attempts)]
    return holders, history


def _order(kind: MachineOrder) -> Do:
    async def give(scope: Scope, params: Params, values: Values) -> Any:
        order = model(MachineOrderInput, {"reason": values.get("why") or None})
        name, cluster = values.get("name") or params.get("machine"), values.get("cluster") or params.get("cluster")
        view = await fleet.order(scope, str(name), kind, order.reason, str(cluster) if cluster else None)
        return view.name

    return give


KINDS: tuple[MachineOrder, ...] = ("drain", "cordon", "return")
ORDERS: dict[str, Action] = {kind: Action("admin", _order(kind)) for kind in KINDS}


def _topics(_: Scope, __: Params) -> tuple[str, ...]:
    return ("machine", "cluster")


VIEW = View("machines", "Machines", load, _topics, ORDERS)
ONE = View("machine", "Machine", load_one, _topics, ORDERS)
