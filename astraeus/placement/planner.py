"""The scheduler's decisions: a snapshot in, a plan out. Nothing here reads a clock, a file or a database."""

from astraeus.placement.building import fleet_of
from astraeus.placement.memory import Memory
from astraeus.placement.passing import Pass
from astraeus.placement.shares import Accounts, Use, in_order
from astraeus.placement.types import Ask, Plan, Snapshot

__all__ = ["Planner", "in_order", "plan", "queue", "uses"]


def plan(snapshot: Snapshot, now: float) -> Plan:
    """Decide who is placed where, who must make room, and say for all others why they wait."""
    return Pass(snapshot, now, Memory(fleet_of(snapshot.machines))).run()


def queue(snapshot: Snapshot, now: float) -> list[Ask]:
    """The claims that wait, in the order in which the next pass looks at them."""
    return in_order(snapshot.asks, Accounts.of(snapshot, now).ranks)


def uses(snapshot: Snapshot, now: float) -> dict[str, Use]:
    """How the workspaces of a cluster stand."""
    return Accounts.whole(snapshot, now).uses()


class Planner:
    """Passes one after another over the same cluster: each answers as `plan` would, and works only on what changed.

    What did not change is known by the identity of the snapshot's parts, as `SnapshotKeeper` hands them over.
    """

    def __init__(self, terse: bool = False) -> None:
        """With `terse`, who waits is told no reason."""
        self._terse = terse
        self._memories: list[Memory] = []

    def plan(self, snapshot: Snapshot, now: float) -> Plan:
        """The same as `plan(snapshot, now)`."""
        # A pass has its memory to itself: one beside it starts anew, and one that fails leaves nothing behind.
        memories, self._memories = self._memories, []
        memory = memories[0].of(snapshot.machines) if memories else Memory(fleet_of(snapshot.machines))
        decided = Pass(snapshot, now, memory, self._terse).run()
        self._memories = [memory]
        return decided
