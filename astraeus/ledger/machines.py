"""Machines as operators see them and order them about. How machines speak is in `astraeus.ledger.hearing`."""

import base64
import binascii
from collections.abc import Collection
from typing import Any, Literal

from sqlalchemy import Select, select, update

from astraeus.ledger import gangs
from astraeus.ledger.core import Tx
from astraeus.ledger.members import lock, save
from astraeus.ledger.notices import cluster_event
from astraeus.ledger.places import OF_MACHINE, PLACE, labels_at, placed_as, ports_at
from astraeus.ledger.rooms import lock_cluster
from astraeus.ledger.tables import allocation, claim, machine, run, topology_place
from astraeus.model.errors import Invalid, NotFound
from astraeus.model.machine import MachineFacts, MachineView


async def machine_views(
    tx: Tx, cluster: str, limit: int = 100, cursor: str | None = None
) -> tuple[list[MachineView], str | None]:
    """A page of the cluster's machines by name, and the cursor of the next page (None: this is the last)."""
    query = _machines().where(machine.c.cluster == cluster).order_by(machine.c.name).limit(limit + 1)
    if cursor is not None:
        query = query.where(machine.c.name > _read_cursor(cursor))
    rows = (await tx.conn.execute(query)).mappings().all()
    shown = rows[:limit]
    holders = await _holders(tx, cluster, [row["name"] for row in shown])
    views = [_view(row, tx.now, holders.get(row["name"], [])) for row in shown]
    return views, _cursor(views[-1].name) if len(rows) > limit and views else None


async def get(tx: Tx, cluster: str, name: str) -> MachineView | None:
    """One machine, None when the cluster has no such."""
    query = _machines().where(machine.c.cluster == cluster, machine.c.name == name)
    row = (await tx.conn.execute(query)).mappings().one_or_none()
    if row is None:
        return None
    return _view(row, tx.now, (await _holders(tx, cluster, [name])).get(name, []))


def _machines() -> Select[Any]:
    return select(machine, *PLACE).outerjoin(topology_place, OF_MACHINE)


async def cordon(tx: Tx, cluster: str, name: str, actor: str, why: str | None = None) -> None:
    """Place nothing new on a machine; what runs there goes on. Raises NotFound."""
    if await _change(tx, cluster, name, cordoned=True):
        await cluster_event(tx, cluster, "cordoned", actor, f"{name} takes no new work{_because(why)}")


async def return_machine(tx: Tx, cluster: str, name: str, actor: str) -> None:
    """Take a cordoned or drained machine back into work. Raises NotFound."""
    if await _change(tx, cluster, name, cordoned=False, drain_reason=None, drained_by=None):
        await cluster_event(tx, cluster, "returned", actor, f"{name} takes work again")


async def drain(tx: Tx, cluster: str, name: str, actor: str, why: str | None = None) -> None:
    """Cordon a machine and move away what runs there, free of charge. Raises NotFound.

    An attempt whose end is decided already is left to it. A second time orders nothing new.
    """
    # No pass may place a gang here between the look and the cordon.
    await tx.conn.execute(lock_cluster(cluster))
    moved = await lock(tx, await gangs.claims_on(tx, cluster, [name]))
    changed = await _change(tx, cluster, name, cordoned=True, drain_reason=why or "", drained_by=actor)
    for gang in moved.values():
        if gang.state == "Granted" and gang.order_stop(tx.now, "drained", actor, why):
            gang.news.append(("preempt", actor, why))
    await save(tx, moved.values())
    if changed:
        await cluster_event(tx, cluster, "drained", actor, f"{name} is drained{_because(why)}")


async def _change(tx: Tx, cluster: str, name: str, **columns: Any) -> bool:
    """Write operator's columns and announce them; whether anything changed."""
    there = (machine.c.cluster == cluster) & (machine.c.name == name)
    query = select(*(machine.c[column] for column in columns)).where(there).with_for_update(key_share=True)
    row = (await tx.conn.execute(query)).mappings().one_or_none()
    if row is None:
        raise NotFound(f"There is no machine {name} in {cluster}")
    if dict(row) == columns:
        return False
    await tx.conn.execute(update(machine).where(there).values(columns))
    tx.announce("machine", f"{cluster}/{name}")
    tx.announce("cluster", cluster)
    return True


async def _holders(tx: Tx, cluster: str, names: Collection[str]) -> dict[str, list[str]]:
    """The names of the runs that hold room on each machine."""
    query = (
        select(allocation.c.machine, run.c.name)
        .join(claim, claim.c.id == allocation.c.claim)
        .join(run, run.c.uid == claim.c.run_uid)
        .where(allocation.c.live, allocation.c.cluster == cluster, allocation.c.machine.in_(names))
        .distinct()
        .order_by(allocation.c.machine, run.c.name)
    )
    holders: dict[str, list[str]] = {}
    for name, run_name in await tx.conn.execute(query):
        holders.setdefault(name, []).append(run_name)
    return holders


def _view(row: Any, now: float, runs: list[str]) -> MachineView:
    facts, placed = MachineFacts.model_validate(row["facts"]), placed_as(row["place_labels"], row["place_ports"])
    broken = sum(1 << gpu for gpu in set(facts.broken_gpus) if 0 <= gpu < row["gpus"])
    every = (1 << row["gpus"]) - 1
    drained: Literal["draining", "drained"] = "draining" if runs else "drained"
    return MachineView(
        name=row["name"],
        cluster=row["cluster"],
        state=row["state"],
        cordoned=row["cordoned"],
        drain_reason=row["drain_reason"] or None,
        drained_by=row["drained_by"],
        drain=drained if row["drained_by"] is not None else None,
        gpu_model=facts.gpu_model,
        gpus=row["gpus"],
        used_gpus=row["used_gpus"].bit_count(),
        free_gpus=(every & ~row["used_gpus"] & ~broken).bit_count(),
        doubtful_gpus=facts.doubtful_gpus,
        broken_gpus=facts.broken_gpus,
        cpu_cores=row["cpu_cores"],
        memory_bytes=row["memory_bytes"],
        labels=dict(labels_at(facts.labels, placed)),
        nics=list(ports_at(tuple(facts.nics), placed)),
        runs=runs,
        heard_seconds_ago=max(0.0, now - row["heard_at"]),
    )


def _because(why: str | None) -> str:
    return f": {why}" if why else ""


def _cursor(name: str) -> str:
    return base64.urlsafe_b64encode(name.encode()).decode().rstrip("=")


def _read_cursor(cursor: str) -> str:
    try:
        name = base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)).decode()
        if name and "\0" not in name:
            return name
    except (ValueError, binascii.Error):
        pass
    raise Invalid("cursor is not one that a list returned; leave it out to start from the first page")
