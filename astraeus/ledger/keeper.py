"""A cluster's snapshot kept in memory: each pass reads only what the change feed says has changed."""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import chain
from operator import attrgetter
from typing import Any

from sqlalchemy import Select, bindparam, func, select

from astraeus.ledger.core import Tx
from astraeus.ledger.shares import read_allotments
from astraeus.ledger.snapshot import load_snapshot, read_claims, read_machines, read_reserved
from astraeus.ledger.tables import change, cluster
from astraeus.model.errors import NotFound
from astraeus.placement.types import Ask, Holding, Machine, Snapshot

SHOWN = ("machine", "run", "cluster", "allotment")
"""The kinds of change that a snapshot can show."""
MANY = 2_000
"""Where more than this changed, everything is read anew."""
CHECKED_SECONDS = 3600.0
"""Everything is read anew this often all the same, and compared."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Changed:
    """Which of a cluster's parts the feed names."""

    machines: frozenset[str]
    runs: frozenset[str]
    room: bool
    due: bool


@dataclass(frozen=True, slots=True)
class _Head:
    """A cluster's own row, both ends of the feed, and what it names beyond what was read; None: too much to follow."""

    factors: Any
    half_life_seconds: float
    term: int
    oldest: int
    newest: int
    changed: _Changed | None


def _head() -> Select[Any]:
    """A row at least, and one for each thing that the feed names."""
    oldest, newest = (select(func.coalesce(end(change.c.seq), 0)).scalar_subquery() for end in (func.min, func.max))
    since = (change.c.seq > bindparam("b_seen")) & change.c.kind.in_(SHOWN)
    return (
        select(
            cluster.c.factors,
            cluster.c.half_life_seconds,
            cluster.c.pass_term,
            oldest.label("oldest"),
            newest.label("newest"),
        )
        .add_columns(change.c.kind, change.c.key)
        .outerjoin(change, since)
        .where(cluster.c.name == bindparam("b_cluster"))
        .limit(bindparam("b_most"))
    )


HEAD = _head()


@dataclass(frozen=True, slots=True)
class _Dirty:
    """Which parts of a snapshot must be put together anew."""

    machines: bool
    asks: bool
    holdings: bool


class SnapshotKeeper:
    """One cluster's snapshot, brought up to date by whoever asks for it.

    Everything that a snapshot shows is announced in the transaction that changes it: a machine with its ports under
    "machine", a run with its claim and its allocations under "run", reservations under "cluster", what workspaces are
    due under "allotment". The feed is read in the reader's own transaction, so the answer equals what `load_snapshot`
    would give there.
    """

    def __init__(self, cluster_name: str) -> None:
        self.cluster = cluster_name
        self.loads = 0
        """How often everything was read."""
        self.term = 0
        """The cluster's pass term at the last look."""
        self._turn = asyncio.Lock()
        self._seen = 0
        self._loaded_at = 0.0
        self._snapshot: Snapshot | None = None
        self._machines: dict[str, Machine] = {}
        self._asks: dict[str, Ask] = {}
        self._holdings: dict[str, tuple[Holding, ...]] = {}

    async def current(self, tx: Tx) -> Snapshot:
        """The cluster as `tx` sees it. Its parts are the same objects as before where nothing in them changed."""
        async with self._turn:
            head = await self._head(tx)
            self.term = head.term
            if self._snapshot is None or not self._follows(head) or head.changed is None:
                return await self._load(tx, head)
            kept = await self._follow(tx, head.changed, head)
            if not 0 <= tx.now - self._loaded_at < CHECKED_SECONDS and kept != await self._load(tx, head):
                log.error("the snapshot kept of %s had gone wrong; it was read anew", self.cluster)
            return self._snapshot

    async def _head(self, tx: Tx) -> _Head:
        """The cluster's own row, both ends of the feed, and what it names since it was last read."""
        values = {"b_cluster": self.cluster, "b_seen": self._seen, "b_most": MANY + 1}
        rows = (await tx.conn.execute(HEAD, values)).all()
        if not rows:
            raise NotFound(f"There is no cluster {self.cluster}")
        keys: dict[str, set[str]] = defaultdict(set)
        for row in rows:
            keys[row.kind].add(row.key)
        prefix = f"{self.cluster}/"
        changed = _Changed(
            frozenset(key.removeprefix(prefix) for key in keys["machine"] if key.startswith(prefix)),
            frozenset(key.partition("/")[2] for key in keys["run"]),
            self.cluster in keys["cluster"],
            self.cluster in keys["allotment"],
        )
        first = rows[0]
        own = first.factors, first.half_life_seconds, first.pass_term
        return _Head(*own, first.oldest, first.newest, None if len(rows) > MANY else changed)

    def _follows(self, head: _Head) -> bool:
        """Whether the feed goes on from where it was read to, with nothing pruned and nothing taken back."""
        return head.newest == self._seen or head.oldest <= self._seen + 1 <= head.newest

    async def _follow(self, tx: Tx, changed: _Changed, head: _Head) -> Snapshot:
        """Read what changed; nothing of it is kept until all of it is read."""
        assert self._snapshot is not None
        machines = await read_machines(tx, self.cluster, changed.machines) if changed.machines else []
        asks, holdings = await read_claims(tx, self.cluster, changed.runs) if changed.runs else ([], [])
        reserved = await read_reserved(tx, self.cluster) if changed.room else self._snapshot.reserved
        allotments = await read_allotments(tx, self.cluster) if changed.due else self._snapshot.allotments
        dirty = self._put(changed.machines, machines, changed.runs, asks, holdings)
        given = {"reserved": reserved, "allotments": allotments}
        return self._keep(head.newest, self._snapshot, dirty, given | _told(head))

    def _put(
        self,
        names: Collection[str],
        machines: Iterable[Machine],
        uids: Collection[str],
        asks: Iterable[Ask],
        holdings: Iterable[Holding],
    ) -> _Dirty:
        """Take what was read of these machines and runs; answers which parts differ from what was known."""
        held: dict[str, list[Holding]] = defaultdict(list)
        for holding in holdings:
            held[holding.run_uid].append(holding)
        return _Dirty(
            machines=_replace(self._machines, names, {machine.name: machine for machine in machines}),
            asks=_replace(self._asks, uids, {ask.run_uid: ask for ask in asks}),
            holdings=_replace(self._holdings, uids, {uid: tuple(gang) for uid, gang in held.items()}),
        )

    def _keep(self, seen: int, before: Snapshot, dirty: _Dirty, given: Mapping[str, Any]) -> Snapshot:
        """Take the parts that differ from the snapshot before; `given` are those that are small."""
        parts = {name: value for name, value in given.items() if value != getattr(before, name)}
        if dirty.machines:
            parts["machines"] = tuple(sorted(self._machines.values(), key=attrgetter("name")))
        if dirty.asks:
            parts["asks"] = tuple(sorted(self._asks.values(), key=in_order))
        if dirty.holdings:
            gangs = sorted(self._holdings.values(), key=lambda gang: gang[0].claim)
            parts["holdings"] = tuple(chain.from_iterable(gangs))
        self._seen = seen
        self._snapshot = replace(before, **parts) if parts else before
        return self._snapshot

    async def _load(self, tx: Tx, head: _Head) -> Snapshot:
        whole = await load_snapshot(tx, self.cluster)
        self.loads += 1
        names = {machine.name for machine in whole.machines} | self._machines.keys()
        uids = {ask.run_uid for ask in whole.asks} | {holding.run_uid for holding in whole.holdings}
        uids |= self._asks.keys() | self._holdings.keys()
        dirty = self._put(names, whole.machines, uids, whole.asks, whole.holdings)
        self._loaded_at = tx.now
        given = {"reserved": whole.reserved, "allotments": whole.allotments}
        before = self._snapshot or Snapshot(self.cluster, ())
        return self._keep(head.newest, before, dirty, given | _told(head))


def _told(head: _Head) -> dict[str, Any]:
    return {"factors": head.factors, "half_life_seconds": head.half_life_seconds}


def in_order(ask: Ask) -> tuple[int, float, str]:
    """The order of the queue."""
    return -ask.priority, ask.submitted_at, ask.run_uid


def _replace(kept: dict[str, Any], keys: Collection[str], found: Mapping[str, Any]) -> bool:
    """Let `kept` hold what was found under `keys`; whether that changed it.

    An equal value leaves the object that is there, which readers may know by its identity.
    """
    changed = False
    for key in keys:
        value = found.get(key)
        if kept.get(key) != value:
            changed = True
            if value is None:
                del kept[key]
            else:
                kept[key] = value
    return changed
