"""What open findings cost the gangs that run now; reckoned when somebody looks, so that it is never stale."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from sqlalchemy import select

from astraeus.ledger.core import Tx
from astraeus.ledger.networks import RunningGang, estimate_now, gangs_on, model_of
from astraeus.ledger.snapshot import read_machines
from astraeus.ledger.tables import cluster, run
from astraeus.model.network import NetworkPlace, Rung
from astraeus.placement.faultcost import Fault, FaultCost, Gang, GangCosts
from astraeus.placement.types import Machine


async def fault_costs(tx: Tx, cluster_name: str, faults: Sequence[Fault]) -> list[list[FaultCost]]:
    """For each fault what it costs which runs, the run that loses most first."""
    running = await gangs_on(tx, cluster_name, {name for fault in faults for name in fault.machines})
    gangs = [GangCosts(gang) for gang in await _standing(tx, cluster_name, running)]
    on: dict[str, list[GangCosts]] = {}
    for gang in gangs:
        for name in gang.names:
            on.setdefault(name, []).append(gang)
    return [_of(fault, on) for fault in faults]


def _of(fault: Fault, on: Mapping[str, Sequence[GangCosts]]) -> list[FaultCost]:
    there = dict.fromkeys(gang for name in fault.machines for gang in on.get(name, ()))
    found = [cost for gang in there if (cost := gang.of(fault)) is not None]
    return sorted(found, key=lambda cost: (cost.now.busbw_gbps - cost.without.busbw_gbps, cost.run))


async def _standing(tx: Tx, cluster_name: str, running: Collection[RunningGang]) -> list[Gang]:
    """The gangs as the reckoning wants them, with the estimate that their ports give now."""
    if not running:
        return []
    factors = await tx.conn.scalar(select(cluster.c.factors).where(cluster.c.name == cluster_name)) or {}
    names = {name for gang in running for name, _ in gang.members}
    fleet = {machine.name: machine for machine in await read_machines(tx, cluster_name, names)}
    least = await _least(tx, {gang.row.run_uid for gang in running})
    found = (_gang(gang, fleet, factors, least.get(gang.row.run_uid, 0.0)) for gang in running)
    return [gang for gang in found if gang is not None]


def _gang(gang: RunningGang, fleet: Mapping[str, Machine], factors: Mapping[str, float], least: float) -> Gang | None:
    now = estimate_now(gang, NetworkPlace.model_validate(gang.row.network), fleet, factors)
    if now is None:
        return None
    members = [(fleet[name], hcas) for name, hcas in gang.members if name in fleet]
    return Gang(gang.row.name, Rung(gang.row.rung), now, members, least, factors, model_of(gang.members, fleet))


async def _least(tx: Tx, uids: Iterable[str]) -> dict[str, float]:
    """The Gb/s that each run wants of a port."""
    rows: Any = await tx.conn.execute(select(run.c.uid, run.c.spec).where(run.c.uid.in_(list(uids))))
    return {
        uid: float(spec.get("requested_resources", {}).get("network", {}).get("min_gbps") or 0.0) for uid, spec in rows
    }
