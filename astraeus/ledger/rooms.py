"""Room on machines: the locks under which it is given, what claims hold of it, and giving it back."""

from collections import Counter
from collections.abc import Collection
from typing import Any

from sqlalchemy import BigInteger, BindParameter, Select, Subquery, case, cast, func, select, update

from astraeus.ledger import shares
from astraeus.ledger.core import Tx
from astraeus.ledger.tables import allocation, machine
from astraeus.ledger.tables import cluster as cluster_table

CPU_TRACE = 1e-6
"""Cores: less than this is nothing."""


async def give_back(tx: Tx, cluster_name: str, claim_ids: Collection[int]) -> bool:
    """Take what these claims hold off their machines, announce those, and count the use; whether they held anything.

    A second time changes nothing. The claims are locked.
    """
    if not claim_ids:
        return False
    room = room_of(claim_ids)
    on = (machine.c.cluster == cluster_name) & (machine.c.name == room.c.machine)
    names = list(await tx.conn.scalars(lock_machines(cluster_name, select(room.c.machine))))
    if not names:
        return False
    cpu_left = machine.c.used_cpu - room.c.cpu_cores
    await tx.conn.execute(
        update(machine)
        .where(on)
        .values(
            used_gpus=machine.c.used_gpus.bitwise_and(room.c.gpu_mask.bitwise_not()),
            # Sums of fractions leave a trace that must not grow with the years.
            used_cpu=case((cpu_left < CPU_TRACE, 0.0), else_=cpu_left),
            used_memory=machine.c.used_memory - room.c.memory_bytes,
        )
    )
    ended = update(allocation).where(allocation.c.claim.in_(claim_ids), allocation.c.live).values(live=False)
    freed: Counter[int] = Counter()
    for claim_id, mask in await tx.conn.execute(ended.returning(allocation.c.claim, allocation.c.gpu_mask)):
        freed[claim_id] += mask.bit_count()
    await shares.charge(tx, cluster_name, freed)
    for name in names:
        tx.announce("machine", f"{cluster_name}/{name}")
    return True


def room_of(claim_ids: Collection[int] | BindParameter[Any]) -> Subquery:
    """What the live allocations of these claims hold on each machine; masks of one machine never overlap."""
    held = allocation.c
    return (
        select(
            held.machine,
            cast(func.sum(held.gpu_mask), BigInteger).label("gpu_mask"),
            func.sum(held.cpu_cores).label("cpu_cores"),
            cast(func.sum(held.memory_bytes), BigInteger).label("memory_bytes"),
        )
        .where(held.claim.in_(claim_ids), held.live)
        .group_by(held.machine)
        .subquery("room")
    )


def lock_machines(cluster_name: str | BindParameter[str], names: Any) -> Select[tuple[str]]:
    """The query that locks machines in the order of their names, as everyone does."""
    return (
        select(machine.c.name)
        .where(machine.c.cluster == cluster_name, machine.c.name.in_(names))
        .order_by(machine.c.name)
        .with_for_update(key_share=True)
    )


def lock_cluster(name: str) -> Select[tuple[str]]:
    """The query that keeps passes over a cluster from committing; who needs it takes it before claims and machines."""
    return select(cluster_table.c.name).where(cluster_table.c.name == name).with_for_update(key_share=True)
