"""The queue of a cluster: who is next, what each waits for, what is kept for whom, and who holds how much."""

from collections import Counter

from sqlalchemy import select

from api.auth import Scope
from api.console.view import Params, Values, View
from api.services import fleet
from api.services.runs import known_cluster
from api.services.shares import page_of
from astraeus.ledger.core import Tx
from astraeus.ledger.tables import workspace
from astraeus.placement.expect import Expected
from astraeus.placement.planner import queue
from astraeus.placement.types import Ask, Snapshot, Wait

SHOWN = 500


async def load(scope: Scope, params: Params) -> Values:
    """What the next pass would say of everyone who waits."""
    wanted = str(params["only"]) if params.get("only") else None
    async with scope.state.ledger.reading() as tx:
        cluster = await known_cluster(tx, scope, wanted)
        outlook = scope.state.outlooks.of(cluster)
        snapshot = await outlook.snapshot(tx)
        paths = await _paths(tx)
    decided = await outlook.plan(snapshot, tx.now)
    expected = await outlook.expected(snapshot, tx.now)
    waits = {wait.claim: wait for wait in decided.waits}
    ours = scope.workspace.path
    return {
        "cluster": cluster,
        "clusters": [one.name for one in (await fleet.clusters(scope)).items],
        "rows": [
            _row(ask, waits.get(ask.claim), paths, ours, tx.now) | _start(ask, expected, tx.now)
            for ask in queue(snapshot, tx.now)[:SHOWN]
        ],
        "waiting": len(snapshot.asks),
        "reserved": _reserved(snapshot),
        "shares": _shares(snapshot, tx.now, ours),
    }


async def _paths(tx: Tx) -> dict[str, str]:
    rows = await tx.conn.execute(select(*workspace.c["id", "organisation", "name"]))
    return {row.id: f"{row.organisation}/{row.name}" for row in rows}


def _start(ask: Ask, expected: Expected, now: float) -> Values:
    at = expected.starts.get(ask.claim)
    return {"start": None if at is None else max(at, now), "start_words": expected.words_of(ask.claim, now)}


def _row(ask: Ask, wait: Wait | None, paths: dict[str, str], ours: str, now: float) -> Values:
    owner = paths.get(ask.workspace, ask.workspace)
    wish = ask.resources
    return {
        "claim": ask.claim,
        "run": ask.run_name,
        "workspace": owner,
        "ours": owner == ours,
        "priority": ask.priority,
        "submitted": ask.submitted_at,
        "attempt": ask.attempt,
        "gpus": wish.gpu_requests.count,
        "machines": wish.machines,
        "now": wait is None,
        "reason": wait.reason if wait else "Starts with the next pass",
        "blockers": list(wait.blockers) if wait else [],
        "patience": ask.patience_until if ask.patience_until > now else None,
    }


def _reserved(snapshot: Snapshot) -> list[Values]:
    names = {ask.claim: ask.run_name for ask in snapshot.asks}
    machines: Counter[int] = Counter(kept.claim for kept in snapshot.reserved)
    gpus: Counter[int] = Counter()
    for kept in snapshot.reserved:
        gpus[kept.claim] += kept.gpu_mask.bit_count()
    return [{"run": names.get(id, "?"), "machines": count, "gpus": gpus[id]} for id, count in machines.items()]


def _shares(snapshot: Snapshot, now: float, ours: str) -> list[Values]:
    """Who holds or is due anything, those that hold most first."""
    total = sum(machine.gpus for machine in snapshot.machines)
    found = [
        view for view in page_of(snapshot, now, ours).items if view.gpus_in_use or view.workspace in snapshot.allotments
    ]
    return [
        {
            "workspace": view.workspace,
            "gpus": view.gpus_in_use,
            "of": total if view.gpu_quota is None else view.gpu_quota,
            "quota": view.gpu_quota,
            "share": view.share_of_all,
            "used": view.used_of_all,
            "hours": view.used_gpu_hours,
        }
        for view in sorted(found, key=lambda view: (-view.gpus_in_use, view.workspace))
    ]


VIEW = View("queue", "Queue", load, lambda _, __: ("cluster", "machine", "allotment"), {})
