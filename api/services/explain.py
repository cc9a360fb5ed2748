"""Why a run is where it is, and what would happen to a specification now."""

import asyncio
from datetime import UTC, datetime
from typing import Any

from pydantic import BaseModel, Field

from api.auth import Scope
from api.services.checks import check
from api.services.runs import known_cluster, row_named
from astraeus.ledger import views
from astraeus.ledger.runs import RunRow
from astraeus.ledger.snapshot import load_snapshot
from astraeus.model.faults import parse_submission
from astraeus.model.network import NetworkPlace
from astraeus.model.run import RunState, RunView
from astraeus.placement import explain as planner
from astraeus.placement.types import Grant, Snapshot, Wait

UNKNOWN = "unknown"
EXPECTED_START = "While it would wait: the time by which time limits free its room, `unknown` where they do not tell."


class PlanView(BaseModel):
    """What would happen now: a place, or why it would wait and all blockers."""

    cluster: str
    fits: bool = Field(description="Whether it would be placed at once.")
    reason: str
    rung: str | None = None
    network: NetworkPlace | None = None
    machines: list[str] = []
    gpus_per_worker: int | None = None
    position: int | None = Field(default=None, description="Its place in the queue, from 1, where it would wait.")
    blockers: list[str] = []
    victims: list[str] = Field(default=[], description="Runs that would be preempted for it.")
    expected_start: str | None = Field(default=None, description=EXPECTED_START)


class Explanation(BaseModel):
    """A run's state and reason and, while it waits for room, all blockers and its place in the queue."""

    name: str
    cluster: str
    state: RunState
    reason: str
    attempt: int
    held: bool
    network: NetworkPlace | None = None
    waits_because: str | None = None
    blockers: list[str] = []
    position: int | None = None
    expected_start: str | None = Field(default=None, description=EXPECTED_START)


async def plan(scope: Scope, raw: Any, cluster: str | None) -> PlanView:
    """What the next pass would do with this specification; writes nothing. Raises `BadSpec`."""
    spec = parse_submission(raw).spec
    async with scope.state.ledger.reading() as tx:
        cluster = await known_cluster(tx, scope, cluster)
        await check(tx, scope.workspace.id, spec)
        snapshot = await load_snapshot(tx, cluster)
    resources = spec.task_template.requested_resources
    answer = await asyncio.to_thread(planner.what_if, snapshot, resources, spec.priority, tx.now)
    return _granted(cluster, answer) if isinstance(answer, Grant) else _waits(cluster, answer)


def _granted(cluster: str, grant: Grant) -> PlanView:
    return PlanView(
        cluster=cluster,
        fits=True,
        reason=f"Can start now on {grant.place.words} ({grant.place.network})",
        rung=grant.rung.name.lower(),
        network=grant.place,
        machines=[member.machine for member in grant.members],
        gpus_per_worker=grant.members[0].gpu_mask.bit_count(),
    )


def _waits(cluster: str, wait: Wait) -> PlanView:
    return PlanView(
        cluster=cluster,
        fits=False,
        reason=wait.reason,
        position=wait.position or None,
        blockers=list(wait.blockers),
        victims=list(wait.victims),
        expected_start=_start(wait),
    )


def _start(wait: Wait) -> str:
    if wait.starts_by is None:
        return UNKNOWN
    return datetime.fromtimestamp(wait.starts_by, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


async def explain(scope: Scope, name: str) -> Explanation:
    """Why a run is where it is. Raises `NotFound`."""
    async with scope.state.ledger.reading() as tx:
        row = await row_named(tx, scope, name)
        view = (await views.run_views(tx, [row]))[0]
        snapshot = await load_snapshot(tx, row.cluster) if row.state == "Pending" else None
    wait = await asyncio.to_thread(_wait, snapshot, row, tx.now) if snapshot else None
    return _explanation(view, wait)


def _wait(snapshot: Snapshot, row: RunRow, now: float) -> Wait | None:
    ask = next((ask for ask in snapshot.asks if ask.run_uid == row.uid), None)
    return planner.why(snapshot, ask, now) if ask else None


def _explanation(view: RunView, wait: Wait | None) -> Explanation:
    return Explanation(
        name=view.metadata["name"],
        cluster=view.cluster,
        state=view.state,
        reason=view.reason,
        attempt=view.attempt,
        held=view.held,
        network=view.network,
        waits_because=wait.reason if wait and wait.reason != view.reason else None,
        blockers=list(wait.blockers) if wait else [],
        position=wait.position or None if wait else None,
        expected_start=_start(wait) if wait and wait.blockers else None,
    )
