"""The scheduler's decisions: a snapshot in, a plan out. Nothing here reads a clock, a file or a database."""

import threading

from astraeus.placement.memory import Memory
from astraeus.placement.passing import Pass, in_order
from astraeus.placement.types import Plan, Snapshot

__all__ = ["Planner", "in_order", "plan"]


def plan(snapshot: Snapshot, now: float) -> Plan:
    """Decide who is placed where, who must make room, and say for all others why they wait."""
    return Pass(snapshot, now, Memory()).run()


class Planner:
    """Passes one after another over the same cluster: each answers as `plan` would, and works only on what changed.

    What did not change is known by the identity of the snapshot's parts, as `SnapshotKeeper` hands them over.
    """

    def __init__(self) -> None:
        self._memory = Memory()
        self._turn = threading.Lock()

    def plan(self, snapshot: Snapshot, now: float) -> Plan:
        """The same as `plan(snapshot, now)`."""
        with self._turn:
            memory, self._memory = self._memory, Memory()
            one = Pass(snapshot, now, memory)
            decided = one.run()
            # A pass that fails leaves nothing behind.
            self._memory = one.memory
            return decided
