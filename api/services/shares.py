"""Quotas and fair shares of workspaces: how they stand on a cluster, and what an operator sets."""

from typing import Annotated

from pydantic import BaseModel, Field

from api.auth import Scope
from api.services.belongings import Input
from api.services.runs import known_cluster
from astraeus.ledger import shares
from astraeus.ledger.snapshot import load_snapshot
from astraeus.model.errors import NotAllowed
from astraeus.placement.planner import uses
from astraeus.placement.types import Allotment, Snapshot

OPERATORS_ONLY = (
    "Quotas and shares bind a workspace's own admins too: this needs the token of an operator, which is not limited to "
    "a workspace; `python -m worker.admin operator-token` makes one."
)


class ShareInput(Input):
    """What to change of a workspace's due on a cluster; null takes it away, what is absent stays."""

    gpu_quota: Annotated[int, Field(ge=0, le=shares.QUOTA_MOST)] | None = None
    share: Annotated[float, Field(ge=shares.SHARE_LEAST, le=shares.SHARE_MOST)] | None = None


class ShareView(BaseModel):
    """A workspace on a cluster. Use is in GPU-hours, each counting half after the cluster's half-life."""

    workspace: str
    gpu_quota: int | None = Field(default=None, description="At most so many GPUs at a time; null: no bound.")
    gpus_in_use: int
    share: float | None = Field(default=None, description="Its weight; null: none was given.")
    share_of_all: float | None = Field(default=None, description="Its weight's part of all; null: nobody has a share.")
    used_gpu_hours: float | None = None
    used_of_all: float | None = Field(default=None, description="Its use's part of all.")


class SharePage(BaseModel):
    """How the workspaces of a cluster stand, by name; `sharing`: shares order runs of equal priority."""

    cluster: str
    sharing: bool
    half_life_seconds: float
    items: list[ShareView]
    next_cursor: str | None = None


async def page(scope: Scope, cluster: str | None) -> SharePage:
    """Every workspace that is due anything on a cluster, or holds or waits for GPUs there."""
    async with scope.state.ledger.reading() as tx:
        cluster = await known_cluster(tx, scope, cluster)
        snapshot = await scope.state.outlooks.of(cluster).snapshot(tx)
    return page_of(snapshot, tx.now, scope.workspace.path)


def page_of(snapshot: Snapshot, now: float, ours: str) -> SharePage:
    """How the workspaces of a snapshot stand; the caller's own is always among them."""
    found = uses(snapshot, now)
    sharing = any(due.share is not None for due in snapshot.allotments.values())
    items = []
    for name in sorted(found.keys() | {ours}):
        due, use = snapshot.allotments.get(name, Allotment()), found.get(name)
        view = ShareView(workspace=name, gpu_quota=due.gpu_quota, gpus_in_use=use.in_use if use else 0, share=due.share)
        if sharing and use is not None:
            view.share_of_all, view.used_of_all = use.share, use.used
            view.used_gpu_hours = use.gpu_seconds / 3600
        items.append(view)
    return SharePage(
        cluster=snapshot.cluster, sharing=sharing, half_life_seconds=snapshot.half_life_seconds, items=items
    )


async def change(scope: Scope, cluster: str | None, order: ShareInput) -> ShareView:
    """Set what the workspace is due on a cluster, by an operator's word. Raises `NotAllowed`, `NotFound`."""
    if scope.caller.workspace_id is not None:
        raise NotAllowed(OPERATORS_ONLY)
    ours = scope.workspace.path
    due = order.model_dump(include=order.model_fields_set)
    async with scope.state.ledger.transaction() as tx:
        cluster = await known_cluster(tx, scope, cluster)
        await shares.allot(tx, scope.workspace.id, cluster, **due)
        snapshot = await load_snapshot(tx, cluster)
    await scope.state.deliver(tx)
    return next(view for view in page_of(snapshot, tx.now, ours).items if view.workspace == ours)
