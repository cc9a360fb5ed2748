"""A cluster's snapshot kept in memory: each pass reads only what the change feed says has changed."""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

from sqlalchemy import func, select

from astraeus.ledger.core import Tx
from astraeus.ledger.snapshot import load_snapshot, read_claims, read_machines, read_reserved
from astraeus.ledger.tables import change, cluster
from astraeus.model.errors import NotFound
from astraeus.placement.types import Ask, Holding, Machine, Reserved, Snapshot

MANY = 2_000
"""Where more than this changed, everything is read anew."""
CHECKED_SECONDS = 600.0
"""Everything is read anew this often all the same, and compared."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Changed:
    """Which of a cluster's parts the feed names, and how far it was read."""

    seen: int
    machines: frozenset[str] = frozenset()
    runs: frozenset[str] = frozenset()
    room: bool = False


class SnapshotKeeper:
    """One cluster's snapshot, brought up to date by whoever asks for it.

    Everything that a snapshot shows is announced in the transaction that changes it: a machine with its ports under
    "machine", a run with its claim and its allocations under "run", reservations under "cluster". The feed is read in
    the reader's own transaction, so the answer equals what `load_snapshot` would give there.
    """

    def __init__(self, cluster_name: str) -> None:
        self.cluster = cluster_name
        self.loads = 0
        """How often everything was read."""
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
            if self._snapshot is None or not self._follows(head):
                return await self._load(tx, head)
            changed = await self._changed(tx, head.newest)
            if changed is None:
                return await self._load(tx, head)
            kept = await self._follow(tx, changed, head.factors)
            if not 0 <= tx.now - self._loaded_at < CHECKED_SECONDS and kept != await self._load(tx, head):
                log.error("the snapshot kept of %s had gone wrong; it was read anew", self.cluster)
            return self._snapshot

    async def _head(self, tx: Tx) -> Any:
        """The cluster's factors and both ends of the feed."""
        oldest, newest = (select(func.coalesce(end(change.c.seq), 0)).scalar_subquery() for end in (func.min, func.max))
        query = select(cluster.c.factors, oldest.label("oldest"), newest.label("newest"))
        head = (await tx.conn.execute(query.where(cluster.c.name == self.cluster))).one_or_none()
        if head is None:
            raise NotFound(f"There is no cluster {self.cluster}")
        return head

    def _follows(self, head: Any) -> bool:
        """Whether the feed goes on from where it was read to, with nothing pruned and nothing taken back."""
        return bool(head.newest == self._seen or head.oldest <= self._seen + 1 <= head.newest)

    async def _changed(self, tx: Tx, newest: int) -> _Changed | None:
        """What the feed names since it was last read; None where that is too much to follow."""
        if newest == self._seen:
            return _Changed(newest)
        query = (
            select(change.c.kind, change.c.key)
            .where(change.c.seq > self._seen, change.c.seq <= newest, change.c.kind != "event")
            .distinct()
            .limit(MANY + 1)
        )
        rows = (await tx.conn.execute(query)).all()
        if len(rows) > MANY:
            return None
        keys: dict[str, set[str]] = defaultdict(set)
        for kind, key in rows:
            keys[kind].add(key)
        prefix = f"{self.cluster}/"
        machines = frozenset(key.removeprefix(prefix) for key in keys["machine"] if key.startswith(prefix))
        runs = frozenset(key.partition("/")[2] for key in keys["run"])
        return _Changed(newest, machines, runs, self.cluster in keys["cluster"])

    async def _follow(self, tx: Tx, changed: _Changed, factors: Any) -> Snapshot:
        """Read what changed; nothing of it is kept until all of it is read."""
        assert self._snapshot is not None
        if not (changed.machines or changed.runs or changed.room) and factors == self._snapshot.factors:
            self._seen = changed.seen
            return self._snapshot
        machines = await read_machines(tx, self.cluster, changed.machines) if changed.machines else []
        asks, holdings = await read_claims(tx, self.cluster, changed.runs) if changed.runs else ([], [])
        reserved = await read_reserved(tx, self.cluster) if changed.room else self._snapshot.reserved
        self._put(changed.machines, machines, changed.runs, asks, holdings)
        return self._keep(changed.seen, reserved, factors)

    def _put(
        self,
        names: Collection[str],
        machines: Iterable[Machine],
        uids: Collection[str],
        asks: Iterable[Ask],
        holdings: Iterable[Holding],
    ) -> None:
        found = {machine.name: machine for machine in machines}
        for name in names:
            _replace(self._machines, name, found.get(name))
        waiting = {ask.run_uid: ask for ask in asks}
        held: dict[str, list[Holding]] = defaultdict(list)
        for holding in holdings:
            held[holding.run_uid].append(holding)
        for uid in uids:
            _replace(self._asks, uid, waiting.get(uid))
            _replace(self._holdings, uid, tuple(held[uid]) if uid in held else None)

    def _keep(self, seen: int, reserved: tuple[Reserved, ...], factors: Any) -> Snapshot:
        before = self._snapshot
        gangs = sorted(self._holdings.values(), key=lambda gang: gang[0].claim)
        parts = Snapshot(
            cluster=self.cluster,
            machines=tuple(sorted(self._machines.values(), key=attrgetter("name"))),
            holdings=tuple(holding for gang in gangs for holding in gang),
            asks=tuple(sorted(self._asks.values(), key=lambda ask: (-ask.priority, ask.submitted_at, ask.run_uid))),
            reserved=reserved,
            factors=factors,
        )
        self._seen = seen
        self._snapshot = parts if before is None else _sharing(before, parts)
        return self._snapshot

    async def _load(self, tx: Tx, head: Any) -> Snapshot:
        whole = await load_snapshot(tx, self.cluster)
        self.loads += 1
        self._machines, self._asks, self._holdings = {}, {}, {}
        names, uids = {machine.name for machine in whole.machines}, {ask.run_uid for ask in whole.asks}
        uids |= {holding.run_uid for holding in whole.holdings}
        self._put(names, whole.machines, uids, whole.asks, whole.holdings)
        self._loaded_at = tx.now
        return self._keep(head.newest, whole.reserved, whole.factors)


def _replace(kept: dict[str, Any], key: str, value: Any) -> None:
    """An equal value leaves the object that is there, which readers may know by its identity."""
    if value is None:
        kept.pop(key, None)
    elif kept.get(key) != value:
        kept[key] = value


def _sharing(before: Snapshot, after: Snapshot) -> Snapshot:
    """`after`, with the parts of `before` that are equal."""
    return Snapshot(
        cluster=after.cluster,
        machines=before.machines if before.machines == after.machines else after.machines,
        holdings=before.holdings if before.holdings == after.holdings else after.holdings,
        asks=before.asks if before.asks == after.asks else after.asks,
        reserved=before.reserved if before.reserved == after.reserved else after.reserved,
        factors=before.factors if before.factors == after.factors else after.factors,
    )
