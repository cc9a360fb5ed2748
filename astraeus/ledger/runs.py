"""Runs: submitting, finding, listing, and their state.

Whoever locks several rows locks claims before runs before workers before machines, each in the order of their
keys, so that no two transactions wait for one another. What is derived from other runs is locked after all of these.
"""

import base64
import binascii
import hashlib
import json
import math
import uuid
from collections.abc import Collection, Mapping
from dataclasses import dataclass, fields
from typing import Any

from sqlalchemy import ColumnElement, Select, case, exists, func, or_, select, tuple_, update
from sqlalchemy import insert as sql_insert
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.sql.selectable import TableValuedAlias

from astraeus.ledger import events, independent
from astraeus.ledger.core import Tx
from astraeus.ledger.outbox import workflow_id as workflow_id
from astraeus.ledger.tables import run
from astraeus.ledger.tenancy import Workspace
from astraeus.model.errors import Conflict, Invalid
from astraeus.model.independent import standing
from astraeus.model.names import canonical, worker_name
from astraeus.model.run import FINAL
from astraeus.model.spec import UNLIMITED, Submission

SUBMITTED = "Waiting for the scheduler"

SEEN = (run.c.hidden_at.is_(None), run.c.parent.is_(None))
"""The runs that users see."""


@dataclass(frozen=True)
class RunRow:
    """A run as the ledger keeps it. Times are seconds since the epoch; `budget` None is unlimited.

    `size` is the number of workers of a run that starts `Independent`; each of these has a run of its own with the uid
    of that one as `parent` and the worker's `rank`, which users do not see as a run.
    """

    uid: str
    workspace: str
    name: str
    cluster: str
    spec: dict[str, Any]
    digest: str
    labels: dict[str, str]
    priority: int
    idempotency_key: str | None
    submitted_by: str
    submitted_at: float
    state: str
    final: bool
    reason: str
    network: dict[str, Any] | None
    attempt: int
    held: bool
    budget: int | None
    budget_left: int | None
    next_earned_at: float | None
    started_at: float | None
    finished_at: float | None
    delete_asked_at: float | None
    hidden_at: float | None
    workflow_started: bool
    parent: str | None
    rank: int | None
    size: int | None

    @property
    def shown_uid(self) -> str:
        """The run that users see."""
        return self.parent or self.uid

    @property
    def worker(self) -> str | None:
        """The name of the worker that this is the run of, None for a run that users see."""
        return None if self.rank is None else worker_name(self.name, self.rank)

    @property
    def is_parent(self) -> bool:
        """Whether its workers have runs of their own."""
        return self.size is not None and self.parent is None

    @classmethod
    def of(cls, row: Mapping[Any, Any]) -> "RunRow":
        """The run in a row of the run table; further columns are ignored."""
        return cls(**{field.name: row[field.name] for field in fields(cls)})


async def submit(
    tx: Tx,
    workspace: Workspace,
    cluster: str,
    submission: Submission,
    raw: Mapping[str, Any],
    actor: str,
    idempotency_key: str | None = None,
) -> tuple[RunRow, bool]:
    """Accept a run; answers it and whether it is new. `raw` is the user's own JSON.

    The same idempotency key with the same content answers the same run. Raises Conflict when the key was used
    for other content, or a live run has the name.
    """
    values = _new_row(tx.now, workspace, cluster, submission, raw, actor, idempotency_key)
    # Decided by the unique indexes, so that of two simultaneous submissions exactly one is new.
    insert = sqlite.insert if tx.dialect == "sqlite" else postgresql.insert
    adding = insert(run).values(values).on_conflict_do_nothing().returning(run)
    added = (await tx.conn.execute(adding)).mappings().one_or_none()
    if added is None:
        return await _earlier(tx, values), False
    row = RunRow.of(added)
    if row.is_parent:
        workers = independent.worker_rows(values, submission.spec, SUBMITTED)
        await tx.conn.execute(sql_insert(run), workers)
        for worker in workers:
            tx.announce("run", f"{workspace.id}/{worker['uid']}")
    await events.record(tx, workspace.id, "submitted", actor, f"Submitted to {cluster}", run=row)
    tx.announce("run", f"{workspace.id}/{row.uid}")
    return row, True


def _new_row(
    now: float,
    workspace: Workspace,
    cluster: str,
    submission: Submission,
    raw: Mapping[str, Any],
    actor: str,
    idempotency_key: str | None,
) -> dict[str, Any]:
    spec = submission.spec
    budget = None if spec.restart_budget == UNLIMITED else spec.restart_budget
    size = spec.task_template.requested_resources.machines if spec.start == "Independent" else None
    content = [cluster, submission.metadata.name, submission.metadata.labels, raw["spec"]]
    return {
        "uid": uuid.uuid4().hex,
        "workspace": workspace.id,
        "name": submission.metadata.name,
        "cluster": cluster,
        "spec": raw["spec"],
        "digest": hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest(),
        "labels": submission.metadata.labels,
        "priority": spec.priority,
        "idempotency_key": idempotency_key,
        "submitted_by": actor,
        "submitted_at": now,
        "state": "Pending",
        "reason": standing({"Pending": size}, spec.failure_rule, {"Pending": SUBMITTED})[1] if size else SUBMITTED,
        "budget": budget,
        "budget_left": budget,
        "size": size,
        # Its workers' workflows are all it needs.
        "workflow_started": size is not None,
    }


async def _earlier(tx: Tx, values: Mapping[str, Any]) -> RunRow:
    """The run that stood in the way of `values`: the same submission, or a reason to refuse it."""
    key = values["idempotency_key"]
    if key is not None:
        query = select(run).where(run.c.workspace == values["workspace"], run.c.idempotency_key == key)
        if row := await _one(tx, query):
            if row.digest == values["digest"]:
                return row
            raise Conflict(
                f"Idempotency-Key {key} was used for another submission ({row.name}); use a new key for this one"
            )
    name = values["name"]
    raise Conflict(f"A live run is named {name} already; choose another name, or delete that run first")


async def find(tx: Tx, workspace_id: str, name: str) -> RunRow | None:
    """The run users mean by `name`: the live one, else the latest that is not hidden."""
    live = ~run.c.final & run.c.delete_asked_at.is_(None)
    query = (
        select(run)
        .where(run.c.workspace == workspace_id, run.c.name == canonical(name), *SEEN)
        .order_by(case((live, 0), else_=1), run.c.submitted_at.desc(), run.c.uid.desc())
        .limit(1)
    )
    return await _one(tx, query)


async def by_uid(tx: Tx, uid: str) -> RunRow | None:
    """The run with this identity, hidden or not."""
    return await _one(tx, select(run).where(run.c.uid == uid))


async def locked(tx: Tx, uid: str) -> RunRow | None:
    """The same, kept from changing until the transaction ends."""
    return await _one(tx, select(run).where(run.c.uid == uid).with_for_update(key_share=True))


async def list_runs(
    tx: Tx,
    workspace_id: str,
    *,
    states: Collection[str] = (),
    labels: Mapping[str, str] | None = None,
    cluster: str | None = None,
    name: str | None = None,
    limit: int = 100,
    cursor: str | None = None,
) -> tuple[list[RunRow], str | None]:
    """A page of the workspace's runs, oldest first, and the cursor of the next page (None: this is the last)."""
    query = select(run).where(run.c.workspace == workspace_id, *SEEN)
    if states:
        query = query.where(run.c.state.in_(states))
    if cluster is not None:
        query = query.where(run.c.cluster == cluster)
    if name is not None:
        query = query.where(run.c.name == canonical(name))
    for key, value in (labels or {}).items():
        query = query.where(has_label(tx.dialect, key, value))
    if cursor is not None:
        query = query.where(tuple_(run.c.submitted_at, run.c.uid) > tuple_(*_read_cursor(cursor)))
    query = query.order_by(run.c.submitted_at, run.c.uid).limit(limit + 1)
    rows = [RunRow.of(row) for row in (await tx.conn.execute(query)).mappings()]
    more = len(rows) > limit
    return rows[:limit], _cursor(rows[limit - 1]) if more else None


def label_table(dialect: str) -> TableValuedAlias:
    """A run's labels as rows."""
    # Not a JSON path: label keys may hold any character, and paths have characters of their own.
    each = func.json_each(run.c.labels) if dialect == "sqlite" else func.json_each_text(run.c.labels)
    return each.table_valued("key", "value", name="label")


def has_label(dialect: str, key: str, value: str) -> ColumnElement[bool]:
    """Whether a run has this label."""
    label = label_table(dialect)
    return exists(select(1).select_from(label).where(label.c.key == key, label.c.value == value))


def _cursor(row: RunRow) -> str:
    return base64.urlsafe_b64encode(json.dumps([row.submitted_at, row.uid]).encode()).decode().rstrip("=")


def _read_cursor(cursor: str) -> tuple[float, str]:
    try:
        at, uid = json.loads(base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)))
        if isinstance(at, int | float) and math.isfinite(at) and isinstance(uid, str) and uid.isalnum():
            return float(at), uid
    except (ValueError, TypeError, OverflowError, RecursionError, binascii.Error):
        pass
    raise Invalid("cursor is not one that a list returned; leave it out to start from the first page")


async def set_state(
    tx: Tx, uid: str, state: str, reason: str, *, actor: str = "astraeus", attempt: int | None = None, **columns: Any
) -> bool:
    """Show a state and its reason, with any further columns of the run; answers whether it was written.

    A final state never changes, and `attempt` (when given) must be the run's present attempt. A final state
    hides a run whose deletion was asked for.
    """
    row = await locked(tx, uid)
    if row is None or row.final or (attempt is not None and row.attempt != attempt):
        return False
    final = state in FINAL
    if final:
        columns |= {
            "final": True,
            "held": False,
            "finished_at": tx.now,
            "next_earned_at": None,
            "hidden_at": None if row.delete_asked_at is None else tx.now,
        }
    await tx.conn.execute(
        update(run).where(run.c.uid == uid, ~run.c.final).values(state=state, reason=storable(reason), **columns)
    )
    if state != row.state:
        message = reason if reason.startswith(state) else f"{state}: {reason}"
        await events.record(tx, row.workspace, "state", actor, message, run=row, attempt=row.attempt)
    tx.announce("run", f"{row.workspace}/{uid}")
    if row.parent is not None:
        tx.derived[row.parent] = derive
    return True


async def derive(tx: Tx, uid: str) -> None:
    """Show a run that starts `Independent` as its workers stand. Locks it, so that the last one to change has it right.

    Put into `tx.derived` under the run's uid by whatever changes a worker's run.
    """
    if await locked(tx, uid) is not None:
        await set_state(tx, uid, *await independent.derive(tx, uid))


async def without_workflow(tx: Tx, limit: int = 1100, uid: str | None = None) -> list[RunRow]:
    """Accepted runs whose workflow is not known to have been started, oldest first; of this run alone, where given.

    A run whose workers start one by one has no workflow; its workers' runs have.
    """
    query = select(run).where(~run.c.workflow_started).order_by(run.c.submitted_at, run.c.uid).limit(limit)
    if uid is not None:
        query = query.where(or_(run.c.uid == uid, run.c.parent == uid))
    return [RunRow.of(row) for row in (await tx.conn.execute(query)).mappings()]


async def mark_workflow_started(tx: Tx, uid: str) -> None:
    """Record that the run's workflow exists; a second time changes nothing."""
    await tx.conn.execute(update(run).where(run.c.uid == uid, ~run.c.workflow_started).values(workflow_started=True))


def storable(text: str) -> str:
    """`text` without the one character that PostgreSQL's text cannot hold; a worker's words may have it."""
    return text.replace("\0", "\N{REPLACEMENT CHARACTER}")


async def _one(tx: Tx, query: Select[Any]) -> RunRow | None:
    row = (await tx.conn.execute(query)).mappings().one_or_none()
    return None if row is None else RunRow.of(row)
