"""Quotas and fair shares of workspaces on a cluster, and what they have used, with a half-life.

A row's `used` is what the attempts that are over have used, decayed up to `used_at`; what a workspace holds now is
worked out from its holdings. So nothing is written while runs run, and a workspace has one row for a cluster.
"""

from collections import defaultdict
from collections.abc import Mapping
from typing import TypedDict, Unpack

from sqlalchemy import ColumnElement, and_, exists, func, select, update

from astraeus.ledger.core import Tx
from astraeus.ledger.tables import allotment, claim, cluster, run, workspace
from astraeus.ledger.upsert import insert_or_keep
from astraeus.model.errors import Invalid, NotFound
from astraeus.placement.shares import accrued, decayed
from astraeus.placement.types import Allotment

QUOTA_MOST = 2**31 - 1
SHARE_LEAST, SHARE_MOST = 1e-6, 1e6
HALF_LIFE_LEAST = 60.0
PATH = (workspace.c.organisation + "/" + workspace.c.name).label("path")


class Due(TypedDict, total=False):
    """What a workspace is due; None takes it away, and what is absent stays as it is."""

    gpu_quota: int | None
    share: float | None


async def allot(tx: Tx, workspace_id: str, cluster_name: str, **due: Unpack[Due]) -> None:
    """Set what a workspace is due on a cluster. Raises Invalid, NotFound.

    A pass that began before can write nothing from here on, so a quota holds from the moment it is set. What runs
    beyond it goes on.
    """
    gpu_quota, share = due.get("gpu_quota"), due.get("share")
    if gpu_quota is not None and not 0 <= gpu_quota <= QUOTA_MOST:
        raise Invalid(f"A quota is a number of GPUs, from 0 to {QUOTA_MOST}, not {gpu_quota}")
    if share is not None and not SHARE_LEAST <= share <= SHARE_MOST:
        raise Invalid(f"A share is a weight from {SHARE_LEAST:g} to {SHARE_MOST:g}, not {share:g}")
    fenced = update(cluster).where(cluster.c.name == cluster_name).values(pass_term=cluster.c.pass_term + 1)
    if not (await tx.conn.execute(fenced)).rowcount:
        raise NotFound(f"There is no cluster {cluster_name}")
    await _ensure(tx, workspace_id, cluster_name)
    if due:
        await tx.conn.execute(update(allotment).where(_is(workspace_id, cluster_name)).values(**due))
    _announce(tx, cluster_name)


async def set_half_life(tx: Tx, cluster_name: str, seconds: float) -> None:
    """Set how long use takes to count half on a cluster. Raises Invalid, NotFound."""
    if not seconds >= HALF_LIFE_LEAST:
        raise Invalid(f"A half-life is at least {HALF_LIFE_LEAST:g} seconds, not {seconds:g}")
    changed = update(cluster).where(cluster.c.name == cluster_name).values(half_life_seconds=seconds)
    if not (await tx.conn.execute(changed)).rowcount:
        raise NotFound(f"There is no cluster {cluster_name}")
    _announce(tx, cluster_name)


async def read_allotments(tx: Tx, cluster_name: str) -> Mapping[str, Allotment]:
    """What the workspaces are due on a cluster, by path; none where nobody has a quota or a share."""
    query = (
        select(PATH, allotment.c.gpu_quota, allotment.c.share, allotment.c.used, allotment.c.used_at)
        .join(workspace, workspace.c.id == allotment.c.workspace)
        .where(allotment.c.cluster == cluster_name)
        .order_by(allotment.c.workspace)
    )
    found = {path: Allotment(*due) for path, *due in await tx.conn.execute(query)}
    on = any(due.gpu_quota is not None or due.share is not None for due in found.values())
    return found if on else {}


async def charge(tx: Tx, cluster_name: str, freed: Mapping[int, int]) -> None:
    """Count what claims have used that held so many GPUs until now, on a cluster where anybody has a share.

    It is for who gives room back, and the last lock that is taken.
    """
    shared = exists().where(allotment.c.cluster == cluster_name, allotment.c.share.is_not(None))
    query = select(cluster.c.half_life_seconds).where(cluster.c.name == cluster_name, shared)
    half_life = (await tx.conn.execute(query)).scalar_one_or_none()
    if half_life is None:
        return
    since = func.coalesce(claim.c.gates_opened_at, claim.c.granted_at)
    held = select(claim.c.id, run.c.workspace, since).join(run, run.c.uid == claim.c.run_uid)
    used: dict[str, float] = defaultdict(float)
    for id, owner, began in await tx.conn.execute(held.where(claim.c.id.in_(list(freed)))):
        used[owner] += float(accrued(freed[id], tx.now - began, half_life))
    for owner in sorted(used):
        await _add(tx, owner, cluster_name, used[owner], half_life)
    tx.announce("allotment", cluster_name)


async def _add(tx: Tx, workspace_id: str, cluster_name: str, gpu_seconds: float, half_life: float) -> None:
    await _ensure(tx, workspace_id, cluster_name)
    mine = _is(workspace_id, cluster_name)
    row = (await tx.conn.execute(select(allotment).where(mine).with_for_update())).one()
    # Another transaction that began later may have been counted already.
    now = max(tx.now, row.used_at)
    used = decayed(row.used, now - row.used_at, half_life) + gpu_seconds
    await tx.conn.execute(update(allotment).where(mine).values(used=used, used_at=now))


async def _ensure(tx: Tx, workspace_id: str, cluster_name: str) -> None:
    row = {"workspace": workspace_id, "cluster": cluster_name, "used_at": tx.now}
    await tx.conn.execute(insert_or_keep(tx, allotment, row))


def _is(workspace_id: str, cluster_name: str) -> ColumnElement[bool]:
    return and_(allotment.c.workspace == workspace_id, allotment.c.cluster == cluster_name)


def _announce(tx: Tx, cluster_name: str) -> None:
    tx.announce("allotment", cluster_name)
    tx.announce("cluster", cluster_name)
