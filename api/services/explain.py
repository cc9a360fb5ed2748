"""Why a run is where it is, and what would happen to a specification now."""

from collections.abc import Sequence
from datetime import UTC, datetime
from math import ceil
from typing import Any

from pydantic import BaseModel, Field

from api.auth import Scope
from api.services.checks import check
from api.services.runs import known_cluster, row_named
from astraeus.ledger import views
from astraeus.model.faults import parse_submission
from astraeus.model.independent import counted, one_worker, worker_uid
from astraeus.model.network import NetworkPlace
from astraeus.model.run import RunState, RunView
from astraeus.placement import explain as planner
from astraeus.placement.expect import Expected
from astraeus.placement.types import Grant, Wait

UNKNOWN = "unknown"
EXPECTED_START = (
    "While it waits: its latest start if every run stays until its time limit and nothing new comes before it, "
    "`unknown` where time limits do not tell."
)
EXPECTED_WORDS = "The same in words; where it is unknown, why."


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
    expected_words: str | None = Field(default=None, description=EXPECTED_WORDS)


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
    victims: list[str] = Field(default=[], description="Runs that the next pass preempts for it.")
    position: int | None = None
    expected_start: str | None = Field(default=None, description=EXPECTED_START)
    expected_words: str | None = Field(default=None, description=EXPECTED_WORDS)


async def plan(scope: Scope, raw: Any, cluster: str | None) -> PlanView:
    """What the next pass would do with this specification; writes nothing. Raises `BadSpec`."""
    spec = parse_submission(raw).spec
    async with scope.state.ledger.reading() as tx:
        cluster = await known_cluster(tx, scope, cluster)
        await check(tx, scope.workspace.id, spec)
        outlook = scope.state.outlooks.of(cluster)
        snapshot = await outlook.snapshot(tx)
    task, now, owner = spec.task_template, tx.now, scope.workspace.path
    wanted, limit = task.requested_resources, task.time_limit_seconds
    size = wanted.machines if spec.start == "Independent" else None
    one = one_worker(wanted, size) if size else wanted
    asked, asks = planner.asking_each(snapshot, one, size or 1, spec.priority, now, limit, owner)
    decided = await outlook.plan(asked, now)
    claims = {ask.claim for ask in asks}
    placed = [grant for grant in decided.grants if grant.claim in claims]
    waits = [wait for wait in decided.waits if wait.claim in claims]
    if waits:
        view = _waits(cluster, waits[0], await outlook.expected_of(waits[0].claim, asked, now), now)
    else:
        view = _granted(cluster, placed[0])
    return _of_each(view, placed, waits) if size else view


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


def _waits(cluster: str, wait: Wait, expected: Expected, now: float) -> PlanView:
    return PlanView(
        cluster=cluster,
        fits=False,
        reason=wait.reason,
        position=wait.position or None,
        blockers=list(wait.blockers),
        victims=list(wait.victims),
        expected_start=start_of(wait.claim, expected, now),
        expected_words=expected.words_of(wait.claim, now),
    )


def _of_each(view: PlanView, placed: Sequence[Grant], waits: Sequence[Wait]) -> PlanView:
    """Of workers that start one by one: where those go that can start now, and what the first other waits for."""
    counts = [(len(placed), "can start now"), (len(waits), "would wait")]
    return view.model_copy(
        update={
            "reason": counted(counts, waits[0].reason if waits else ""),
            "machines": [grant.members[0].machine for grant in placed],
            "victims": sorted({victim for wait in waits for victim in wait.victims}),
        }
    )


def start_of(claim: int, expected: Expected, now: float) -> str:
    """The latest start of a claim, or that it is unknown."""
    at = expected.starts.get(claim)
    if at is None:
        return UNKNOWN
    # To the second, and never one too early.
    return datetime.fromtimestamp(ceil(max(at, now)), UTC).isoformat().replace("+00:00", "Z")


async def explain(scope: Scope, name: str) -> Explanation:
    """Why a run is where it is. Raises `NotFound`."""
    async with scope.state.ledger.reading() as tx:
        row = await row_named(tx, scope, name)
        view = (await views.run_views(tx, [row]))[0]
        some = row.is_parent and any(worker.machine is None for worker in view.workers)
        outlook = scope.state.outlooks.of(row.cluster)
        snapshot = await outlook.snapshot(tx) if not row.final and (row.state == "Pending" or some) else None
    uids = {row.uid} | {worker_uid(row.uid, rank) for rank in range(row.size or 0)}
    ask = next((ask for ask in snapshot.asks if ask.run_uid in uids), None) if snapshot else None
    found = _explanation(view)
    if snapshot is None or ask is None:
        return found
    wait = planner.why(await outlook.plan(snapshot, tx.now), ask.claim)
    if wait is None:
        return found
    told = {
        "waits_because": wait.reason if wait.reason not in view.reason else None,
        "blockers": list(wait.blockers),
        "victims": list(wait.victims),
        "position": wait.position or None,
    }
    if wait.blockers:
        expected = await outlook.expected(snapshot, tx.now, ask.claim)
        told["expected_start"] = start_of(ask.claim, expected, tx.now)
        told["expected_words"] = expected.words_of(ask.claim, tx.now)
    return found.model_copy(update=told)


def _explanation(view: RunView) -> Explanation:
    return Explanation(
        name=view.metadata["name"],
        cluster=view.cluster,
        state=view.state,
        reason=view.reason,
        attempt=view.attempt,
        held=view.held,
        network=view.network,
    )
