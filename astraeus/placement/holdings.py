"""What is held, as arrays: made anew only for the part of the holdings that changed."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any

import numpy as np

from astraeus.placement.fleet import Bools, Fleet, Floats, Ints
from astraeus.placement.types import Holding


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


class Owners:
    """Numbers for names: of who holds a machine, or whose it is; a number stays as long as the fleet does."""

    def __init__(self) -> None:
        self.names: dict[int, str] = {}
        self._numbers: dict[str, int] = {}
        self._next = count()
        self._order: tuple[int, Ints] = (0, np.zeros(1, np.int64))

    @classmethod
    def of(cls, fleet: Fleet, what: str = "owners") -> "Owners":
        """The owners on a fleet, or others of its names."""
        owners: Owners = fleet.memo.setdefault(what, cls())
        return owners

    def number(self, name: str) -> int:
        """The number of an owner."""
        found = self._numbers.get(name)
        if found is None:
            # Passes on several threads may share a fleet: a number is drawn and named before any of them can have it.
            number = next(self._next)
            self.names[number] = name
            found = self._numbers.setdefault(name, number)
        return found

    def order(self) -> Ints:
        """The place of every owner's name in their order; index 0 stands for nobody."""
        if self._order[0] != len(self.names):
            names = self.names.copy()
            order = np.zeros(max(names, default=-1) + 2, np.int64)
            order[np.array(sorted(names, key=names.__getitem__), np.int64) + 1] = np.arange(1, len(names) + 1)
            self._order = len(names), order
        return self._order[1]


class Holdings:
    """The holdings of a snapshot as arrays, without those on machines it does not know.

    `names` says which object each one is; `ends` is infinity where there is no time limit; `owners` are the numbers of
    their runs, `whose` those of their `workspaces`.
    """

    rows: Ints
    masks: Ints
    cpu: Floats
    memory: Floats
    stopping: Bools
    priority: Ints
    started: Floats
    ends: Floats
    claims: Ints
    preemptible: Bools
    owners: Ints
    whose: Ints

    def __init__(self, holdings: tuple[Holding, ...], fleet: Fleet, before: "Holdings | None" = None) -> None:
        self.given = holdings
        self.workspaces = Owners.of(fleet, "workspaces").names
        self.names = np.fromiter(map(id, holdings), np.int64, len(holdings))
        self._whole = self._mended(before, fleet) if before and before.given else _columns(holdings, fleet)
        known = self._whole["rows"] >= 0
        self.all: Sequence[Holding] = holdings
        columns = self._whole
        if not known.all():
            self.all = [holding for holding, there in zip(holdings, known.tolist(), strict=True) if there]
            columns = {name: column[known] for name, column in columns.items()}
        self.__dict__.update(columns)
        self._evictable: dict[int, Bools] = {}
        self._priorities = np.unique(self.priority[self.preemptible]).tolist()
        self.memo: dict[Any, Any] = {}

    def _mended(self, before: "Holdings", fleet: Fleet) -> dict[str, Any]:
        """The arrays, with what the ones before say of the holdings that stand in both."""
        place = _places(before.names, self.names)
        fresh = (before.names[place] != self.names).nonzero()[0]
        columns = {name: column[place] for name, column in before.columns.items()}
        for name, part in _columns([self.given[i] for i in fresh.tolist()], fleet).items():
            columns[name][fresh] = part
        return columns

    @property
    def columns(self) -> dict[str, Any]:
        """The arrays by name, with those on unknown machines."""
        return self._whole

    def evictable(self, priority: int) -> Bools:
        """The holdings of runs of at most this priority that may be stopped for others."""
        if priority not in self._evictable:
            self._evictable[priority] = self.preemptible & (self.priority <= priority)
        return self._evictable[priority]

    def victim_priorities(self, below: float = np.inf) -> list[int]:
        """The priorities under `below` that runs which may be stopped have, lowest first."""
        return [priority for priority in self._priorities if priority < below]

    def taking(self, chosen: Bools) -> Taking:
        """The room of some of the holdings."""
        return Taking(self.rows[chosen], self.masks[chosen], self.cpu[chosen], self.memory[chosen])


def _places(before: Ints, names: Ints) -> Ints:
    """Where each name stands in the list before, and any place for one that does not; only what differs is searched."""
    first = _alike(before, names)
    last = _alike(before[first:][::-1], names[first:][::-1])
    end = before.size - last
    places = np.arange(names.size) + before.size - names.size
    places[:first] = np.arange(first)
    order = first + np.argsort(before[first:end])
    if order.size:
        found = np.searchsorted(before[order], names[first : names.size - last])
        places[first : names.size - last] = order[np.minimum(found, order.size - 1)]
    else:
        places[first : names.size - last] = 0
    return places


def _alike(one: Ints, other: Ints) -> int:
    """How many names at the start are the same."""
    least = min(one.size, other.size)
    differ = one[:least] != other[:least]
    return int(differ.argmax()) if differ.any() else least


def holdings_of(holdings: tuple[Holding, ...], fleet: Fleet) -> Holdings:
    """The holdings as arrays; the last ones are kept with the fleet, and mended where few differ."""
    kept: Holdings | None = fleet.memo.get("holdings")
    if kept is None or kept.given is not holdings:
        kept = fleet.memo["holdings"] = Holdings(holdings, fleet, kept)
    return kept


def _columns(holdings: Sequence[Holding], fleet: Fleet) -> dict[str, Any]:
    number, whose, index = Owners.of(fleet).number, Owners.of(fleet, "workspaces").number, fleet.index
    stopping = np.array([h.stopping for h in holdings], np.bool_)
    return {
        "rows": np.array([index.get(h.machine, -1) for h in holdings], np.int64),
        "masks": np.array([h.gpu_mask for h in holdings], np.int64),
        "cpu": np.array([h.cpu_cores for h in holdings], np.float64),
        "memory": np.array([h.memory_bytes for h in holdings], np.float64),
        "stopping": stopping,
        "priority": np.array([h.priority for h in holdings], np.int64),
        "started": np.array([h.started_at for h in holdings], np.float64),
        "ends": np.array([np.inf if h.ends_at is None else h.ends_at for h in holdings], np.float64),
        "claims": np.array([h.claim for h in holdings], np.int64),
        "preemptible": np.array([h.preemptible for h in holdings], np.bool_) & ~stopping,
        "owners": np.array([number(f"in use by {h.run_name}") for h in holdings], np.int64),
        "whose": np.array([whose(h.workspace) for h in holdings], np.int64),
    }
