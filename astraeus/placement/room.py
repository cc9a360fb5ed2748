"""What is free during a pass, and for each kind of worker which machines fit it, kept current as room is taken."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from astraeus.placement.fleet import Bools, Fleet, Floats, Ints
from astraeus.placement.kinds import SLACK, Kind
from astraeus.placement.ladder import MACHINE_LEVEL
from astraeus.placement.types import Holding

FEW_CHANGES = 512
"""Beyond this many changed machines a view is made anew rather than mended."""


@dataclass(frozen=True, slots=True)
class Taking:
    """Room taken on some machines by one holder; rows are in rank order."""

    rows: Ints
    masks: Ints
    cpu: Floats
    memory: Floats


def joined(takings: Sequence[Taking]) -> Taking:
    """Several takings as one."""
    return Taking(
        np.concatenate([taking.rows for taking in takings]),
        np.concatenate([taking.masks for taking in takings]),
        np.concatenate([taking.cpu for taking in takings]),
        np.concatenate([taking.memory for taking in takings]),
    )


def distinct(parts: Sequence[Ints]) -> Ints:
    """The rows of several lists, each once, in order."""
    rows: Ints = np.sort(np.concatenate(parts))
    fresh = np.ones(rows.size, np.bool_)
    np.not_equal(rows[1:], rows[:-1], out=fresh[1:])
    return rows[fresh]


class Holdings:
    """The holdings of a snapshot as arrays, without those on machines it does not know."""

    def __init__(self, holdings: Sequence[Holding], fleet: Fleet) -> None:
        known = [holding for holding in holdings if holding.machine in fleet.index]
        self.all = known
        self.rows = np.array([fleet.index[h.machine] for h in known], np.int64)
        self.masks = np.array([h.gpu_mask for h in known], np.int64)
        self.cpu = np.array([h.cpu_cores for h in known], np.float64)
        self.memory = np.array([h.memory_bytes for h in known], np.float64)
        self.stopping = np.array([h.stopping for h in known], np.bool_)
        self.priority = np.array([h.priority for h in known], np.int64)
        self.started = np.array([h.started_at for h in known], np.float64)
        self.claims = np.array([h.claim for h in known], np.int64)
        self.preemptible = np.array([h.preemptible for h in known], np.bool_) & ~self.stopping
        self._evictable: dict[int, Bools] = {}
        self._priorities = sorted(set(self.priority[self.preemptible].tolist()))

    def evictable(self, priority: int) -> Bools:
        """The holdings of runs of at most this priority that may be stopped for others."""
        if priority not in self._evictable:
            self._evictable[priority] = self.preemptible & (self.priority <= priority)
        return self._evictable[priority]

    def victim_priorities(self, below: int) -> list[int]:
        """The priorities under `below` that runs which may be stopped have, lowest first."""
        return [priority for priority in self._priorities if priority < below]

    def taking(self, chosen: Bools) -> Taking:
        """The room of some of the holdings."""
        return Taking(self.rows[chosen], self.masks[chosen], self.cpu[chosen], self.memory[chosen])


def holdings_of(holdings: tuple[Holding, ...], fleet: Fleet) -> Holdings:
    """The holdings as arrays; the last ones are kept with the fleet, known by the identity of the tuple."""
    kept = fleet.memo.get("holdings")
    if kept is None or kept[0] is not holdings:
        kept = fleet.memo["holdings"] = holdings, Holdings(holdings, fleet)
    arrays: Holdings = kept[1]
    return arrays


class Room:
    """Free GPUs, cores and memory of every machine, and who holds the rest.

    `owner[m]` indexes `owners` and names who holds most of machine m (-1: nobody), with `owned[m]` GPUs.
    """

    basis: "Room | None" = None
    """A room that differs from this one only on the machines in `given`."""

    def __init__(self, fleet: Fleet) -> None:
        self.fleet = fleet
        self.given: list[Ints] = []
        self.free = fleet.sound.copy()
        self.cpu = fleet.cpu.copy()
        self.memory = fleet.memory.copy()
        self.owner = np.full(fleet.size, -1, np.int64)
        self.owners: list[str] = []
        self.owned = np.zeros(fleet.size, np.int64)
        self.home_gpus = np.bincount(fleet.home, np.bitwise_count(self.free), minlength=fleet.homes)
        self.journal: list[Ints] = []
        self._open: Ints | None = None
        self._order = np.zeros(0, np.int64)
        self.views: dict[tuple[Kind, frozenset[str]], View] = {}

    def copy(self) -> "Room":
        """The same room, changed apart from here on."""
        twin = Room.__new__(Room)
        twin.fleet = self.fleet
        twin.free, twin.cpu, twin.memory = self.free.copy(), self.cpu.copy(), self.memory.copy()
        twin.owner, twin.owners, twin.owned = self.owner.copy(), list(self.owners), self.owned.copy()
        twin.home_gpus = self.home_gpus.copy()
        twin.given = []
        twin.journal, twin.views, twin._open, twin._order = [], {}, None, self._order
        return twin

    def take(self, taking: Taking, owner: str) -> Taking:
        """Give room to a holder; the answer has the GPUs that were free, to be given back if need be."""
        if not taking.rows.size:
            return taking
        taken = replace(taking, masks=taking.masks & self.free[taking.rows])
        before = np.bitwise_count(self.free[taking.rows]).astype(np.float64)
        np.bitwise_and.at(self.free, taking.rows, ~taking.masks)
        np.subtract.at(self.cpu, taking.rows, taking.cpu)
        np.subtract.at(self.memory, taking.rows, taking.memory)
        counts = np.bitwise_count(taken.masks).astype(np.int64)
        larger = (counts > self.owned[taking.rows]) | (self.owner[taking.rows] < 0)
        self.owner[taking.rows[larger]] = len(self.owners)
        self.owned[taking.rows[larger]] = counts[larger]
        self.owners.append(owner)
        self._changed(taking.rows, before)
        return taken

    def give_back(self, taking: Taking) -> None:
        """Count held room as free."""
        rows, self._open = distinct([taking.rows]), None
        self.given.append(rows)
        before = np.bitwise_count(self.free[rows]).astype(np.float64)
        np.bitwise_or.at(self.free, taking.rows, taking.masks & self.fleet.sound[taking.rows])
        np.add.at(self.cpu, taking.rows, taking.cpu)
        np.add.at(self.memory, taking.rows, taking.memory)
        self._changed(rows, before)

    def hold(self, holdings: Holdings) -> None:
        """Take the room of everything that is held; a machine's owner is whoever has most of its GPUs."""
        np.bitwise_and.at(self.free, holdings.rows, ~holdings.masks)
        np.subtract.at(self.cpu, holdings.rows, holdings.cpu)
        np.subtract.at(self.memory, holdings.rows, holdings.memory)
        order = np.argsort(np.bitwise_count(holdings.masks), kind="stable")
        names = [f"in use by {holding.run_name}" for holding in holdings.all]
        distinct = {name: i for i, name in enumerate(dict.fromkeys(names))}
        numbers = np.array([distinct[name] for name in names], np.int64)
        self.owners = list(distinct)
        self.owner[holdings.rows[order]] = numbers[order]
        self.owned[holdings.rows[order]] = np.bitwise_count(holdings.masks[order])
        self.home_gpus = np.bincount(self.fleet.home, np.bitwise_count(self.free), minlength=self.fleet.homes)

    def name_order(self) -> Ints:
        """The place of every owner's name in their order; index 0 stands for nobody."""
        if self._order.size != len(self.owners) + 1:
            self._order = np.zeros(len(self.owners) + 1, np.int64)
            names = sorted(range(len(self.owners)), key=self.owners.__getitem__)
            self._order[np.array(names, np.int64) + 1] = np.arange(1, len(names) + 1)
        return self._order

    def open_rows(self) -> Ints:
        """Machines among which are all that have a free GPU."""
        if self._open is None:
            self._open = np.flatnonzero(self.free)
        return self._open

    def view(self, kind: Kind, avoid: frozenset[str] = frozenset()) -> "View":
        """Which machines fit this kind of worker now."""
        found = self.views.get((kind, avoid))
        if found is None:
            found = self.views[kind, avoid] = View(self, kind, avoid)
        found.refresh()
        return found

    def _changed(self, rows: Ints, before: Floats) -> None:
        after = np.bitwise_count(self.free[rows]).astype(np.float64)
        np.add.at(self.home_gpus, self.fleet.home[rows], after - before)
        self.journal.append(rows)


class View:
    """The machines that fit one kind of worker, counted by the domains of each level it was asked about.

    `memo` is for whoever asks, and is emptied when the room changes.
    """

    def __init__(self, room: Room, kind: Kind, avoid: frozenset[str]) -> None:
        self.room = room
        self.kind = kind
        self.avoid = avoid
        self.usable = kind.usable
        self.memo: dict[Any, Any] = {}
        if avoid:
            self.usable = self.usable.copy()
            self.usable[[room.fleet.index[name] for name in avoid if name in room.fleet.index]] = False
        self._seen = len(room.journal)
        self.fit = self._all_fits()
        self._rows: Ints | None = None
        self._counts: dict[int, Ints] = {}
        self._most: dict[int, int] = {}

    @property
    def rows(self) -> Ints:
        """The machines that fit, in rank order."""
        if self._rows is None:
            self._rows = np.flatnonzero(self.fit)
        return self._rows

    def free_gpus(self, rows: Ints) -> Ints:
        """The free GPUs of machines that this worker may have, as masks."""
        return self.room.free[rows] & self.kind.allowed[rows]

    def counts(self, level: int) -> Ints:
        """How many machines fit in each domain of a level."""
        found = self._counts.get(level)
        if found is None:
            ids = self.kind.ids(level)[self.rows]
            size = len(self.room.fleet.domains[level].keys)
            found = np.bincount(ids[ids >= 0], minlength=size).astype(np.int64)
            self._counts[level] = found
        return found

    def most(self, level: int) -> int:
        """How many machines fit in the best domain of a level; on the machine level, in all of the cluster."""
        found = self._most.get(level)
        if found is None:
            if level == MACHINE_LEVEL:
                found = self.rows.size
            else:
                counts = self.counts(level)
                found = int(counts.max()) if counts.size else 0
            self._most[level] = found
        return found

    def rows_in(self, level: int, domain: int) -> Ints:
        """The fitting machines of one domain, in rank order."""
        inside: Ints = self.rows[self.kind.ids(level)[self.rows] == domain]
        return inside

    def refresh(self) -> None:
        """Take in what has changed in the room since the last look."""
        journal = self.room.journal
        if self._seen == len(journal):
            return
        rows = distinct(journal[self._seen :])
        self._seen = len(journal)
        self.memo.clear()
        if rows.size > FEW_CHANGES:
            self.fit = self._all_fits()
            self._rows, self._counts, self._most = None, {}, {}
            return
        fits = self._fits(rows)
        changed = rows[fits != self.fit[rows]]
        if not changed.size:
            return
        self.fit[rows] = fits
        self._rows = None
        for level, counts in self._counts.items():
            ids = self.kind.ids(level)[changed]
            placed = ids >= 0
            np.add.at(counts, ids[placed], np.where(self.fit[changed[placed]], 1, -1))
        self._most.clear()

    def _all_fits(self) -> Bools:
        if self.room.basis is not None:
            fit = self.room.basis.view(self.kind, self.avoid).fit.copy()
            rows = distinct(self.room.given) if self.room.given else np.zeros(0, np.int64)
            fit[rows] = self._fits(rows)
            return fit
        if not self.kind.gpus:
            return self._fits(np.arange(self.room.fleet.size))
        fit = np.zeros(self.room.fleet.size, np.bool_)
        rows = self.room.open_rows()
        fit[rows] = self._fits(rows)
        return fit

    def _fits(self, rows: Ints) -> Bools:
        kind, room = self.kind, self.room
        fits: Bools = self.usable[rows] & (np.bitwise_count(self.free_gpus(rows)) >= kind.gpus)
        if kind.cpu:
            fits &= room.cpu[rows] + SLACK >= kind.cpu
        if kind.memory:
            fits &= room.memory[rows] + SLACK >= kind.memory
        return fits
