"""One scheduling pass: a snapshot in, a plan out. Nothing here reads a clock, a file or a database."""

from collections import defaultdict
from dataclasses import dataclass, field

import numpy as np

from astraeus.model import words
from astraeus.placement.backfill import Owed, gather, keeping
from astraeus.placement.choose import Found, find, taking_of, together
from astraeus.placement.fleet import Ints
from astraeus.placement.freeing import Freeing
from astraeus.placement.grant import grant_of, place_of
from astraeus.placement.holdings import Taking, holdings_of
from astraeus.placement.kinds import SLACK, Kind
from astraeus.placement.ladder import LEVELS
from astraeus.placement.layers import NOW, SOON, Layers, Unpromised
from astraeus.placement.memory import Memory, Waiting
from astraeus.placement.need import Need, need_of
from astraeus.placement.overtaken import Overtaken
from astraeus.placement.preempt import find_victims
from astraeus.placement.reasons import Seen, holds, reason_of
from astraeus.placement.room import Room
from astraeus.placement.shares import Accounts, in_order
from astraeus.placement.types import Ask, Eviction, Grant, Plan, Reserved, Snapshot, Wait
from astraeus.placement.wanted import wanted_place


@dataclass
class Pass:
    """The decisions of one pass, on what an earlier one over these machines left in `memory`.

    A `terse` one gives no reasons.
    """

    snapshot: Snapshot
    now: float
    memory: Memory
    terse: bool = False
    grants: list[Grant] = field(default_factory=list)
    waiting: list[Waiting] = field(default_factory=list)
    evictions: list[Eviction] = field(default_factory=list)
    reserved: list[Reserved] = field(default_factory=list)
    deadlines: list[float] = field(default_factory=list)
    kept: dict[int, tuple[Ask, Taking]] = field(default_factory=dict)
    shadow: float | None = None
    least_kept: float = np.inf
    """The lowest priority of those for whom room is kept."""

    def __post_init__(self) -> None:
        self.fleet = fleet = self.memory.fleet
        self.states = self.memory.states
        self.states.begin(self.snapshot)
        self.holdings = holdings_of(self.snapshot.holdings, fleet)
        self.layers = Layers(fleet, self.holdings, self.memory)
        self.least_victim = min(self.holdings.victim_priorities(), default=np.inf)
        self.freeing = Freeing(self.holdings, self.now)
        self.accounts = Accounts.of(self.snapshot, self.now, self.holdings)
        self.overtaken = Overtaken(self.accounts, self.layers)
        self.asks = self._queue()
        self.own: dict[int, list[Reserved]] = defaultdict(list)
        for row in self.snapshot.reserved:
            if row.machine in fleet.index:
                self.own[row.claim].append(row)

    def _queue(self) -> list[Ask]:
        asks, ranks = self.snapshot.asks, self.accounts.ranks
        if self.memory.queue[0] is not asks or self.memory.queue[1] != ranks:
            self.memory.queue = asks, ranks, in_order(asks, ranks)
        return self.memory.queue[2]

    def run(self) -> Plan:
        """Decide on everybody who waits, in the order of the queue."""
        self._keep_what_was_promised()
        before = self.memory.waiting
        for ask in self.asks:
            known = before.get(ask.claim)
            if known is not None and known.ask is ask and self._waits_on(known):
                self.waiting.append(known)
                if known.early:
                    self.deadlines.append(ask.patience_until)
            else:
                self._decide(ask)
        for waiting in self.waiting:
            if waiting.patient:
                self._look_again(waiting)
        waits = tuple([self._wait(waiting, i + 1) for i, waiting in enumerate(self.waiting)])
        self.memory.waiting = {waiting.ask.claim: waiting for waiting in self.waiting}
        return Plan(
            tuple(self.grants),
            waits,
            tuple(self.evictions),
            tuple(self.reserved),
            min(self.deadlines, default=None),
        )

    def _waits_on(self, known: Waiting) -> bool:
        """Whether a claim that waited without changing anything does so again."""
        ask, state = known.ask, self.states.now
        if known.state is None or known.early != (self.now < ask.patience_until):
            return False
        if known.protected != self._protected(ask):
            return False
        if known.state != state:
            if self.shadow is None or ask.claim in self.kept or self.snapshot.allotments:
                return False
            if ask.priority > self.least_victim or ask.priority > self.least_kept:
                return False
            if find(known.need, self.layers.room(NOW, known.protected), ask.avoid) is not None:
                return False
            if self.layers.looks_ahead and self._found_soon(known) is not None:
                return False
            known.state = state
        return True

    def _keep_what_was_promised(self) -> None:
        """Rooms reserved by earlier passes that are free or becoming so stay with their claims."""
        if not self.own:
            return
        for ask in self.asks:
            promised = ask.claim in self.own and not self.accounts.is_over(ask)
            taking = self._promised(ask) if promised else None
            if taking is not None:
                self._keep(ask, taking)

    def _promised(self, ask: Ask) -> Taking | None:
        rows = np.array([self.fleet.index[row.machine] for row in self.own[ask.claim]], np.int64)
        masks = np.array([row.gpu_mask for row in self.own[ask.claim]], np.int64)
        order = np.argsort(rows)
        rows, masks = rows[order], masks[order]
        shape, size = together(need_of(ask.resources, self.fleet), rows), rows.size
        if shape is None or not self._still_there(shape.kind, rows, masks):
            return None
        return Taking(rows, masks, np.full(size, shape.worker.cpu), np.full(size, shape.worker.memory))

    def _still_there(self, kind: Kind, rows: Ints, masks: Ints) -> bool:
        soon = self.layers.room(SOON)
        return bool(
            (np.bitwise_count(masks) == kind.gpus).all()
            and kind.usable[rows].all()
            and ((masks & ~soon.free[rows]) == 0).all()
            and (soon.cpu[rows] + SLACK >= kind.cpu).all()
            and (soon.memory[rows] + SLACK >= kind.memory).all()
        )

    def _keep(self, ask: Ask, taking: Taking) -> None:
        self.kept[ask.claim] = ask, taking
        self.least_kept = min(self.least_kept, ask.priority)
        self.layers.keep(ask, taking, f"kept for {ask.run_name}")

    def _drop(self, claim: int) -> Taking | None:
        self.layers.drop(claim)
        kept = self.kept.pop(claim, None)
        self.least_kept = min((ask.priority for ask, _ in self.kept.values()), default=np.inf)
        return None if kept is None else kept[1]

    def _decide(self, ask: Ask) -> None:
        state = self.states.now
        need = need_of(ask.resources, self.fleet)
        promised = self._drop(ask.claim) if ask.claim in self.kept else None
        waiting = Waiting(ask, need, self._protected(ask), early=self.now < ask.patience_until)
        waiting.over = self.accounts.is_over(ask)
        if waiting.over:
            waiting.fits = find(need, self.layers.room(NOW, waiting.protected), ask.avoid) is not None
        elif self._place(waiting, may_displace=promised is None):
            return
        self.waiting.append(waiting)
        if waiting.early:
            self.deadlines.append(ask.patience_until)
        if waiting.patient:
            return
        if not waiting.over:
            self._make_room(waiting, promised)
            waiting.behind = self.overtaken.by(ask, need, waiting.protected, self.kept.values())
        if self.states.now == state:
            waiting.state = state
        known = self.memory.waiting.get(ask.claim)
        if known is not None and known.need is need and known.protected == waiting.protected:
            waiting.reason, waiting.seen = known.reason, known.seen

    def _make_room(self, waiting: Waiting, promised: Taking | None) -> None:
        if promised is not None:
            self._reserve(waiting, promised)
        elif not self._await_stopping(waiting) and not self._preempt(waiting):
            self._gather(waiting)

    def _look_again(self, waiting: Waiting) -> None:
        """A patient claim holds nothing: what it could have now may have gone to others since."""
        waiting.over = self.accounts.is_over(waiting.ask)
        found = find(waiting.need, self.layers.room(NOW, waiting.protected), waiting.ask.avoid)
        better = None if found is None else self._better(waiting.need, found)
        if waiting.over:
            waiting.fits = found is not None
        elif found is None or better is None:
            self._make_room(waiting, None)
        elif not self.terse:
            waiting.said = self._patient(waiting, found, better)

    def _protected(self, ask: Ask) -> bool:
        """Whether room kept for the first in line is closed to a claim: it would not be out of it in time."""
        if self.shadow is None:
            return False
        limit = ask.time_limit_seconds
        return limit is None or self.now + limit > self.shadow

    def _place(self, waiting: Waiting, may_displace: bool) -> bool:
        """Grant what fits now, unless patience says to wait for a tighter rung."""
        ask, need = waiting.ask, waiting.need
        found = find(need, self.layers.room(NOW, waiting.protected), ask.avoid)
        if found is None and may_displace and (outranked := self._outranked(ask)):
            found = self._displace(waiting, outranked)
        if found is None:
            return False
        if waiting.early and self._better(need, found) is not None:
            waiting.patient = True
            return False
        self._grant(ask, found, waiting.protected)
        return True

    def _better(self, need: Need, found: Found) -> int | None:
        ideal = need.ideal
        return ideal[0] if ideal is not None and LEVELS[ideal[0]].rung < found.rung else None

    def _grant(self, ask: Ask, found: Found, protected: bool) -> None:
        taking = taking_of(found, self.layers.room(NOW, protected).view(found.shape.kind))
        self.layers.take(taking, f"in use by {ask.run_name}")
        self._count(ask, kept=False)
        self.overtaken.placed.append((ask, taking))
        self.freeing.take(taking, ask.time_limit_seconds)
        self.grants.append(grant_of(ask, found, taking, self.fleet, self.snapshot.factors))

    def _count(self, ask: Ask, *, kept: bool) -> None:
        """Let a claim count against the quota of its workspace."""
        if ask.workspace in self.accounts.quotas:
            self.accounts.count(ask, kept=kept)
            self.states.step("kept" if kept else "granted", ask.workspace, ask.resources.gpu_requests.count)

    def _outranked(self, ask: Ask) -> list[Ask]:
        """Claims of lower priority for which room is kept."""
        if ask.priority <= self.least_kept:
            return []
        return [other for other, _ in self.kept.values() if other.priority < ask.priority]

    def _displace(self, waiting: Waiting, outranked: list[Ask]) -> Found | None:
        """Rather than stop more runs, take room that is kept for lower claims; what is left of it stays theirs."""
        unpromised = self.layers.room(Unpromised(waiting.ask.priority), waiting.protected)
        if find(waiting.need, unpromised, waiting.ask.avoid) is None:
            return None
        promises = [(other, self._drop(other.claim)) for other in outranked]
        found = find(waiting.need, self.layers.room(NOW, waiting.protected), waiting.ask.avoid)
        soon = None if found else find(waiting.need, self.layers.room(SOON, waiting.protected), waiting.ask.avoid)
        held = found or soon
        if held is not None:
            view = self.layers.room(SOON, waiting.protected).view(held.shape.kind)
            self.layers.keep(waiting.ask, taking_of(held, view, self.layers.room(NOW).free), "")
        for other, taking in promises:
            if taking is not None and self._still_free(taking):
                self._keep(other, taking)
        self.layers.drop(waiting.ask.claim)
        return found

    def _still_free(self, taking: Taking) -> bool:
        return bool(((taking.masks & ~self.layers.room(SOON).free[taking.rows]) == 0).all())

    def _await_stopping(self, waiting: Waiting) -> bool:
        """Keep room that is becoming free by itself, so that nobody else is given it and nobody more is stopped."""
        if not self.layers.looks_ahead:
            return False
        found = self._found_soon(waiting)
        if found is None:
            return False
        self._reserve(waiting, self._soon_taking(found, waiting.protected))
        return True

    def _found_soon(self, waiting: Waiting) -> Found | None:
        return find(self._patient_need(waiting), self.layers.room(SOON, waiting.protected), waiting.ask.avoid)

    def _patient_need(self, waiting: Waiting) -> Need:
        """While patience lasts, only its ideal rung is worth a reservation or somebody else's end."""
        return waiting.need.tight() if waiting.early else waiting.need

    def _soon_taking(self, found: Found, protected: bool) -> Taking:
        view = self.layers.room(SOON, protected).view(found.shape.kind)
        return taking_of(found, view, self.layers.room(NOW, protected).free)

    def _preempt(self, waiting: Waiting) -> bool:
        if waiting.ask.priority <= self.least_victim:
            return False
        answer = find_victims(
            self._patient_need(waiting),
            waiting.ask.priority,
            self.layers,
            waiting.ask.avoid,
            waiting.protected,
        )
        if answer is None:
            return False
        chosen, found = answer
        seen = set()
        for place in np.flatnonzero(chosen):
            victim = self.holdings.all[int(place)]
            if victim.claim not in seen:
                seen.add(victim.claim)
                ask = waiting.ask
                self.evictions.append(Eviction(victim.claim, victim.run_uid, victim.attempt, ask.claim, ask.run_name))
                waiting.victims += (victim.run_name,)
        self.layers.stop(chosen)
        self._reserve(waiting, self._soon_taking(found, waiting.protected))
        return True

    def _reserve(self, waiting: Waiting, taking: Taking) -> None:
        self._keep(waiting.ask, taking)
        self._count(waiting.ask, kept=True)
        self._write_down(waiting.ask, taking)
        waiting.said = f"Waiting for {self._leaving(taking)} to make room"

    def _write_down(self, ask: Ask, taking: Taking) -> None:
        for row, mask in zip(taking.rows.tolist(), taking.masks.tolist(), strict=True):
            self.reserved.append(Reserved(ask.claim, self.fleet.machines[row].name, mask))

    def _leaving(self, taking: Taking) -> str:
        """The runs that must still leave the room kept."""
        there = self.layers.stopping & np.isin(self.holdings.rows, taking.rows)
        return ", ".join(sorted({self.holdings.all[int(i)].run_name for i in np.flatnonzero(there)}))

    def _gather(self, waiting: Waiting) -> None:
        """The first claim that does not fit has machines gathered for it; what cannot run at all is passed over."""
        if self.shadow is not None:
            return
        own = np.array([self.fleet.index[row.machine] for row in self.own.get(waiting.ask.claim, [])], np.int64)
        owed = Owed(self._patient_need(waiting), own, self.now - waiting.ask.patience_until, self.layers.kept_gpus())
        gathering = gather(owed, self.layers.room(NOW), self.freeing, self.now)
        if gathering is None:
            return
        self.shadow = gathering.at
        if gathering.until is not None:
            self.deadlines.append(gathering.until)
        taking = keeping(gathering.found, self.layers.room(NOW))
        self._write_down(waiting.ask, taking)
        kept = self.layers.protect(taking, f"kept for {waiting.ask.run_name}")
        self._count(waiting.ask, kept=True)
        self.overtaken.gathered = waiting.ask, kept
        if np.isfinite(self.shadow):
            waiting.starts_by = self.shadow
            waiting.more = (f"time limits free its room in {words.minutes_left(self.shadow - self.now)} at the latest",)

    def _patient(self, waiting: Waiting, found: Found, level: int) -> str:
        room, factors = self.layers.room(NOW, waiting.protected), self.snapshot.factors
        wanted, wanted_gbps = wanted_place(waiting.need, level, room, self.freeing, self.layers.kept_gpus(), factors)
        place = place_of(found, self.fleet, factors)
        key = self.fleet.domains[found.level].keys[found.domain]
        return words.waiting_for_tighter(
            waiting.ask.patience_until - self.now,
            wanted,
            wanted_gbps,
            LEVELS[found.level].now.format(*key),
            None if place.estimate is None else place.estimate.busbw_gbps,
        )

    def _wait(self, waiting: Waiting, position: int) -> Wait:
        ask, accounts = waiting.ask, self.accounts
        if self.terse:
            return Wait(ask.claim, ask.run_uid, "", (), position, waiting.victims, waiting.starts_by)
        if waiting.said is not None:
            return Wait(ask.claim, ask.run_uid, waiting.said, (waiting.said,), position, waiting.victims)
        if waiting.over:
            said = accounts.over_words(ask)
        elif waiting.behind is not None:
            said = accounts.share_words(ask, waiting.behind)
        else:
            return self._no_room(waiting, position)
        more = () if waiting.fits else self._no_room(waiting, position).blockers
        return Wait(ask.claim, ask.run_uid, said, (said, *more), position, starts_by=waiting.starts_by)

    def _reconsider(self, waiting: Waiting, room: Room) -> None:
        """Have the reason of a claim for which there is no room made anew where anything that it tells changed."""
        view, last = room.view(waiting.need.widest.kind), waiting.reason
        if last is None or not holds(last, waiting.need, view, waiting.seen):
            waiting.reason = reason_of(waiting.need, view, self.snapshot.cluster, last)
            waiting.seen = Seen.of(view, waiting.reason)

    def _no_room(self, waiting: Waiting, position: int) -> Wait:
        """What stands against a claim for which there is no room."""
        ask, told, last = waiting.ask, waiting.told, waiting.reason
        if waiting.state is None or waiting.told_in != self.states.now:
            room = self.layers.room(NOW, waiting.protected)
            if waiting.told_of is not room.state:
                self._reconsider(waiting, room)
            waiting.told_in, waiting.told_of = self.states.now, room.state
        why = waiting.reason
        assert why is not None
        if told is None or why is not last or told.position != position:
            blockers = why.blockers + waiting.more
            told = Wait(ask.claim, ask.run_uid, why.text, blockers, position, starts_by=waiting.starts_by)
            waiting.told = told
        return told
