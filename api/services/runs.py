"""Runs: submit, list, look up, and the orders given to them."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel

from api.auth import Scope
from api.services.checks import check
from api.services.pages import cursor_of_ours
from astraeus.ledger import claims, orders, runs, tenancy, views
from astraeus.ledger.core import Tx
from astraeus.ledger.runs import RunRow
from astraeus.model.errors import NotFound
from astraeus.model.faults import parse_submission
from astraeus.model.names import RUN_NAME_MAX, UID, canonical, name_fault
from astraeus.model.run import AttemptView, RunView

ORDERS = ("cancel", "preempt", "restart", "hold", "release")


class RunPage(BaseModel):
    """Some runs, in the order they were submitted, and where to go on."""

    items: list[RunView]
    next_cursor: str | None = None


class AttemptPage(BaseModel):
    """All attempts of a run."""

    items: list[AttemptView]
    next_cursor: str | None = None


@dataclass(frozen=True)
class Filters:
    """Which runs to list."""

    states: Sequence[str] = ()
    labels: Mapping[str, str] | None = None
    cluster: str | None = None
    name: str | None = None
    limit: int = 100
    cursor: str | None = None


async def submit(scope: Scope, raw: Any, key: str | None = None, cluster: str | None = None) -> tuple[RunView, bool]:
    """Store a run and its first claim, then start its workflow, while the scheduler is at work already.

    False: the same POST was already taken. Raises `BadSpec`, `Conflict`.
    """
    submission = parse_submission(raw)
    state, workspace = scope.state, scope.workspace
    async with state.ledger.transaction() as tx:
        cluster = await known_cluster(tx, scope, cluster)
        await check(tx, workspace.id, submission.spec)
        row, created = await runs.submit(tx, workspace, cluster, submission, raw, scope.caller.name, key)
        if created:
            topology = submission.spec.task_template.requested_resources.topology
            await claims.enter_first(tx, row, topology.patience_seconds)
        view = await _view(tx, await runs.by_uid(tx, row.uid) or row)
        unstarted = await runs.without_workflow(tx, uid=row.uid)
    await asyncio.gather(state.deliver(tx), state.start_workflows(unstarted, workspace))
    return view, created


async def known_cluster(tx: Tx, scope: Scope, cluster: str | None) -> str:
    """The cluster named, or the workspace's own. Raises `NotFound` when there is none of that name."""
    if cluster is None:
        return scope.workspace.default_cluster
    names = [found.name for found in await tenancy.clusters(tx)]
    if canonical(cluster) not in names:
        raise NotFound(f"There is no cluster {cluster!r}; known: {', '.join(names) or 'none'}.")
    return canonical(cluster)


async def page(scope: Scope, filters: Filters) -> RunPage:
    """Some of the workspace's runs."""
    async with scope.state.ledger.reading() as tx:
        cluster = None if filters.cluster is None else await known_cluster(tx, scope, filters.cluster)
        with cursor_of_ours():
            rows, cursor = await runs.list_runs(
                tx,
                scope.workspace.id,
                states=list(filters.states),
                labels=dict(filters.labels or {}),
                cluster=cluster,
                name=filters.name,
                limit=filters.limit,
                cursor=filters.cursor,
            )
        return RunPage(items=await views.run_views(tx, rows), next_cursor=cursor)


async def row_named(tx: Tx, scope: Scope, name: str) -> RunRow:
    """The run of that name, in any spelling, or of that uid. Raises `NotFound`."""
    wanted = canonical(name)
    row = await _of_uid(tx, scope, wanted)
    if row is None and not name_fault(wanted, RUN_NAME_MAX):
        row = await runs.find(tx, scope.workspace.id, wanted)
    if row is None:
        raise NotFound(f"There is no run {wanted!r} in {scope.workspace.path}.")
    return row


async def _of_uid(tx: Tx, scope: Scope, uid: str) -> RunRow | None:
    row = await runs.by_uid(tx, uid) if UID.fullmatch(uid) else None
    return row if row and row.workspace == scope.workspace.id and row.hidden_at is None else None


async def get(scope: Scope, name: str) -> RunView:
    """One run with its workers."""
    async with scope.state.ledger.reading() as tx:
        return await _view(tx, await row_named(tx, scope, name))


async def order(scope: Scope, name: str, kind: str, why: str | None = None) -> RunView:
    """Give a run an order. Raises `Conflict` when it is final."""
    async with scope.state.ledger.transaction() as tx:
        row = await row_named(tx, scope, name)
        await orders.order(tx, row, kind, scope.caller.name, why)
        view = await _view(tx, await _again(tx, row))
    await scope.state.deliver(tx)
    return view


async def delete(scope: Scope, name: str) -> RunView | None:
    """Stop a run, then hide it. None: it was final and is hidden now."""
    async with scope.state.ledger.transaction() as tx:
        row = await row_named(tx, scope, name)
        await orders.order(tx, row, "delete", scope.caller.name)
        view = None if row.final else await _view(tx, await _again(tx, row))
    await scope.state.deliver(tx)
    return view


async def attempts(scope: Scope, name: str) -> AttemptPage:
    """Every attempt of a run: where, how it ended, whether it was charged."""
    async with scope.state.ledger.reading() as tx:
        row = await row_named(tx, scope, name)
        return AttemptPage(items=await views.attempt_views(tx, row.uid))


async def _again(tx: Tx, row: RunRow) -> RunRow:
    return await runs.by_uid(tx, row.uid) or row


async def _view(tx: Tx, row: RunRow) -> RunView:
    return (await views.run_views(tx, [row]))[0]
