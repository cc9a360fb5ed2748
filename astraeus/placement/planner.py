"""One scheduling pass: a snapshot in, a plan out. Nothing here reads a clock, a file or a database."""

from dataclasses import dataclass, field

from astraeus.model import words
from astraeus.placement.choose import Found, find, taking_of
from astraeus.placement.fleet import Fleet, fleet_of
from astraeus.placement.grant import grant_of, place_of
from astraeus.placement.ladder import LEVELS
from astraeus.placement.need import Need, ideal_level, need_of
from astraeus.placement.reasons import reason_of
from astraeus.placement.room import Holdings, Room
from astraeus.placement.types import Ask, Grant, Plan, Snapshot, Wait
from astraeus.placement.wanted import wanted_place


def plan(snapshot: Snapshot, now: float) -> Plan:
    """Decide who is placed where, and say for all others why they wait."""
    return _Pass(snapshot, now).run()


@dataclass
class _Pass:
    snapshot: Snapshot
    now: float
    grants: list[Grant] = field(default_factory=list)
    waits: list[tuple[Ask, Need, str | None]] = field(default_factory=list)
    deadlines: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.fleet: Fleet = fleet_of(self.snapshot.machines)
        self.holdings = Holdings(self.snapshot.holdings, self.fleet)
        self.room = Room(self.fleet)
        self.room.hold(self.holdings)

    def run(self) -> Plan:
        for ask in sorted(self.snapshot.asks, key=lambda ask: (-ask.priority, ask.submitted_at, ask.claim)):
            self._decide(ask)
        waits = tuple(self._wait(ask, need, said, i + 1) for i, (ask, need, said) in enumerate(self.waits))
        return Plan(tuple(self.grants), waits, next_change_at=min(self.deadlines, default=None))

    def _decide(self, ask: Ask) -> None:
        need = need_of(ask.resources, self.fleet)
        found = find(need, self.room, ask.avoid)
        if found is None:
            self.waits.append((ask, need, None))
        elif self.now < ask.patience_until and (better := self._better(need, found)):
            self.waits.append((ask, need, self._patient(ask, need, found, better)))
            self.deadlines.append(ask.patience_until)
        else:
            self._grant(ask, found)

    def _better(self, need: Need, found: Found) -> int | None:
        ideal = ideal_level(need, self.fleet)
        if ideal is None or LEVELS[ideal[0]].rung >= found.rung:
            return None
        return ideal[0]

    def _grant(self, ask: Ask, found: Found) -> None:
        taking = taking_of(found, self.room.view(found.shape.worker))
        self.room.take(taking, f"in use by {ask.run_name}")
        self.grants.append(grant_of(ask, found, taking, self.fleet, self.snapshot.factors))

    def _patient(self, ask: Ask, need: Need, found: Found, level: int) -> str:
        wanted, wanted_gbps = wanted_place(need, level, self.room, self.holdings, self.now, self.snapshot.factors)
        place = place_of(found, self.fleet, self.snapshot.factors)
        key = self.fleet.domains[found.level].keys[found.domain]
        return words.waiting_for_tighter(
            ask.patience_until - self.now,
            wanted,
            wanted_gbps,
            LEVELS[found.level].now.format(*key),
            None if place.estimate is None else place.estimate.busbw_gbps,
        )

    def _wait(self, ask: Ask, need: Need, said: str | None, position: int) -> Wait:
        if said is not None:
            return Wait(ask.claim, ask.run_uid, said, (said,), position)
        view = self.room.view(need.shapes[-1].worker)
        reason, blockers = reason_of(need, view, self.snapshot.cluster)
        return Wait(ask.claim, ask.run_uid, reason, blockers, position)
