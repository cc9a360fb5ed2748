"""An attempt while its claim is locked: what may happen to it, and writing what did.

Everything that decides about an attempt locks its claim first, so that the order of those locks is the order in
which success, failure and stop are judged.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import bindparam, func, select, tuple_, update

from astraeus.ledger.core import Tx
from astraeus.ledger.outbox import Letter, add_all, workflow_id_of
from astraeus.ledger.rooms import give_back
from astraeus.ledger.tables import claim, run, worker, workspace
from astraeus.model import words
from astraeus.model.messages import MessageKind
from astraeus.model.names import worker_name

READ = ("run_uid", "attempt", "cluster", "state", "size", "granted_at", "gates_opened_at", "network")
KEPT = (
    "arrived",
    "ended",
    "first_arrived_at",
    "all_arrived_at",
    "gates_opened_at",
    "intent",
    "intent_at",
    "intent_by",
    "intent_why",
    "failure",
    "failure_at",
    "failure_rank",
    "failure_detail",
    "succeeded_at",
)
"""The columns of a claim that its gang's life changes."""

BROKEN_BY_A_LOSS = frozenset({"exited", "start_failed"})
"""Failures that a member may have because a peer is no longer there."""


@dataclass
class Gang:
    """A locked claim with the names of its run. Its methods judge; `save` writes what they changed.

    `turned` counts the members that went in this transaction, `news` are the messages its run must hear, and
    `touched` is set by whoever changes a member, since that shows on the run though the claim stays as it is.
    """

    claim: int
    run_uid: str
    attempt: int
    cluster: str
    state: str
    size: int
    granted_at: float | None
    network: dict[str, Any] | None
    run_name: str
    workspace: str
    workspace_path: str
    kept: dict[str, Any]
    before: dict[str, Any]
    turned: int = 0
    touched: bool = False
    news: list[tuple[MessageKind, str | None, str | None]] = field(default_factory=list)

    @property
    def over(self) -> bool:
        """Whether the attempt was told to stop or has failed: what its members do from here on is no cause."""
        return self.kept["intent"] is not None or self.kept["failure"] is not None

    @property
    def was_over(self) -> bool:
        """Whether it was so before this transaction."""
        return self.before["intent"] is not None or self.before["failure"] is not None

    @property
    def decided(self) -> bool:
        """Whether the attempt's end is certain, one way or the other."""
        return self.over or self.kept["succeeded_at"] is not None

    def name(self, rank: int) -> str:
        """The name of a member."""
        return worker_name(self.run_name, rank)

    def arrive(self, now: float) -> None:
        """One more member is at the barrier."""
        self.kept["arrived"] += 1
        if self.kept["first_arrived_at"] is None:
            self.kept["first_arrived_at"] = now
        if self.kept["arrived"] == self.size and self.kept["all_arrived_at"] is None:
            self.kept["all_arrived_at"] = now
            self.news.append(("arrived", None, None))

    def finish(self, now: float) -> None:
        """One more member exited 0 by itself; the last one makes the attempt a success."""
        if self.over:
            return
        self.kept["ended"] += 1
        if self.kept["ended"] == self.size and self.kept["succeeded_at"] is None:
            self.kept["succeeded_at"] = now
            self.news.append(("ended", None, None))

    def fail(self, now: float, cause: str, rank: int, detail: str, kind: MessageKind = "failed") -> None:
        """A member failed by itself: the attempt's failure, unless its end was decided before."""
        if self.decided:
            return
        self.kept |= {"failure": cause, "failure_at": now, "failure_rank": rank, "failure_detail": detail}
        self.news.append((kind, None, None))

    def lose(self, now: float, rank: int, heard_at: float) -> None:
        """A member's machine was lost; `heard_at` is its last sign of life.

        A peer's collective breaks long before the silence is long enough to be a loss, so a peer that failed within
        that silence is not the cause: the loss takes its place.
        """
        peer = self.kept["failure"] in BROKEN_BY_A_LOSS and self.kept["failure_rank"] != rank
        if peer and self.kept["intent"] is None and self.kept["failure_at"] >= heard_at:
            self.kept["failure"] = None
        self.fail(now, "machine_lost", rank, words.lost_machine(self.name(rank)), "machine_lost")

    def order_stop(self, now: float, cause: str, who: str, why: str | None) -> bool:
        """Record the intent to stop; whether it is now the reason of the end."""
        if self.decided:
            return False
        self.kept |= {"intent": cause, "intent_at": now, "intent_by": who, "intent_why": why}
        return True


async def lock(tx: Tx, claims: Collection[int]) -> dict[int, Gang]:
    """Lock claims in the order of their ids, and read where they stand."""
    if not claims:
        return {}
    return await _locked(tx, claim.c.id.in_(claims))


async def lock_attempt(tx: Tx, run_uid: str, attempt: int) -> Gang | None:
    """Lock one attempt's claim, None when it has none."""
    found = await _locked(tx, (claim.c.run_uid == run_uid) & (claim.c.attempt == attempt))
    return next(iter(found.values()), None)


async def _locked(tx: Tx, where: Any) -> dict[int, Gang]:
    query = (
        select(
            claim.c.id,
            *(claim.c[name] for name in dict.fromkeys(READ + KEPT)),
            run.c.name,
            run.c.workspace,
            workspace.c.organisation,
            workspace.c.name.label("workspace_name"),
        )
        .join(run, run.c.uid == claim.c.run_uid)
        .join(workspace, workspace.c.id == run.c.workspace)
        .where(where)
        .order_by(claim.c.id)
        .with_for_update(of=claim, key_share=True)
    )
    return {row["id"]: _gang(dict(row)) for row in (await tx.conn.execute(query)).mappings()}


def _gang(row: Mapping[str, Any]) -> Gang:
    kept = {name: row[name] for name in KEPT}
    return Gang(
        claim=row["id"],
        run_uid=row["run_uid"],
        attempt=row["attempt"],
        cluster=row["cluster"],
        state=row["state"],
        size=row["size"] or 0,
        granted_at=row["granted_at"],
        network=row["network"],
        run_name=row["name"],
        workspace=row["workspace"],
        workspace_path=f"{row['organisation']}/{row['workspace_name']}",
        kept=kept,
        before=dict(kept),
    )


async def save(tx: Tx, gangs: Iterable[Gang]) -> None:
    """Write what changed, stop and tell the runs whose attempt it decides, and announce those that look different.

    `gone` is told when the last live member of an attempt that is over goes, or an attempt ends that has none.
    """
    changed = [gang for gang in gangs if gang.touched or gang.turned or gang.kept != gang.before]
    await _tell_gone(tx, changed)
    rows = [{"claim_id": gang.claim, **gang.kept} for gang in changed if gang.kept != gang.before]
    if rows:
        statement = update(claim).where(claim.c.id == bindparam("claim_id"))
        await tx.conn.execute(statement.values({name: bindparam(name) for name in KEPT}), rows)
    await stop_members(tx, [(gang.run_uid, gang.attempt) for gang in changed if gang.over and not gang.was_over])
    await add_all(tx, [_letter(gang, *news) for gang in changed for news in gang.news])
    for gang in changed:
        tx.announce("run", f"{gang.workspace}/{gang.run_uid}")


async def stop_members(tx: Tx, attempts: Collection[tuple[str, int]]) -> None:
    """Want every live member of these attempts to stop, in the transaction that decides their end.

    Their claims are locked, as whenever members are written.
    """
    if not attempts:
        return
    statement = (
        update(worker)
        .where(tuple_(worker.c.run_uid, worker.c.attempt).in_(list(attempts)), ~worker.c.gone)
        .where(worker.c.desired != "stop")
        .values(desired="stop", stop_at=tx.now)
        .returning(worker.c.cluster, worker.c.machine)
    )
    for place in sorted({(row.cluster, row.machine) for row in await tx.conn.execute(statement)}):
        tx.announce("machine", "/".join(place))


async def _tell_gone(tx: Tx, gangs: Iterable[Gang]) -> None:
    """Once per attempt: being over and having no live member are both for ever. Its room is free from here on."""
    ending = {gang.claim: gang for gang in gangs if gang.over}
    if not ending:
        return
    query = (
        select(claim.c.id, func.count())
        .join(worker, (worker.c.run_uid == claim.c.run_uid) & (worker.c.attempt == claim.c.attempt))
        .where(claim.c.id.in_(list(ending)), ~worker.c.gone)
        .group_by(claim.c.id)
    )
    alive = {row[0]: row[1] for row in await tx.conn.execute(query)}
    gone: list[Gang] = []
    for gang in ending.values():
        if not alive.get(gang.claim) and (gang.turned or not gang.was_over):
            gang.news.append(("gone", None, None))
            gone.append(gang)
    for cluster in sorted({gang.cluster for gang in gone}):
        await give_back(tx, cluster, [gang.claim for gang in gone if gang.cluster == cluster])
        tx.announce("cluster", cluster)


def _letter(gang: Gang, kind: MessageKind, who: str | None, why: str | None) -> Letter:
    workflow = workflow_id_of(gang.workspace_path, gang.run_name, gang.run_uid)
    return Letter(gang.cluster, gang.run_uid, workflow, kind, gang.attempt, who, why)


async def intend(tx: Tx, runs: Collection[str], intent: str, who: str, why: str | None) -> dict[str, int]:
    """Record why the members of these runs stop and want them stopped; answers the attempts that this ends, by run.

    An attempt that is not granted, or whose end is decided already, is none of them.
    """
    undecided = claim.c.intent.is_(None) & claim.c.failure.is_(None) & claim.c.succeeded_at.is_(None)
    ending = (
        update(claim)
        .where(claim.c.run_uid.in_(runs), claim.c.state == "Granted", undecided)
        .values(intent=intent, intent_at=tx.now, intent_by=who, intent_why=why)
        .returning(claim.c.run_uid, claim.c.attempt)
    )
    ended = {row.run_uid: row.attempt for row in await tx.conn.execute(ending)}
    await stop_members(tx, list(ended.items()))
    return ended
