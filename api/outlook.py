"""What this process keeps of a cluster for those who ask the planner: its snapshot, the next pass, expected starts."""

import asyncio
import time
from dataclasses import dataclass

from astraeus.ledger.core import Tx
from astraeus.ledger.keeper import SnapshotKeeper
from astraeus.placement.expect import CLAIMS_MOST, Expected, expected
from astraeus.placement.planner import Planner
from astraeus.placement.types import Plan, Snapshot

KEPT_SECONDS = 15.0
"""While nothing changed, expected starts are worked out anew this often: time goes by, and limits are passed."""
LONG_SECONDS = 0.5
SHARE = 8
"""What took long is not done again, whatever changed, for this many times as long."""


@dataclass(frozen=True, slots=True)
class _Kept:
    """Expected starts, what they were worked out from and when, and the processor time that took, in seconds."""

    answer: Expected
    snapshot: Snapshot
    now: float
    took: float

    def serves(self, snapshot: Snapshot, now: float, claim: int | None) -> bool:
        """Whether they are good enough for this snapshot, and for one claim of it."""
        if snapshot is self.snapshot:
            return 0 <= now - self.now < max(KEPT_SECONDS, SHARE * self.took)
        if claim is not None and claim not in self.answer.asked and len(self.answer.asked) < CLAIMS_MOST:
            return False
        return self.took > LONG_SECONDS and 0 <= now - self.now < SHARE * self.took


class Outlook:
    """One cluster. Whatever the planner does is done on a thread."""

    def __init__(self, cluster: str) -> None:
        self._keeper = SnapshotKeeper(cluster)
        self._planner = Planner()
        self._kept: _Kept | None = None
        self._turn = asyncio.Lock()

    async def snapshot(self, tx: Tx) -> Snapshot:
        """The cluster as `tx` sees it; only what changed since the last time is read."""
        return await self._keeper.current(tx)

    async def plan(self, snapshot: Snapshot, now: float) -> Plan:
        """What a pass over this snapshot, or one that differs little from it, decides."""
        return await asyncio.to_thread(self._planner.plan, snapshot, now)

    async def expected(self, snapshot: Snapshot, now: float, claim: int | None = None) -> Expected:
        """When those who wait start at the latest; on a large cluster as of a few seconds ago.

        A `claim` that came since then is looked at all the same.
        """
        async with self._turn:
            if self._kept is None or not self._kept.serves(snapshot, now, claim):
                answer, took = await asyncio.to_thread(_timed, snapshot, now)
                self._kept = _Kept(answer, snapshot, now, took)
            return self._kept.answer

    async def expected_of(self, claim: int, snapshot: Snapshot, now: float) -> Expected:
        """The same of one claim that is only asked about; one question at a time."""
        async with self._turn:
            return await asyncio.to_thread(expected, snapshot, now, only=claim)


class Outlooks:
    """Those of all clusters that were asked about."""

    def __init__(self) -> None:
        self._of: dict[str, Outlook] = {}

    def of(self, cluster: str) -> Outlook:
        """That of a cluster which is known to be there."""
        return self._of.setdefault(cluster, Outlook(cluster))


def _timed(snapshot: Snapshot, now: float) -> tuple[Expected, float]:
    began = time.thread_time()
    return expected(snapshot, now), time.thread_time() - began
