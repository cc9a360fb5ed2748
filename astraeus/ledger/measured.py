"""Bandwidths that were measured: the median of a cluster, rung and GPU model replaces the factor of the estimate."""

from statistics import median

from sqlalchemy import insert, select, update

from astraeus.ledger.core import Tx
from astraeus.ledger.networks import rates_of
from astraeus.ledger.snapshot import read_machines
from astraeus.ledger.tables import allocation, claim, cluster, run, topology_measured
from astraeus.model.errors import Conflict, Invalid, NotFound
from astraeus.model.machine import Lenient
from astraeus.model.network import Rung
from astraeus.placement.bandwidth import factor_key, model_key

NVLINK_RUNGS = (Rung.MACHINE, Rung.NVLINK)
LAST = 101
"""So many of the newest measurements count."""
FACTOR_MOST = 1.25
"""In-network reduction passes the wire's own rate a little; more than this is a slip of units."""


class Measurement(Lenient):
    """A measured bus bandwidth. `value` is what estimates take: a factor of the rails' sum, or GB/s on NVLink."""

    rung: str
    gpu_model: str
    busbw_gbps: float
    rails: int | None = None
    gbps: float | None = None
    run: str | None = None
    value: float


class MeasuredView(Lenient):
    """What stands for a rung and GPU model now: the median of so many measurements."""

    rung: str
    gpu_model: str
    value: float
    measurements: int


async def add(tx: Tx, cluster_name: str, actor: str, measurement: Measurement) -> MeasuredView:
    """Keep a measurement and let the median stand for its rung and GPU model."""
    rung = Rung[measurement.rung.upper()]
    model = model_key(measurement.gpu_model)
    if not model:
        raise Invalid("gpu_model is empty; name the GPUs it was measured on, such as H100")
    await tx.conn.execute(
        insert(topology_measured).values(
            cluster=cluster_name,
            rung=measurement.rung,
            gpu_model=model,
            value=measurement.value,
            busbw_gbps=measurement.busbw_gbps,
            rails=measurement.rails,
            gbps=measurement.gbps,
            run_name=measurement.run,
            actor=actor,
            at=tx.now,
        )
    )
    m = topology_measured.c
    query = select(m.value).where(m.cluster == cluster_name, m.rung == measurement.rung, m.gpu_model == model)
    values = list(await tx.conn.scalars(query.order_by(m.id.desc()).limit(LAST)))
    row = select(cluster.c.factors).where(cluster.c.name == cluster_name).with_for_update()
    factors = dict((await tx.conn.execute(row)).scalar_one())
    factors[factor_key(rung, model)] = round(median(values), 4)
    await tx.conn.execute(update(cluster).where(cluster.c.name == cluster_name).values(factors=factors))
    tx.announce("cluster", cluster_name)
    return MeasuredView(
        rung=measurement.rung, gpu_model=model, value=round(median(values), 4), measurements=len(values)
    )


def measurement(
    rung: str, gpu_model: str, busbw_gbps: float, rails: int | None, gbps: float | None, run_name: str | None = None
) -> Measurement:
    """A measurement with what estimates take from it. Raises Invalid where that cannot be told."""
    value = busbw_gbps
    if Rung[rung.upper()] not in NVLINK_RUNGS:
        if not rails or not gbps:
            raise Invalid(f"on the rung {rung} give rails and gbps too: how many ports of which rate were used")
        value = busbw_gbps / (rails * gbps / 8)
        if value > FACTOR_MOST:
            raise Invalid(
                f"{busbw_gbps:g} GB/s is {value:.1f} times what {rails} × {gbps:g} Gb/s carry; "
                "give the bus bandwidth in GB/s"
            )
    return Measurement(
        rung=rung,
        gpu_model=gpu_model,
        busbw_gbps=busbw_gbps,
        rails=rails,
        gbps=gbps,
        run=run_name,
        value=value,
    )


async def of_run(tx: Tx, workspace_id: str, name: str, busbw_gbps: float) -> tuple[str, Measurement]:
    """The cluster and the measurement that a run took on the network it has or had."""
    query = (
        select(claim.c.id, claim.c.cluster, claim.c.rung, claim.c.network)
        .join(run, (run.c.uid == claim.c.run_uid) & (run.c.attempt == claim.c.attempt))
        .where(run.c.workspace == workspace_id, run.c.name == name, claim.c.rung.is_not(None))
        .order_by(run.c.submitted_at.desc())
        .limit(1)
    )
    row = (await tx.conn.execute(query)).one_or_none()
    if row is None:
        raise NotFound(f"There is no run {name!r} that was placed.")
    a = allocation.c
    query = select(a.machine, a.hcas).where(a.claim == row.id).order_by(a.rank)
    members = [(one.machine, one.hcas) for one in (await tx.conn.execute(query)).all()]
    fleet = {one.name: one for one in await read_machines(tx, row.cluster, {machine for machine, _ in members})}
    models = {one.gpu_model for one in fleet.values()}
    if len(models) != 1:
        raise Conflict(f"{name} is on GPUs of several models, so its bandwidth stands for none of them.")
    rates = rates_of(members, fleet)
    rung = Rung(row.rung).name.lower()
    return row.cluster, measurement(rung, models.pop(), busbw_gbps, len(rates) or None, min(rates, default=None), name)


async def views(tx: Tx, cluster_name: str) -> list[MeasuredView]:
    """What stands for each rung and GPU model."""
    m = topology_measured.c
    query = select(m.rung, m.gpu_model, m.value).where(m.cluster == cluster_name).order_by(m.id.desc())
    values: dict[tuple[str, str], list[float]] = {}
    for rung, model, value in await tx.conn.execute(query):
        kept = values.setdefault((rung, model), [])
        if len(kept) < LAST:
            kept.append(value)
    return [
        MeasuredView(rung=rung, gpu_model=model, value=round(median(kept), 4), measurements=len(kept))
        for (rung, model), kept in sorted(values.items())
    ]
