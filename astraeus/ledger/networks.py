"""What gangs that run can expect of their network, kept true while ports get slower, go down and come back."""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import select, update

from astraeus.ledger import events
from astraeus.ledger.core import Tx
from astraeus.ledger.snapshot import read_machines
from astraeus.ledger.tables import allocation, claim, cluster, run
from astraeus.model.machine import Nic
from astraeus.model.network import Estimate, NetworkPlace, Rung
from astraeus.placement.bandwidth import rails_estimate
from astraeus.placement.types import Machine

NAMED = 3
NO_RAIL = "no rail is up on every machine"


@dataclass
class RunningGang:
    """A gang that holds machines: each member's machine and the ports it was given, in rank order.

    `row` has the claim's `id`, `run_uid`, `attempt`, `rung` and `network`, and the run's `name` and `workspace`.
    """

    row: Any
    members: list[tuple[str, list[str]]] = field(default_factory=list)


async def review(tx: Tx, cluster_name: str, machines: Collection[str]) -> list[str]:
    """Reckon again what the gangs on these machines can expect; answers the runs whose `network` changed."""
    gangs = await gangs_on(tx, cluster_name, machines)
    if not gangs:
        return []
    factors = await tx.conn.scalar(select(cluster.c.factors).where(cluster.c.name == cluster_name))
    names = {machine for gang in gangs for machine, _ in gang.members}
    fleet = {machine.name: machine for machine in await read_machines(tx, cluster_name, names)}
    changed = []
    for gang in gangs:
        place = NetworkPlace.model_validate(gang.row.network)
        now = estimate_now(gang, place, fleet, factors or {})
        if now is None or place.estimate is None or now.busbw_gbps == place.estimate.busbw_gbps:
            continue
        await _write(tx, gang.row, place.model_copy(update={"estimate": now}), place.estimate, _faults(gang, fleet))
        changed.append(gang.row.name)
    return changed


async def gangs_on(tx: Tx, cluster_name: str, machines: Collection[str]) -> list[RunningGang]:
    """Gangs with a member on one of the machines that were given RDMA ports."""
    if not machines:
        return []
    a, c = allocation.c, claim.c
    there = select(a.claim).where(a.live, a.cluster == cluster_name, a.machine.in_(machines))
    query = (
        select(c.id, c.run_uid, c.attempt, c.rung, c.network, run.c.name, run.c.workspace, a.machine, a.hcas)
        .join(a.claim.table, a.claim == c.id)
        .join(run, run.c.uid == c.run_uid)
        .where(c.state == "Granted", a.live, c.id.in_(there), c.rung.is_not(None))
        .order_by(c.id, a.rank)
    )
    found: dict[int, RunningGang] = {}
    for row in await tx.conn.execute(query):
        if row.network and row.network.get("estimate") and row.rung > Rung.NVLINK:
            found.setdefault(row.id, RunningGang(row)).members.append((row.machine, row.hcas))
    return list(found.values())


def estimate_now(
    gang: RunningGang, place: NetworkPlace, fleet: Mapping[str, Machine], factors: Mapping[str, float]
) -> Estimate | None:
    """What a gang can expect with the ports it was given, as they are; None where it was given none."""
    if not any(hcas for _, hcas in gang.members):
        return None
    words = place.estimate.words if place.estimate else place.words
    found = rails_estimate(
        Rung(gang.row.rung), rates_of(gang.members, fleet), words, factors, model_of(gang.members, fleet)
    )
    return found or Estimate(busbw_gbps=0.0, words=words, basis=NO_RAIL)


def model_of(members: Sequence[tuple[str, Sequence[str]]], fleet: Mapping[str, Machine]) -> str:
    """The GPU model of all members, nothing where they differ."""
    models = {fleet[name].gpu_model for name, _ in members if name in fleet}
    return models.pop() if len(models) == 1 else ""


def rates_of(members: Sequence[tuple[str, Sequence[str]]], fleet: Mapping[str, Machine]) -> list[float]:
    """Gb/s of the rails that members, each a machine and its ports in the order of rails, can use together.

    A rail is as fast as its slowest port; one that is down somewhere carries nothing and is left out.
    """
    rates: dict[int, list[float]] = defaultdict(list)
    for name, hcas in members:
        ports = _ports(fleet.get(name))
        for rail, hca in enumerate(hcas):
            port = ports.get(hca)
            rates[rail].append(port.gbps if port is not None and port.up else 0.0)
    return [min(seen) for seen in rates.values() if min(seen) > 0]


def _ports(machine: Machine | None) -> dict[str, Nic]:
    return {} if machine is None else {port.hca: port for port in machine.ports}


def _faults(gang: RunningGang, fleet: dict[str, Machine]) -> list[str]:
    """The ports of a gang that are down or slower than its fastest."""
    given = [(name, _ports(fleet.get(name)).get(hca), hca) for name, hcas in gang.members for hca in hcas]
    best = max((port.gbps for _, port, _ in given if port is not None and port.up), default=0.0)
    found = []
    for name, port, hca in given:
        if port is None or not port.up:
            found.append(f"{name} {hca} is down")
        elif port.gbps < best:
            found.append(f"{name} {hca} runs at {port.gbps:g} Gb/s")
    return found


async def _write(tx: Tx, row: Any, place: NetworkPlace, before: Estimate, faults: Sequence[str]) -> None:
    network = place.model_dump(mode="json")
    await tx.conn.execute(update(claim).where(claim.c.id == row.id).values(network=network))
    now = run.c.uid == row.run_uid, run.c.attempt == row.attempt, ~run.c.final
    await tx.conn.execute(update(run).where(*now).values(network=network))
    tx.announce("run", f"{row.workspace}/{row.run_uid}")
    assert place.estimate is not None
    slower = place.estimate.busbw_gbps < before.busbw_gbps
    more = f" and {len(faults) - NAMED} more" if len(faults) > NAMED else ""
    why = f": {', '.join(faults[:NAMED])}{more}" if faults else ""
    message = (
        f"The network is {'slower' if slower else 'faster'} than it was, "
        f"~{place.estimate.busbw_gbps:.0f} GB/s all-reduce after ~{before.busbw_gbps:.0f}{why}"
    )
    subject = _Run(row.run_uid, row.name)
    await events.record(tx, row.workspace, "network", "astraeus", message, subject, row.attempt)


@dataclass(frozen=True)
class _Run:
    """The run an event is about."""

    shown_uid: str
    name: str
    worker: str | None = None
