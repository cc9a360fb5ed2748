"""What is free during a pass, and who holds the rest."""

from collections.abc import Hashable
from typing import Any

import numpy as np

from astraeus.placement.fleet import Fleet, Ints
from astraeus.placement.holdings import Holdings, Owners, Taking
from astraeus.placement.kinds import Kind
from astraeus.placement.view import News, View

Owned = tuple[Ints, Ints]
"""Who holds most of some machines, as numbers, and how many GPUs."""
VIEWS_MOST = 1_000
JOURNAL_FIRST, JOURNAL_MOST = 1_000, 20_000


class Room:
    """Free GPUs, cores and memory of every machine, and who holds the rest.

    `owner[m]` is the number of who holds most of machine m (-1: nobody), with `owned[m]` GPUs. A journal has the
    machines changed so far, step by step, `written` of them; `grown` counts the steps that gave room back. `state` is
    another object after each step.
    """

    def __init__(self, fleet: Fleet) -> None:
        self.fleet = fleet
        self.owners = Owners.of(fleet)
        self.free = fleet.sound.copy()
        self.cpu = fleet.cpu.copy()
        self.memory = fleet.memory.copy()
        self.owner = np.full(fleet.size, -1, np.int64)
        self.owned = np.zeros(fleet.size, np.int64)
        self.home_gpus = self._gpus_by_home()
        self._empty()

    def _empty(self) -> None:
        """Nothing is worked out yet of the room as it is now."""
        self.written = 0
        self.grown = 0
        self.state = object()
        self._journal = np.empty(JOURNAL_FIRST, np.int64)
        self._places = np.empty(self.fleet.size, np.int64)
        self.views: dict[tuple[Kind, frozenset[str]], View] = {}
        self.memo: dict[Any, Any] = {}
        self._news: dict[int, News] = {}
        self._refused: dict[Hashable, int] = {}

    def copy(self) -> "Room":
        """The same room, changed apart from here on."""
        twin = Room.__new__(Room)
        twin.fleet, twin.owners = self.fleet, self.owners
        twin.free, twin.cpu, twin.memory = self.free.copy(), self.cpu.copy(), self.memory.copy()
        twin.owner, twin.owned = self.owner.copy(), self.owned.copy()
        twin.home_gpus = self.home_gpus.copy()
        twin._empty()
        return twin

    def become(self, other: "Room") -> None:
        """Be like another room of the same fleet; what is known of machines that are alike in both stays known."""
        shrunk = (other.free & ~self.free == 0) & (other.cpu <= self.cpu) & (other.memory <= self.memory)
        alike = shrunk & (other.free == self.free) & (other.cpu == self.cpu) & (other.memory == self.memory)
        alike &= (other.owner == self.owner) & (other.owned == self.owned)
        self.free, self.cpu, self.memory = other.free, other.cpu, other.memory
        self.owner, self.owned, self.home_gpus = other.owner, other.owned, other.home_gpus
        self._tidy()
        if not alike.all():
            self._changed((~alike).nonzero()[0])
            if not shrunk.all():
                self._grow()

    def reconsider(self, rows: Ints, more: bool) -> None:
        """Look again at machines whose own state changed; `more`: any of them may take more than before."""
        self.views = {key: view for key, view in self.views.items() if not view.avoid}
        for view in self.views.values():
            view.usable = view.kind.usable
        if rows.size:
            self._changed(rows)
        if more:
            self._grow()

    def _tidy(self) -> None:
        """Keep no more views than were looked at lately, and no journal that all of them have read."""
        end = self.written
        if len(self.views) > VIEWS_MOST or end > JOURNAL_MOST:
            self.views = {key: view for key, view in self.views.items() if view.seen == end}
            self.written, self._news = 0, {}
            for view in self.views.values():
                view.seen = 0
        if len(self.views) > VIEWS_MOST:
            self.views = {}

    def take(self, taking: Taking, owner: str) -> Taking:
        """Give room to a holder; the answer has the GPUs that were free, to be given back if need be."""
        rows = taking.rows
        if not rows.size:
            return taking
        before = self.free[rows]
        taken = Taking(rows, taking.masks & before, taking.cpu, taking.memory)
        np.bitwise_and.at(self.free, rows, ~taking.masks)
        np.subtract.at(self.cpu, rows, taking.cpu)
        np.subtract.at(self.memory, rows, taking.memory)
        counts = np.bitwise_count(taken.masks).astype(np.int64)
        larger = (counts > self.owned[rows]) | (self.owner[rows] < 0)
        mine = rows[larger]
        self.owner[mine] = self.owners.number(owner)
        self.owned[mine] = counts[larger]
        np.subtract.at(self.home_gpus, self.fleet.home[rows], counts)
        self._changed(rows)
        return taken

    def owned_by(self, rows: Ints) -> Owned:
        """Who holds most of these machines, and how many GPUs."""
        return self.owner[rows], self.owned[rows]

    def disown(self, owner: str, rows: Ints, before: Owned) -> None:
        """Where this holder, who has given back what it had, still stands as the largest, the one before it does."""
        gone = self.owner[rows] == self.owners.number(owner)
        self.owner[rows[gone]], self.owned[rows[gone]] = before[0][gone], before[1][gone]

    def give_back(self, taking: Taking) -> None:
        """Count held room as free."""
        if not taking.rows.size:
            return
        rows = self.once(taking.rows)
        before = self.free[rows]
        np.bitwise_or.at(self.free, taking.rows, taking.masks & self.fleet.sound[taking.rows])
        np.add.at(self.cpu, taking.rows, taking.cpu)
        np.add.at(self.memory, taking.rows, taking.memory)
        more = np.bitwise_count(self.free[rows]).astype(np.int64) - np.bitwise_count(before)
        np.add.at(self.home_gpus, self.fleet.home[rows], more)
        self._changed(rows)
        self._grow()

    def hold(self, holdings: Holdings) -> None:
        """Take the room of everything that is held; a machine's owner is whoever has most of its GPUs."""
        np.bitwise_and.at(self.free, holdings.rows, ~holdings.masks)
        np.subtract.at(self.cpu, holdings.rows, holdings.cpu)
        np.subtract.at(self.memory, holdings.rows, holdings.memory)
        order = np.argsort(np.bitwise_count(holdings.masks), kind="stable")
        self.owner[holdings.rows[order]] = holdings.owners[order]
        self.owned[holdings.rows[order]] = np.bitwise_count(holdings.masks[order])
        self.home_gpus = self._gpus_by_home()

    def _gpus_by_home(self) -> Ints:
        gpus = np.bincount(self.fleet.home, np.bitwise_count(self.free), minlength=self.fleet.homes)
        return gpus.astype(np.int64)

    def news(self, since: int) -> News:
        """The machines that the journal names from a place on, as they are now."""
        news = self._news.get(since)
        if news is None:
            news = self._news[since] = News(self, self._journal[since : self.written])
        return news

    def view(self, kind: Kind, avoid: frozenset[str] = frozenset()) -> View:
        """Which machines fit this kind of worker now."""
        found = self.look(kind, avoid)
        found.refresh()
        return found

    def look(self, kind: Kind, avoid: frozenset[str] = frozenset()) -> View:
        """Which machines fit as they were at the last look; enough to ask whether it may hold a gang."""
        found = self.views.get((kind, avoid))
        if found is None:
            found = self.views[kind, avoid] = View(self, kind, avoid)
        return found

    def refuse(self, ladder: Hashable, size: int) -> None:
        """Remember that gangs of this size do not fit here, nor larger ones, until room is given back."""
        self._refused[ladder] = min(size, self._refused.get(ladder, size))

    def refuses(self, ladder: Hashable, size: int) -> bool:
        """Whether it is known that a gang of this size does not fit."""
        least = self._refused.get(ladder)
        return least is not None and size >= least

    def once(self, rows: Ints) -> Ints:
        """The rows of a list, each once."""
        places = np.arange(rows.size)
        self._places[rows] = places
        once: Ints = rows[self._places[rows] == places]
        return once

    def _changed(self, rows: Ints) -> None:
        end = self.written + rows.size
        if end > self._journal.size:
            self._journal = np.concatenate((self._journal[: self.written], np.empty(2 * end, np.int64)))
        self._journal[self.written : end] = rows
        self.written = end
        self.state = object()
        self.memo, self._news = {}, {}

    def _grow(self) -> None:
        self.grown += 1
        self._refused = {}
