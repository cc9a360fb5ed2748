"""What one pass leaves for the next: rooms as they were at its end, and who waited without changing anything."""

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field

from astraeus.placement.building import build, is_worn
from astraeus.placement.fleet import Fleet
from astraeus.placement.holdings import Holdings
from astraeus.placement.mending import mend
from astraeus.placement.need import Need
from astraeus.placement.reasons import Reason, Seen
from astraeus.placement.room import Room
from astraeus.placement.types import Ask, Machine, Snapshot, Wait

ROOMS_MOST = 16


@dataclass(slots=True)
class Waiting:
    """A claim that a pass does not place; `said` is its reason where it is known already, `more` are further blockers.

    `over` says that it is over its workspace's quota, and `fits` that it would have room; `behind` is the workspace
    whose runs have room that it would have had, but for their having used less of their share.

    Where the claim was no cause of any change, `state` is the state of the rooms in which it was looked at; then it
    waits again in the same state, as long as its patience lasts or is over as it was (`early`). `told` is what it was
    told, `told_in` the state of the rooms at the end of that pass and `told_of` that of its own room, `seen` what the
    reason was read from.
    """

    ask: Ask
    need: Need
    protected: bool
    early: bool
    patient: bool = False
    said: str | None = None
    more: tuple[str, ...] = ()
    over: bool = False
    fits: bool = False
    behind: str | None = None
    victims: tuple[str, ...] = ()
    starts_by: float | None = None
    state: int | None = None
    reason: Reason | None = None
    told: Wait | None = None
    told_in: int | None = None
    told_of: object = None
    seen: Seen | None = None


class States:
    """Numbers for the states of a pass's rooms: the same input and the same steps lead to the same number."""

    def __init__(self) -> None:
        self.now = 0
        self._count = 0
        self._steps: dict[Hashable, int] = {}
        self._before: dict[Hashable, int] = {}
        self._begun: tuple[Snapshot, int] | None = None

    def begin(self, snapshot: Snapshot) -> None:
        """The state before the first step of a pass."""
        self._before, self._steps = self._steps, {}
        if self._begun is None or not _alike(self._begun[0], snapshot):
            self._count += 1
            self._begun = snapshot, self._count
        self.now = self._begun[1]

    def step(self, *what: Hashable) -> None:
        """Go on to the state after this step."""
        key = (self.now, what)
        number = self._before.get(key)
        if number is None:
            self._count += 1
            number = self._count
        self.now = self._steps[key] = number


def _alike(one: Snapshot, other: Snapshot) -> bool:
    """Whether two snapshots differ at most in who asks."""
    return (
        one.machines is other.machines
        and one.holdings is other.holdings
        and one.reserved == other.reserved
        and one.factors == other.factors
        and one.cluster == other.cluster
        and _quotas(one) == _quotas(other)
    )


def _quotas(snapshot: Snapshot) -> dict[str, int | None]:
    return {name: due.gpu_quota for name, due in snapshot.allotments.items()}


@dataclass
class Memory:
    """What is kept between passes over one fleet; one that is its `own`, and nobody else reads, can be mended."""

    fleet: Fleet
    own: bool = False
    start: tuple[Holdings, Room] | None = None
    rooms: dict[Hashable, Room] = field(default_factory=dict)
    states: States = field(default_factory=States)
    waiting: dict[int, Waiting] = field(default_factory=dict)
    queue: tuple[tuple[Ask, ...], Mapping[str, int], list[Ask]] = ((), {}, [])

    def of(self, machines: tuple[Machine, ...]) -> "Memory":
        """What is known of these machines: nothing where more about them changed than can be mended."""
        if self.fleet.given is machines and not is_worn(self.fleet):
            return self
        mended = mend(self.fleet, machines) if self.own and not is_worn(self.fleet) else None
        if mended is None:
            return Memory(build(machines), own=True)
        self.start = None
        for room in self.rooms.values():
            room.reconsider(*mended)
        return self

    def begin(self, holdings: Holdings) -> Room:
        """The room that these holdings leave."""
        if self.start is None or self.start[0] is not holdings:
            room = Room(self.fleet)
            room.hold(holdings)
            self.start = holdings, room
        return self.start[1]

    def recall(self, key: Hashable, room: Room) -> Room:
        """The room of this key from an earlier pass, made like the one given; that one where there is none."""
        kept = self.rooms.get(key)
        if kept is None:
            if len(self.rooms) >= ROOMS_MOST:
                self.rooms.clear()
            kept = self.rooms[key] = room
        else:
            kept.become(room)
        return kept
