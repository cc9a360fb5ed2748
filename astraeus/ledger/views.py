"""Runs, workers and attempts as the API shows them, with a constant number of queries for a page."""

import math
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, cast

from sqlalchemy import ColumnElement, Text, and_, func, or_, select, tuple_
from sqlalchemy import cast as as_type

from astraeus.ledger.core import Tx
from astraeus.ledger.environment import gpu_indices
from astraeus.ledger.places import OF_MACHINE, PLACE, labels_at, placed_as
from astraeus.ledger.runs import RunRow
from astraeus.ledger.snapshot import described
from astraeus.ledger.tables import allocation, claim, machine, run, topology_place, worker, workspace
from astraeus.model import words
from astraeus.model.budget import EARN_SECONDS
from astraeus.model.machine import LEAF
from astraeus.model.names import worker_name
from astraeus.model.network import NetworkPlace
from astraeus.model.run import AttemptView, Restarts, RunState, RunView, WorkerState, WorkerView

WORKING: dict[str, WorkerState] = {
    "none": "Waiting",
    "preparing": "Preparing",
    "arrived": "Ready",
    "running": "Running",
}
"""The state of a member that is meant to live, by what its agent reported last."""
ENDED: dict[str, WorkerState] = {"exited": "Exited", "failed": "Failed"}


@dataclass(frozen=True)
class _Page:
    """What the views of a page of runs are made of, by run uid."""

    now: float
    workspaces: Mapping[str, str]
    progress: Mapping[str, tuple[int, int]]
    workers: Mapping[str, list[WorkerView]]
    alone: Mapping[str, list[RunRow]]
    """The runs of workers that start one by one, in rank order, by their run's uid."""


async def run_views(tx: Tx, rows: Sequence[RunRow]) -> list[RunView]:
    """These runs as users see them, in the same order."""
    if not rows:
        return []
    alone = await _alone(tx, [row.uid for row in rows if row.is_parent])
    uids = [row.uid for row in rows] + [one.uid for some in alone.values() for one in some]
    latest = and_(claim.c.run_uid.in_(uids), claim.c.attempt == run.c.attempt)
    owners = select(workspace).where(workspace.c.id.in_({row.workspace for row in rows}))
    progress = (
        select(claim.c.run_uid, claim.c.arrived, claim.c.size)
        .join(run, run.c.uid == claim.c.run_uid)
        .where(latest, claim.c.state == "Granted", claim.c.size.is_not(None))
    )
    page = _Page(
        now=tx.now,
        workspaces={row.id: f"{row.organisation}/{row.name}" for row in await tx.conn.execute(owners)},
        progress={row.run_uid: (row.arrived, row.size) for row in await tx.conn.execute(progress)},
        workers=await _workers(tx, latest),
        alone=alone,
    )
    return [_run_view(row, page) for row in rows]


async def _alone(tx: Tx, uids: Collection[str]) -> dict[str, list[RunRow]]:
    found: dict[str, list[RunRow]] = defaultdict(list)
    if uids:
        query = select(run).where(run.c.parent.in_(uids)).order_by(run.c.parent, run.c.rank)
        for row in (await tx.conn.execute(query)).mappings():
            found[row["parent"]].append(RunRow.of(row))
    return found


async def worker_views(tx: Tx, uid: str, attempt: int) -> list[WorkerView]:
    """The members of one attempt, in rank order; none before it was placed."""
    return (await _workers(tx, and_(claim.c.run_uid == uid, claim.c.attempt == attempt))).get(uid, [])


async def last_placed(tx: Tx, uid: str) -> int | None:
    """The newest attempt that was granted machines; None where there was none yet."""
    placed = select(func.max(claim.c.attempt)).where(claim.c.run_uid == uid, claim.c.granted_at.is_not(None))
    found: int | None = (await tx.conn.execute(placed)).scalar()
    return found


async def attempt_views(tx: Tx, uid: str) -> list[AttemptView]:
    """Every attempt of a run, in order; where workers start one by one, those of all its workers."""
    every = (
        select(claim, run.c.name.label("run_name"), run.c.rank)
        .join(run, run.c.uid == claim.c.run_uid)
        .where(or_(run.c.uid == uid, run.c.parent == uid))
        .order_by(claim.c.entered_at, run.c.rank, claim.c.attempt)
    )
    claims = (await tx.conn.execute(every)).all()
    query = (
        select(allocation.c.claim, allocation.c.machine)
        .where(allocation.c.claim.in_([row.id for row in claims]))
        .order_by(allocation.c.claim, allocation.c.rank)
    )
    machines: dict[int, dict[str, None]] = defaultdict(dict)
    for row in await tx.conn.execute(query):
        machines[row.claim][row.machine] = None
    return [_attempt_view(row, machines.get(row.id, {})) for row in claims]


def _run_view(row: RunRow, page: _Page) -> RunView:
    reason, progress = row.reason, page.progress.get(row.uid)
    if row.state == "Starting" and progress is not None:
        reason = words.starting(*progress)
    return RunView(
        metadata={
            "name": row.name,
            "labels": row.labels,
            "uid": row.uid,
            "workspace": page.workspaces[row.workspace],
        },
        spec=row.spec,
        cluster=row.cluster,
        state=cast(RunState, row.state),
        reason=reason,
        network=_place(row.network),
        attempt=row.attempt,
        restarts=min((_restarts(one, page.now) for one in page.alone.get(row.uid, [row])), key=_left),
        workers=_alone_views(row, page) if row.is_parent else page.workers.get(row.uid, []),
        held=row.held,
        submitted_at=_exact(row.submitted_at),
        started_at=_time(row.started_at),
        finished_at=_time(row.finished_at),
    )


def _restarts(row: RunRow, now: float) -> Restarts:
    """The budget at this moment: what running has earned back since it was written is counted."""
    left, due = row.budget_left, row.next_earned_at if row.state == "Running" else None
    if row.budget is None or left is None:
        return Restarts(budget=row.budget, left=left)
    if due is not None and due <= now:
        earned = 1 + int((now - due) // EARN_SECONDS)
        left = min(row.budget, left + earned)
        due += earned * EARN_SECONDS
    return Restarts(budget=row.budget, left=left, next_earned_at=_time(due) if left < row.budget else None)


def _left(restarts: Restarts) -> float:
    return math.inf if restarts.left is None else restarts.left


def _alone_views(row: RunRow, page: _Page) -> list[WorkerView]:
    """Workers that start one by one, also those without a machine, each with its own reason."""
    views = []
    for one in page.alone.get(row.uid, []):
        (view,) = page.workers.get(one.uid) or [_unplaced(one)]
        views.append(view.model_copy(update={"reason": one.reason}))
    return views


def _unplaced(one: RunRow) -> WorkerView:
    name, rank = worker_name(one.name, one.rank or 0), one.rank or 0
    return WorkerView(
        name=name, rank=rank, attempt=one.attempt, state="Exited" if one.final else "Waiting", machine=None, gpus=[]
    )


def _attempt_view(row: Any, machines: Collection[str]) -> AttemptView:
    return AttemptView(
        attempt=row.attempt,
        worker=None if row.rank is None else worker_name(row.run_name, row.rank),
        network=_place(row.network),
        machines=list(machines),
        entered_at=_exact(row.entered_at),
        placed_at=_time(row.granted_at),
        running_at=_time(row.gates_opened_at),
        ended_at=_time(row.released_at),
        cause=row.cause,
        detail=row.detail,
        charged=row.charged,
    )


async def _workers(tx: Tx, which: ColumnElement[bool]) -> dict[str, list[WorkerView]]:
    """The members of the claims that `which` picks, by run uid: allocations, and what is known of their workers."""
    w, a = worker.c, allocation.c
    of_member = and_(w.run_uid == claim.c.run_uid, w.attempt == claim.c.attempt, w.rank == a.rank)
    of_machine = tuple_(machine.c.cluster, machine.c.name) == tuple_(a.cluster, a.machine)
    query = (
        select(claim.c.run_uid, claim.c.attempt, claim.c.state, run.c.name, a.rank, a.machine, a.gpu_mask)
        .add_columns(w.desired, w.observed, w.lost, w.gone, w.exit_code, w.signal, w.error)
        .add_columns(w.arrived_at, w.started_at, w.ended_at, as_type(machine.c.facts, Text).label("facts"), *PLACE)
        .select_from(claim)
        .join(run, run.c.uid == claim.c.run_uid)
        .join(allocation, a.claim == claim.c.id)
        .outerjoin(worker, of_member)
        .outerjoin(machine, of_machine)
        .outerjoin(topology_place, OF_MACHINE)
        .where(which)
        .order_by(claim.c.run_uid, a.rank)
    )
    views: dict[str, list[WorkerView]] = defaultdict(list)
    for row in await tx.conn.execute(query):
        views[row.run_uid].append(_worker_view(row))
    return views


def _worker_view(row: Any) -> WorkerView:
    return WorkerView(
        name=worker_name(row.name, row.rank),
        rank=row.rank,
        attempt=row.attempt,
        state=_worker_state(row),
        machine=row.machine,
        gpus=gpu_indices(row.gpu_mask),
        leaf=None if row.facts is None else _labels(row).get(LEAF),
        exit_code=row.exit_code,
        signal=row.signal,
        error=row.error,
        arrived_at=_time(row.arrived_at),
        started_at=_time(row.started_at),
        ended_at=_time(row.ended_at),
    )


def _labels(row: Any) -> Mapping[str, str]:
    return labels_at(described(row.facts).labels, placed_as(row.place_labels, row.place_ports))


def _worker_state(row: Any) -> WorkerState:
    if row.observed is None:
        return "Exited" if row.state == "Released" else "Waiting"
    if row.lost:
        return "Lost"
    if row.observed in ENDED:
        return ENDED[row.observed]
    if row.gone:
        return "Exited"
    return "Stopping" if row.desired == "stop" else WORKING[row.observed]


def _place(network: Mapping[str, Any] | None) -> NetworkPlace | None:
    return None if network is None else NetworkPlace.model_validate(network)


def _exact(at: float) -> datetime:
    return datetime.fromtimestamp(at, UTC)


def _time(at: float | None) -> datetime | None:
    return None if at is None else _exact(at)
