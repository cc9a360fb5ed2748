"""Whose room a higher run takes: whole runs, the lowest priorities first, then the fewest, then the least work lost."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from astraeus.placement.choose import Found, find, may_hold
from astraeus.placement.fleet import Bools, Floats, Ints
from astraeus.placement.holdings import Holdings
from astraeus.placement.kinds import SLACK
from astraeus.placement.layers import SOON, Layers
from astraeus.placement.need import Need, Shape
from astraeus.placement.room import Room

DOMAINS_TRIED = 8
"""How many domains of a level are searched for a set of several victims, the most promising first."""


@dataclass
class Victims:
    """The runs of a snapshot that could be stopped; `of[h]` is the run of holding h."""

    holdings: Holdings
    memo: dict[Any, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.claims, first, self.of = np.unique(self.holdings.claims, return_index=True, return_inverse=True)
        self.priority = self.holdings.priority[first]
        self.started = self.holdings.started[first]

    def pairs(self, level: int, shape: Shape, layers: Layers) -> tuple[Ints, Ints, Ints, Ints]:
        """Holdings with a place on a level, and the distinct (run, domain) pairs they belong to."""
        key = (level, id(shape.kind.ids(level)))
        if key not in self.memo:
            ids = shape.kind.ids(level)[self.holdings.rows]
            held = np.flatnonzero(self.holdings.preemptible & (ids >= 0))
            domains = max(1, len(layers.fleet.domains[level].keys))
            found, inverse = np.unique(self.of[held] * domains + ids[held], return_inverse=True)
            self.memo[key] = held, inverse, found // domains, found % domains
        pairs: tuple[Ints, Ints, Ints, Ints] = self.memo[key]
        return pairs

    def holdings_of(self, chosen: list[int]) -> Bools:
        """All holdings of some runs."""
        return np.isin(self.of, np.array(chosen, np.int64))

    def cost(self, chosen: list[int]) -> tuple[int, tuple[int, ...], float]:
        """What is weighed between sets of victims whose highest priority is the same; less is better."""
        priorities = tuple(sorted((int(self.priority[v]) for v in chosen), reverse=True))
        return len(chosen), priorities, -float(self.started[chosen].sum())


def victims_of(holdings: Holdings) -> Victims:
    """The runs of these holdings, kept with them."""
    if "victims" not in holdings.memo:
        holdings.memo["victims"] = Victims(holdings)
    victims: Victims = holdings.memo["victims"]
    return victims


@dataclass(frozen=True)
class Search:
    """One look for victims of at most one priority, in the rooms of a pass."""

    victims: Victims
    layers: Layers
    threshold: int
    protected: bool

    @property
    def soon(self) -> Room:
        """The room without victims."""
        return self.layers.room(SOON, self.protected)

    @property
    def beyond(self) -> Room:
        """The room if all runs of at most this priority were stopped."""
        return self.layers.room(self.threshold, self.protected)

    @property
    def open(self) -> Bools:
        """The holdings that may be freed."""
        return self.victims.holdings.evictable(self.threshold) & ~self.layers.stopping


def find_victims(
    need: Need, priority: int, layers: Layers, avoid: frozenset[str], protected: bool
) -> tuple[Bools, Found] | None:
    """The holdings to be freed for a gang of this priority and the room it then has, or None where that cannot help."""
    thresholds = layers.holdings.victim_priorities(priority)
    if not thresholds:
        return None
    victims = victims_of(layers.holdings)
    searches = [Search(victims, layers, threshold, protected) for threshold in thresholds]
    search = _lowest(need, searches)
    if search is None:
        return None
    chosen = _one(need, search) or _several(need, search)
    if chosen is None:
        return None
    found = find(need, _without(chosen, search), avoid)
    return None if found is None else (victims.holdings_of(_needed(chosen, found, search)), found)


def _lowest(need: Need, searches: list[Search]) -> Search | None:
    """The lowest threshold at which stopping everybody helps; room only grows with the threshold."""
    if not searches or not _feasible(need, searches[-1]):
        return None
    low, high = 0, len(searches) - 1
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if _feasible(need, searches[middle]) else (middle + 1, high)
    return searches[low]


def _feasible(need: Need, search: Search) -> bool:
    beyond = search.beyond
    return may_hold(need, beyond) and any(
        beyond.look(shape.kind).may_hold(level, shape.size) for level, shape in need.steps
    )


def _without(chosen: list[int], search: Search) -> Room:
    room = search.soon.copy()
    room.give_back(search.victims.holdings.taking(search.victims.holdings_of(chosen) & search.open))
    return room


def _fits_with(shape: Shape, rows: Ints, room: Room, masks: Ints, cpu: Floats, memory: Floats) -> Bools:
    """Whether machines fit a worker when this much more of each is free."""
    kind = shape.kind
    fits: Bools = (
        kind.usable[rows]
        & (np.bitwise_count((room.free[rows] | masks) & kind.allowed[rows]) >= kind.gpus)
        & (room.cpu[rows] + cpu + SLACK >= kind.cpu)
        & (room.memory[rows] + memory + SLACK >= kind.memory)
    )
    return fits


def _gains(level: int, shape: Shape, search: Search) -> tuple[Ints, Ints, Ints, Ints]:
    """Per (run, domain): how many more machines of the domain fit if that run alone stops; and what fits already."""
    held, inverse, runs, domains = search.victims.pairs(level, shape, search.layers)
    view, of = search.soon.view(shape.kind), search.victims.holdings
    rows = of.rows[held]
    fits = _fits_with(shape, rows, search.soon, of.masks[held], of.cpu[held], of.memory[held])
    useful = fits & ~view.fit[rows] & search.open[held]
    gains = np.bincount(inverse, useful, minlength=runs.size).astype(np.int64)
    return gains, runs, domains, view.counts(level)


def _one(need: Need, search: Search) -> list[int] | None:
    """The single run whose room is enough, with least work lost, on the tightest level, with least left over."""
    best: tuple[float, int, int, int] | None = None
    for level, shape in need.steps:
        size = shape.wanted(level)
        gains, runs, domains, counts = _gains(level, shape, search)
        good = np.flatnonzero((gains > 0) & (counts[domains] + gains >= size))
        if not good.size:
            continue
        left = counts[domains[good]] + gains[good] - size
        order = np.lexsort((runs[good], left, -search.victims.started[runs[good]]))
        run = int(runs[good[order[0]]])
        found = (-float(search.victims.started[run]), level, int(left[order[0]]), run)
        best = found if best is None else min(best, found)
    return None if best is None else [best[3]]


def _several(need: Need, search: Search) -> list[int] | None:
    """The fewest runs found that together free enough; loose levels first, since they bound the tight ones."""
    best: tuple[tuple[int, tuple[int, ...], float], int, list[int]] | None = None
    for level, shape in reversed(need.steps):
        for bound, domain in _promising(level, shape, search):
            if best is not None and bound > best[0][0]:
                break
            chosen = _cover(level, domain, shape, search)
            found = (search.victims.cost(chosen), level, chosen)
            best = found if best is None else min(best, found)
    return None if best is None else best[2]


def _promising(level: int, shape: Shape, search: Search) -> Iterator[tuple[int, int]]:
    """Domains that can hold the gang, with the fewest victims each could do with, fewest first."""
    size = shape.wanted(level)
    gains, _, domains, counts = _gains(level, shape, search)
    most = np.zeros(counts.size, np.int64)
    np.maximum.at(most, domains, gains)
    able = np.flatnonzero(search.beyond.view(shape.kind).counts(level) >= size)
    bounds = np.where(most[able] > 0, -(-(size - counts[able]) // np.maximum(most[able], 1)), 2)
    bounds = np.maximum(bounds, 2)
    order = np.lexsort((able, -counts[able], bounds))[:DOMAINS_TRIED]
    yield from zip(bounds[order].tolist(), able[order].tolist(), strict=True)


@dataclass
class _Domain:
    """The machines of one domain while victims are chosen for it."""

    shape: Shape
    search: Search
    rows: Ints
    held: Ints
    masks: Ints
    cpu: Floats
    memory: Floats

    @classmethod
    def of(cls, level: int, domain: int, shape: Shape, search: Search) -> "_Domain":
        """The domain with nobody stopped."""
        rows = np.flatnonzero(search.beyond.view(shape.kind).fit & (shape.kind.ids(level) == domain))
        place = np.full(search.layers.fleet.size, -1, np.int64)
        place[rows] = np.arange(rows.size)
        held = np.flatnonzero(search.open & (place[search.victims.holdings.rows] >= 0))
        self = cls(shape, search, rows, held, np.zeros(rows.size, np.int64), np.zeros(rows.size), np.zeros(rows.size))
        self.at = place[search.victims.holdings.rows[held]]
        return self

    at: Ints = field(init=False)

    def free(self, mine: Bools) -> None:
        """Count some of the domain's holdings as free."""
        all_held, chosen = self.search.victims.holdings, self.held[mine]
        np.bitwise_or.at(self.masks, self.at[mine], all_held.masks[chosen])
        np.add.at(self.cpu, self.at[mine], all_held.cpu[chosen])
        np.add.at(self.memory, self.at[mine], all_held.memory[chosen])

    def fits(self) -> Bools:
        """The machines that fit so far."""
        return _fits_with(self.shape, self.rows, self.search.soon, self.masks, self.cpu, self.memory)

    def gains(self, fits: Bools) -> Ints:
        """For every run, how many more machines fit if it stops too."""
        all_held, at = self.search.victims.holdings, self.at
        with_it = _fits_with(
            self.shape,
            self.rows[at],
            self.search.soon,
            self.masks[at] | all_held.masks[self.held],
            self.cpu[at] + all_held.cpu[self.held],
            self.memory[at] + all_held.memory[self.held],
        )
        runs = self.search.victims
        return np.bincount(runs.of[self.held], with_it & ~fits[at], minlength=runs.claims.size).astype(np.int64)

    def crowd(self, fits: Bools, spent: list[int]) -> list[int]:
        """The runs of the machine that needs fewest of them stopped, where no single one helps."""
        runs = self.search.victims
        waiting = ~fits[self.at] & ~np.isin(runs.of[self.held], np.array(spent, np.int64))
        counts = np.bincount(self.at[waiting], minlength=self.rows.size)
        row = int(np.lexsort((self.rows, np.where(counts > 0, counts, np.iinfo(np.int64).max)))[0])
        return [int(run) for run in np.unique(runs.of[self.held][waiting & (self.at == row)])]


def _cover(level: int, domain: int, shape: Shape, search: Search) -> list[int]:
    """A small set of runs that frees enough machines of a domain which can hold the gang when all are stopped."""
    size, runs = shape.wanted(level), search.victims
    place = _Domain.of(level, domain, shape, search)
    of = runs.of[place.held]
    chosen: list[int] = []
    fits = place.fits()
    while (missing := size - int(fits.sum())) > 0:
        gains = np.minimum(place.gains(fits), missing)
        if gains.max() > 0:
            order = np.lexsort((runs.claims, -runs.started, runs.priority, -gains))
            more = [int(order[0])]
        else:
            more = place.crowd(fits, chosen)
        chosen += more
        place.free(np.isin(of, np.array(more, np.int64)))
        fits = place.fits()
    return _pruned(chosen, size, place)


def _pruned(chosen: list[int], size: int, place: _Domain) -> list[int]:
    runs = place.search.victims
    for run in sorted(chosen, key=lambda v: (-int(runs.priority[v]), float(runs.started[v]), v)):
        rest = [other for other in chosen if other != run]
        place.masks[:], place.cpu[:], place.memory[:] = 0, 0, 0
        place.free(np.isin(runs.of[place.held], np.array(rest, np.int64)))
        if int(place.fits().sum()) >= size:
            chosen = rest
    return sorted(chosen)


def _needed(chosen: list[int], found: Found, search: Search) -> list[int]:
    """The victims without which the machines that were found would not do."""
    if len(chosen) == 1:
        return chosen
    runs = search.victims
    needed = list(chosen)
    for run in sorted(chosen, key=lambda v: (-int(runs.priority[v]), float(runs.started[v]), v)):
        rest = [other for other in needed if other != run]
        room = _without(rest, search)
        if room.view(found.shape.kind).fit[found.rows].all():
            needed = rest
    return needed
