"""The rooms of one pass: what is free now, what will be when everything that stops has stopped, and what victims hold.

Every decision of the pass is taken out of all of them at once, so that later claims see it wherever they look.
"""

from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from astraeus.placement.fleet import Bools, Fleet, Ints
from astraeus.placement.holdings import Holdings, Taking, joined
from astraeus.placement.memory import Memory
from astraeus.placement.room import Owned, Room
from astraeus.placement.types import Ask

NOW, SOON = "now", "soon"


class Unpromised(NamedTuple):
    """What is free or stopping, and what is kept for claims under this priority."""

    priority: int


Depth = str | int | Unpromised
"""NOW: free. SOON: free or stopping. A number: also what evictable runs of at most that priority hold."""


class Layer(NamedTuple):
    """Which room: how deep it looks, and whether the room kept for the first in line is left out."""

    depth: Depth
    protected: bool


@dataclass
class Kept:
    """Room kept under a claim's name, and what that took from each layer."""

    ask: Ask
    taking: Taking
    owner: str
    taken: list[tuple[Room, Taking, Owned]] = field(default_factory=list)

    def is_in(self, depth: Depth) -> bool:
        """Whether this room is left out at a depth."""
        return not isinstance(depth, Unpromised) or self.ask.priority >= depth.priority


class Layers:
    """All rooms of a pass, made when first looked at."""

    def __init__(self, fleet: Fleet, holdings: Holdings, memory: Memory) -> None:
        self.fleet = fleet
        self.holdings = holdings
        self.memory = memory
        self.stopping: Bools = holdings.stopping.copy()
        self.looks_ahead = bool(self.stopping.any())
        """Whether anything is stopping at all."""
        self._start = memory.begin(holdings)
        self._rooms: dict[tuple[Depth, bool], Room] = {}
        self._taken: list[tuple[Taking, str]] = []
        self._kept: dict[int, Kept] = {}
        self._first: tuple[Taking, str, int] | None = None
        """What is protected, for whom, and how much had been given away by then."""

    def room(self, depth: Depth, protected: bool = False) -> Room:
        """One of the rooms."""
        protected = protected and self._first is not None
        found = self._rooms.get((depth, protected))
        if found is None:
            layer = Layer(depth, protected)
            found = self._rooms[layer] = self._make(layer)
        return found

    @property
    def free_at_first(self) -> Ints:
        """The GPUs of every machine that nobody held when the pass began."""
        return self._start.free

    def take(self, taking: Taking, owner: str) -> None:
        """Give room away for the rest of the pass."""
        self._taken.append((taking, owner))
        self._step("take", owner, taking)
        for room in self._rooms.values():
            room.take(taking, owner)

    def keep(self, ask: Ask, taking: Taking, owner: str) -> None:
        """Keep room for a waiting claim; `drop` undoes it."""
        self._kept[ask.claim] = kept = Kept(ask, taking, owner)
        self._step(ask.claim, owner, taking)
        for (depth, _), room in self._rooms.items():
            if kept.is_in(depth):
                before = room.owned_by(taking.rows)
                kept.taken.append((room, room.take(taking, owner), before))

    def drop(self, claim: int) -> None:
        """Free the room kept for a claim, if there is any."""
        kept = self._kept.pop(claim, None)
        if kept is None:
            return
        self.memory.states.step("drop", claim)
        for room, taken, before in kept.taken:
            room.give_back(taken)
            room.disown(kept.owner, taken.rows, before)

    def kept_gpus(self) -> Ints:
        """Every machine's GPUs that are kept for waiting claims, as masks."""
        kept = np.zeros(self.fleet.size, np.int64)
        for one in self._kept.values():
            kept[one.taking.rows] |= one.taking.masks
        return kept

    def protect(self, taking: Taking, owner: str) -> Taking:
        """Leave this room out of what later claims see when they look at a protected layer; answers what that is.

        What is kept under another claim's name already stays that claim's.
        """
        masks = taking.masks & ~self.kept_gpus()[taking.rows]
        mine = (masks != 0) | (taking.masks == 0)
        first = Taking(taking.rows[mine], masks[mine], taking.cpu[mine], taking.memory[mine])
        self._first = first, owner, len(self._taken)
        self._step("protect", owner, first)
        return first

    def stop(self, victims: Bools) -> None:
        """Count some holdings as stopping from here on."""
        fresh = victims & ~self.stopping
        self.stopping |= victims
        self.looks_ahead = True
        self.memory.states.step("stop", victims.tobytes())
        for (depth, protected), room in self._rooms.items():
            if depth == NOW:
                continue
            freed = self.holdings.taking(fresh & ~self.holdings.evictable(depth) if isinstance(depth, int) else fresh)
            room.give_back(self._but_first(freed) if protected else freed)

    def _but_first(self, freed: Taking) -> Taking:
        """This room without what is protected of it: that is not free in a protected layer, whoever leaves it."""
        if self._first is None:
            return freed
        first = np.zeros(self.fleet.size, np.int64)
        first[self._first[0].rows] = self._first[0].masks
        return replace(freed, masks=freed.masks & ~first[freed.rows])

    def _step(self, what: str | int, owner: str, taking: Taking) -> None:
        arrays = (taking.rows, taking.masks, taking.cpu, taking.memory)
        self.memory.states.step(what, owner, *(array.tobytes() for array in arrays))

    def _take_all(self, room: Room, taken: list[tuple[Taking, str]], depth: Depth) -> None:
        """Take this out of a room; who holds what is told of no room but what is free now."""
        if depth == NOW:
            for taking, owner in taken:
                room.take(taking, owner)
        elif taken:
            room.take(joined([taking for taking, _ in taken]), "")

    def _make(self, layer: Layer) -> Room:
        """The room of a layer: who holds most of a machine is who took it first, whenever the layer is made."""
        room = self._start.copy()
        given: Bools = np.zeros(self.stopping.size, np.bool_)
        if layer.depth != NOW:
            given = self.stopping.copy()
        if isinstance(layer.depth, int):
            given = given | self.holdings.evictable(layer.depth)
        room.give_back(self.holdings.taking(given))
        first = self._first if layer.protected else None
        before = len(self._taken) if first is None else first[2]
        self._take_all(room, self._taken[:before], layer.depth)
        taken = []
        for kept in self._kept.values():
            if kept.is_in(layer.depth):
                before_kept = room.owned_by(kept.taking.rows)
                taken.append((kept, room.take(kept.taking, kept.owner), before_kept))
        if first is not None:
            room.take(*first[:2])
        self._take_all(room, self._taken[before:], layer.depth)
        room = self.memory.recall(layer, room)
        for kept, part, owned in taken:
            kept.taken.append((room, part, owned))
        return room
