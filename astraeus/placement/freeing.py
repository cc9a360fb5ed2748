"""When machines have room for a worker again, as what runs there ends: at the latest, and as far as is likely."""

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from astraeus.placement.fleet import Bools, Floats, Ints
from astraeus.placement.holdings import Holdings, Taking, joined
from astraeus.placement.kinds import SLACK
from astraeus.placement.view import View

SOONEST_SECONDS = 600.0
"""A run is not expected to end before this: how much younger than that it is tells nothing."""


class _Ends(NamedTuple):
    """What is held, by machine and then by its end; `masks`, `cpu` and `memory` are free there once it has ended.

    Sums over a machine are differences of sums over the fleet, so cores are whole millionths: nothing is lost in them.
    """

    rows: Ints
    ends: Floats
    masks: Ints
    cpu: Ints
    memory: Ints

    @classmethod
    def of(cls, held: Taking, ends: Floats) -> "_Ends":
        """The sums of what these holders give back, each with what ends before it on its machine."""
        order = np.lexsort((ends, held.rows))
        rows = held.rows[order]
        first = np.searchsorted(rows, rows)

        def freed(given: Ints) -> Ints:
            total = np.concatenate(([0], np.cumsum(given[order])))
            sums: Ints = total[1:] - total[first]
            return sums

        return cls(
            rows, ends[order], freed(held.masks), freed(_millionths(held.cpu)), freed(held.memory.astype(np.int64))
        )


@dataclass
class Freeing:
    """The ends of what is held when a pass begins and of what it gives away.

    `latest` is by time limits, infinity where there is none. What is `likely` takes it that a run goes on for as long
    again as it has run, if its limit allows: run times are spread over many orders of magnitude, and of such the older
    are those that last (Harchol-Balter and Downey, "Exploiting Process Lifetime Distributions for Dynamic Load
    Balancing", ACM TOCS 15(3), 1997, measured it on processes).
    """

    holdings: Holdings
    now: float
    _given: list[tuple[Taking, float]] = field(default_factory=list)
    _sorted: dict[Any, _Ends] = field(default_factory=dict)

    def take(self, taking: Taking, limit: float | None) -> None:
        """A run of this time limit starts there now."""
        self._given.append((taking, np.inf if limit is None else self.now + limit))

    def times(self, view: View, kept: Ints, likely: bool = False) -> Floats:
        """When each machine has room for a worker like the view's, in seconds since the epoch.

        Now where it has, NaN where it takes no work of it, infinity where that is not known. `kept` are each machine's
        GPUs that are kept for others, whoever still holds them.
        """
        held, kind, room = self._ends(likely), view.kind, view.room
        rows = held.rows
        gpus = np.bitwise_count((room.free[rows] | held.masks) & kind.allowed[rows] & ~kept[rows])
        fits: Bools = gpus >= kind.gpus
        if kind.cpu:
            fits &= _millionths(room.cpu)[rows] + held.cpu + 1 >= kind.cpu / SLACK
        if kind.memory:
            fits &= room.memory[rows] + held.memory >= kind.memory
        times = np.full(room.fleet.size, np.inf)
        # Of the ends on one machine after which the worker fits, the first is written last.
        times[rows[fits][::-1]] = np.maximum(held.ends[fits][::-1], self.now)
        return np.where(view.usable, np.where(view.fit, self.now, times), np.nan)

    def _ends(self, likely: bool) -> _Ends:
        # By time limits they are the same in every pass until a run starts or ends.
        memo = self.holdings.memo if not likely and not self._given else self._sorted
        key = "ends", likely, len(self._given)
        if key not in memo:
            memo[key] = self._ends_anew(likely)
        ends: _Ends = memo[key]
        return ends

    def _ends_anew(self, likely: bool) -> _Ends:
        held, now = self.holdings, self.now
        takings = [held.taking(np.ones(held.rows.size, np.bool_)), *(taking for taking, _ in self._given)]
        sizes = [taking.rows.size for taking, _ in self._given]
        ends = np.concatenate(
            [np.where(held.stopping, -np.inf, held.ends), np.repeat([end for _, end in self._given], sizes)]
        )
        if likely:
            began = np.concatenate([held.started, np.full(sum(sizes), now)])
            ends = np.minimum(ends, now + np.maximum(now - began, SOONEST_SECONDS))
        return _Ends.of(joined(takings), ends)


def _millionths(cores: Floats) -> Ints:
    whole: Ints = np.rint(cores / SLACK).astype(np.int64)
    return whole
