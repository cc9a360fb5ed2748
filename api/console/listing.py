"""The runs list for people: newest first, searched, counted and cut into pages by the database."""

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, and_, exists, func, or_, select

from astraeus.ledger.core import Tx
from astraeus.ledger.runs import SEEN, has_label, label_table
from astraeus.ledger.tables import claim, event, run
from astraeus.model import words

COLUMNS = (
    *run.c["uid", "name", "cluster", "state", "final", "reason", "network", "attempt", "held", "budget", "budget_left"],
    *run.c["submitted_at", "submitted_by", "finished_at", "labels", "priority", "spec"],
)
ESCAPED = str.maketrans({letter: f"/{letter}" for letter in "/%_"})
CUTS_MOST = 8
WORD = re.compile(r'"[^"]+"|[^\s"]+')


@dataclass(frozen=True)
class Wanted:
    """Which runs: those whose name, labels or reason hold every word of `search`, in any of `states`.

    A word `key=value` is a label; words with blanks stand in double quotes. `by` is who submitted.
    """

    search: str = ""
    by: str | None = None
    states: Collection[str] = ()
    cluster: str | None = None
    limit: int = 50
    offset: int = 0


async def runs(tx: Tx, workspace_id: str, wanted: Wanted) -> tuple[list[dict[str, Any]], int]:
    """The rows of one page, and how many there are in all."""
    where = and_(*_conditions(workspace_id, wanted, tx.dialect))
    total = int((await tx.conn.execute(select(func.count()).select_from(run).where(where))).scalar_one())
    query = select(*COLUMNS).where(where).order_by(run.c.submitted_at.desc(), run.c.uid.desc())
    rows = (await tx.conn.execute(query.limit(wanted.limit).offset(wanted.offset))).mappings().all()
    arrived = await _arrived(tx, [row["uid"] for row in rows if row["state"] == "Starting"])
    return [_row(row, arrived) for row in rows], total


async def counts(tx: Tx, workspace_id: str) -> dict[str, int]:
    """How many runs are in each state."""
    query = select(run.c.state, func.count().label("runs")).where(*_visible(workspace_id)).group_by(run.c.state)
    return {row.state: row.runs for row in await tx.conn.execute(query)}


async def namesakes(tx: Tx, workspace_id: str, uid: str, name: str, limit: int) -> list[dict[str, Any]]:
    """The other runs that had this name, newest first."""
    where = and_(*_visible(workspace_id), run.c.name == name, run.c.uid != uid)
    query = select(*run.c["uid", "cluster", "state", "reason", "submitted_at", "finished_at"]).where(where)
    found = await tx.conn.execute(query.order_by(run.c.submitted_at.desc(), run.c.uid.desc()).limit(limit))
    return [dict(row) for row in found.mappings()]


async def workspace_events(
    tx: Tx, workspace_id: str, search: str, before: int | None, limit: int
) -> list[Mapping[Any, Any]]:
    """The workspace's newest events that hold every word of `search`, older than the id `before`, newest first."""
    columns = event.c["id", "at", "kind", "run_uid", "run_name", "worker", "attempt", "actor", "message"]
    query = select(*columns).where(event.c.workspace == workspace_id)
    if before is not None:
        query = query.where(event.c.id < before)
    for word in search.replace("\0", "").split()[:8]:
        query = query.where(or_(*(_within(place, word) for place in event.c["message", "kind", "actor", "run_name"])))
    found = await tx.conn.execute(query.order_by(event.c.id.desc()).limit(limit))
    return list(found.mappings())


async def latest_events(tx: Tx, uid: str, limit: int) -> list[dict[str, Any]]:
    """A run's newest events, newest first."""
    query = select(*event.c["id", "at", "kind", "worker", "attempt", "actor", "message"]).where(event.c.run_uid == uid)
    found = await tx.conn.execute(query.order_by(event.c.id.desc()).limit(limit))
    return [dict(row) for row in found.mappings()]


def _visible(workspace_id: str) -> list[ColumnElement[bool]]:
    return [run.c.workspace == workspace_id, *SEEN]


def _conditions(workspace_id: str, wanted: Wanted, dialect: str) -> list[ColumnElement[bool]]:
    conditions = _visible(workspace_id)
    if wanted.states:
        conditions.append(run.c.state.in_(wanted.states))
    if wanted.cluster:
        conditions.append(run.c.cluster == wanted.cluster)
    if wanted.by is not None:
        conditions.append(run.c.submitted_by == wanted.by)
    return conditions + [_holds(word.strip('"'), dialect) for word in WORD.findall(wanted.search.replace("\0", ""))[:8]]


def _holds(word: str, dialect: str) -> ColumnElement[bool]:
    # Not the labels' JSON as it is stored: letters beyond ASCII are escaped there.
    label = label_table(dialect)
    of_label = or_(_within(label.c.key, word), _within(label.c.value, word))
    labelled = exists(select(1).select_from(label).where(of_label))
    # A key may hold an equals sign itself.
    cuts = [at for at, letter in enumerate(word) if letter == "=" and at][:CUTS_MOST]
    spelt = (has_label(dialect, word[:at], word[at + 1 :]) for at in cuts)
    return or_(_within(run.c.name, word), _within(run.c.reason, word), labelled, *spelt)


def _within(place: ColumnElement[str], word: str) -> ColumnElement[bool]:
    # The database lowers both: which letters beyond ASCII it lowers depends on it.
    return func.lower(place).contains(func.lower(word.translate(ESCAPED)), escape="/")


async def _arrived(tx: Tx, uids: Sequence[str]) -> Mapping[str, str]:
    if not uids:
        return {}
    query = (
        select(*claim.c["run_uid", "arrived", "size"])
        .join(run, and_(run.c.uid == claim.c.run_uid, run.c.attempt == claim.c.attempt))
        .where(claim.c.run_uid.in_(uids), claim.c.state == "Granted", claim.c.size.is_not(None))
    )
    return {row.run_uid: words.starting(row.arrived, row.size) for row in await tx.conn.execute(query)}


def _row(row: Mapping[Any, Any], arrived: Mapping[str, str]) -> dict[str, Any]:
    shown = {
        key: value for key, value in row.items() if key not in ("spec", "budget_left", "submitted_at", "submitted_by")
    }
    return shown | {
        "reason": arrived.get(row["uid"], row["reason"]),
        "network": (row["network"] or {}).get("words"),
        "gpus": gpus_of(row["spec"]),
        "left": row["budget_left"],
        "submitted": row["submitted_at"],
        "by": row["submitted_by"],
    }


def gpus_of(spec: Mapping[str, Any]) -> int:
    """All GPUs a run asks for."""
    resources = spec.get("task_template", {}).get("requested_resources", {})
    return int(resources.get("gpu_requests", {}).get("count", 0))
