"""Machines: health, who holds them, who took them out of work and why."""

from typing import Any

from sqlalchemy import select

from api.auth import Scope
from api.console.pages.topology import state_of
from api.console.view import Action, Do, Params, Values, View, model
from api.services import fleet
from api.services.fleet import MACHINES_MOST, MachineOrder
from api.services.orders import MachineOrderInput
from astraeus.ledger.tables import allocation, claim, machine, run
from astraeus.model.machine import FABRIC, LEAF, RACK, MachineView

HISTORY = 50


async def load(scope: Scope, params: Params) -> Values:
    """Every machine of one cluster, in short."""
    wanted = str(params["only"]) if params.get("only") else None
    found = (await fleet.page(scope, wanted, MACHINES_MOST, None)).items
    return {
        "rows": [_row(one) for one in found],
        "cluster": found[0].cluster if found else wanted or scope.workspace.default_cluster,
        "clusters": [one.name for one in (await fleet.clusters(scope)).items],
    }


def _row(one: MachineView) -> Values:
    return {
        "name": one.name,
        "cluster": one.cluster,
        "health": state_of(one.state, one.cordoned, one.runs),
        "cordoned": one.cordoned,
        "why": one.drain_reason,
        "by": one.drained_by,
        "model": one.gpu_model,
        "gpus": one.gpus,
        "free": one.free_gpus,
        "faults": len(one.broken_gpus) + len(one.doubtful_gpus) + sum(not nic.up for nic in one.nics),
        "leaf": one.labels.get(LEAF),
        "rack": one.labels.get(RACK),
        "fabric": one.labels.get(FABRIC),
        "runs": one.runs,
    }


async def load_one(scope: Scope, params: Params) -> Values:
    """One machine with its ports, labels, and the attempts that ran here."""
    view = await fleet.get(scope, params["machine"], params["cluster"])
    async with scope.state.ledger.reading() as tx:
        there = (machine.c.cluster == view.cluster) & (machine.c.name == view.name)
        since = (await tx.conn.execute(select(machine.c.state_since).where(there))).scalar_one()
        attempts = (
            select(run.c.name, run.c.workspace, *claim.c["attempt", "granted_at", "released_at", "cause", "detail"])
            .join(claim, claim.c.run_uid == run.c.uid)
            .join(allocation, allocation.c.claim == claim.c.id)
            .where(allocation.c.cluster == view.cluster, allocation.c.machine == view.name)
            .order_by(claim.c.granted_at.desc())
            .limit(HISTORY)
        )
        history = [dict(row) for row in (await tx.conn.execute(attempts)).mappings()]
    for attempt in history:
        attempt["ours"] = attempt.pop("workspace") == scope.workspace.id
    shown = view.model_dump(mode="json", exclude={"heard_seconds_ago"})
    return {"machine": shown | _row(view), "since": since, "history": history}


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
