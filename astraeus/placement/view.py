"""Which machines of a room fit one kind of worker, counted by domain and kept current as room is taken."""

from typing import TYPE_CHECKING, Any

import numpy as np

from astraeus.placement.fleet import Bools, Ints
from astraeus.placement.kinds import SLACK, Kind
from astraeus.placement.ladder import MACHINE_LEVEL

if TYPE_CHECKING:
    from astraeus.placement.room import Room

FEW_CHANGES = 512
"""Beyond this many changed machines a view is made anew rather than mended."""


class View:
    """The machines that fit one kind of worker, counted by the domains of each level it was asked about.

    `memo` is for whoever asks, by level and domain, and holds nothing of domains in which the room has changed since.
    `nearest` holds what depends on the counts alone, and is another once they have changed.
    """

    def __init__(self, room: "Room", kind: Kind, avoid: frozenset[str]) -> None:
        self.room = room
        self.kind = kind
        self.avoid = avoid
        self.usable = kind.usable
        self.memo: dict[int, dict[int | None, dict[Any, Any]]] = {}
        self.nearest: dict[Any, Any] = {}
        if avoid:
            self.usable = self.usable.copy()
            self.usable[[room.fleet.index[name] for name in avoid if name in room.fleet.index]] = False
        self._rows: Ints | None = None
        self._counts: dict[int, Ints] = {}
        self._most: dict[int, int] = {}
        self._bounds: dict[int, int] = {}
        self._grown = room.grown
        self.seen = room.written
        self.fit: Bools
        self._begin()

    def _begin(self) -> None:
        """Look at all machines: at those that have room for the easiest workers with as many GPUs."""
        room, kind = self.room, self.kind
        self._rows, self._counts, self._most = None, {}, {}
        if kind.easiest is kind:
            self.fit = self.usable & News(room, np.arange(room.fleet.size)).fits(kind)
            return
        self.fit = self.usable & room.view(kind.easiest).fit
        if kind.room != kind.easiest.room:
            rows = self.rows
            self.fit[rows] = News(room, rows).fits(kind)
            self._rows = None

    @property
    def rows(self) -> Ints:
        """The machines that fit, in rank order."""
        if self._rows is None:
            self._rows = self.fit.nonzero()[0]
        return self._rows

    def free_gpus(self, rows: Ints) -> Ints:
        """The free GPUs of machines that this worker may have, as masks."""
        return self.room.free[rows] & self.kind.allowed[rows]

    def counts(self, level: int) -> Ints:
        """How many machines fit in each domain of a level."""
        found = self._counts.get(level)
        if found is None:
            size = len(self.room.fleet.domains[level].keys)
            found = self._counts[level] = np.bincount(self.kind.places(level)[self.rows], minlength=size + 1)
        return found[1:]

    def most(self, level: int) -> int:
        """How many machines fit in the best domain of a level; on the machine level, in all of the cluster."""
        found = self._most.get(level)
        if found is None:
            if level == MACHINE_LEVEL:
                found = self.rows.size
            else:
                counts = self.counts(level)
                found = int(np.maximum.reduce(counts, initial=0))
            self._most[level] = found
        return found

    def may_hold(self, level: int, size: int) -> bool:
        """Whether so many machines fit on a level. A room that has only shrunk since the last look holds no more."""
        room = self.room
        if self._grown != room.grown:
            self._grown = room.grown
            self._bounds.clear()
        elif self._bounds.get(level, size) < size:
            return False
        self.refresh()
        most = self._bounds[level] = self.most(level)
        return most >= size

    def rows_in(self, level: int, domain: int) -> Ints:
        """The fitting machines of one domain, in rank order."""
        within = self.room.fleet.rows_of(level, domain)
        if within.size > self.rows.size:
            within = self.rows
        inside: Ints = within[self.fit[within] & (self.kind.ids(level)[within] == domain)]
        return inside

    def refresh(self) -> None:
        """Take in what has changed in the room since the last look."""
        end = self.room.written
        if self.seen == end:
            return
        news = self.room.news(self.seen)
        self.seen = end
        if news.rows.size > FEW_CHANGES:
            self.memo, self.nearest = {}, {}
            self._begin()
            return
        for level, known in self.memo.items():
            for domain in news.domains(level) & known.keys():
                del known[domain]
        self._mend(news)

    def memo_of(self, level: int, domain: int | None) -> dict[Any, Any]:
        """What was worked out for a domain, or for all machines."""
        return self.memo.setdefault(level, {}).setdefault(domain, {})

    def _mend(self, news: "News") -> None:
        rows = news.rows
        fits = self.usable[rows] & news.fits(self.kind)
        changed = rows[fits != self.fit[rows]]
        if not changed.size:
            return
        changed = self.room.once(changed)
        self.fit[rows] = fits
        self._rows, self.nearest = None, {}
        self._most.clear()
        steps = np.where(self.fit[changed], 1, -1)
        for level, counts in self._counts.items():
            np.add.at(counts, self.kind.places(level)[changed], steps)


class News:
    """Some machines of a room as it is now, looked at once for all views."""

    def __init__(self, room: "Room", rows: Ints) -> None:
        self.room = room
        self.rows = rows
        self._fits: dict[Any, Bools] = {}
        self._gpus: dict[int, Ints] = {}
        self._domains: dict[int, set[int | None]] = {}

    def fits(self, kind: Kind) -> Bools:
        """Which of them have the room for a worker of this kind."""
        found = self._fits.get(kind.room)
        if found is None:
            found = self._fits[kind.room] = self._fits_anew(kind)
        return found

    def _fits_anew(self, kind: Kind) -> Bools:
        key = id(kind.allowed)
        gpus = self._gpus.get(key)
        if gpus is None:
            gpus = self._gpus[key] = np.bitwise_count(self.room.free[self.rows] & kind.allowed[self.rows])
        fits: Bools = gpus >= kind.gpus
        if kind.cpu:
            fits &= self.room.cpu[self.rows] + SLACK >= kind.cpu
        if kind.memory:
            fits &= self.room.memory[self.rows] + SLACK >= kind.memory
        return fits

    def domains(self, level: int) -> set[int | None]:
        """The domains of a level that they are in, and that of all machines."""
        found = self._domains.get(level)
        if found is None:
            ids = self.room.fleet.domains[level].ids
            found = self._domains[level] = {None, *ids[self.rows].tolist()}
        return found
