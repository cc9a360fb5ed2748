"""Messages to run workflows, committed with the decisions they tell of and delivered at least once."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from sqlalchemy import delete, insert, or_, select, update

from astraeus.ledger.core import Tx
from astraeus.ledger.tables import outbox
from astraeus.ledger.tenancy import Workspace
from astraeus.model.messages import SIGNAL_OF, MessageKind, RunMessage


class Addressee(Protocol):
    """What a run must have to be written to; a `RunRow` has it."""

    @property
    def uid(self) -> str:
        """The run's identity."""

    @property
    def name(self) -> str:
        """Its name in the workspace."""

    @property
    def cluster(self) -> str:
        """Whose courier delivers."""


@dataclass(frozen=True)
class Letter:
    """A message before it has an id. `attempt` fences it; None means whatever runs when it arrives."""

    cluster: str
    run_uid: str
    workflow_id: str
    kind: MessageKind
    attempt: int | None = None
    who: str | None = None
    why: str | None = None


@dataclass(frozen=True)
class OutboxRow:
    """A message to deliver: the workflow, the signal that carries it, and itself."""

    id: int
    run_uid: str
    workflow_id: str
    signal: str
    message: RunMessage
    created_at: float


def workflow_id(run: Addressee, workspace: Workspace) -> str:
    """The id of the workflow that lives the run's life."""
    return workflow_id_of(workspace.path, run.name, run.uid)


def workflow_id_of(workspace: str, name: str, uid: str) -> str:
    """The same from its parts; `workspace` is `org/name`."""
    return f"run/{workspace}/{name}/{uid}"


async def add(
    tx: Tx,
    run: Addressee,
    workspace: Workspace,
    kind: MessageKind,
    attempt: int | None = None,
    who: str | None = None,
    why: str | None = None,
) -> None:
    """Write one message; its id joins `tx.outbox`, so that the committer can deliver it at once."""
    await add_all(tx, [Letter(run.cluster, run.uid, workflow_id(run, workspace), kind, attempt, who, why)])


async def add_all(tx: Tx, letters: Sequence[Letter]) -> None:
    """Write any number of messages in one statement."""
    if not letters:
        return
    rows = [
        {
            "cluster": letter.cluster,
            "run_uid": letter.run_uid,
            "workflow_id": letter.workflow_id,
            "kind": letter.kind,
            "body": {"attempt": letter.attempt, "who": letter.who, "why": letter.why},
            "created_at": tx.now,
        }
        for letter in letters
    ]
    ids = await tx.conn.scalars(insert(outbox).returning(outbox.c.id, sort_by_parameter_order=True), rows)
    tx.outbox.extend(ids)


async def pending(
    tx: Tx, cluster: str | None = None, limit: int = 1000, ids: Collection[int] | None = None
) -> list[OutboxRow]:
    """Undelivered messages in order of their ids.

    With `ids`, these and whatever is still undelivered before them for the same runs, since a run must hear
    things in their order; then `limit` counts for nothing.
    """
    query = select(outbox).where(outbox.c.sent_at.is_(None)).order_by(outbox.c.id)
    if cluster is not None:
        query = query.where(outbox.c.cluster == cluster)
    if ids is None:
        query = query.limit(limit)
    elif ids:
        runs = select(outbox.c.run_uid).where(outbox.c.id.in_(ids))
        query = query.where(or_(outbox.c.id.in_(ids), outbox.c.run_uid.in_(runs) & (outbox.c.id < max(ids))))
    else:
        return []
    return [_row(row) for row in (await tx.conn.execute(query)).mappings()]


async def mark_sent(tx: Tx, ids: Collection[int]) -> None:
    """Record that these were delivered; a second time changes nothing."""
    if ids:
        await tx.conn.execute(
            update(outbox).where(outbox.c.id.in_(ids), outbox.c.sent_at.is_(None)).values(sent_at=tx.now)
        )


async def prune(tx: Tx, older_than_seconds: float) -> None:
    """Forget messages that were delivered longer ago than this."""
    await tx.conn.execute(delete(outbox).where(outbox.c.sent_at < tx.now - older_than_seconds))


def _row(row: Any) -> OutboxRow:
    message = RunMessage(id=row["id"], kind=row["kind"], **row["body"])
    return OutboxRow(row["id"], row["run_uid"], row["workflow_id"], SIGNAL_OF[row["kind"]], message, row["created_at"])
