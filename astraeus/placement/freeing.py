"""When machines become free of what runs on them: at the latest, and as far as is likely."""

from dataclasses import dataclass

import numpy as np

from astraeus.placement.fleet import Floats
from astraeus.placement.holdings import Holdings, Taking

SOONEST_SECONDS = 600.0
"""A run is not expected to end before this: how much younger than that it is tells nothing."""


@dataclass(frozen=True, slots=True)
class Freeing:
    """Times of every machine, in seconds.

    `latest` is by the time limits of what runs there, infinity where there is none. `likely` takes it that a run goes
    on for as long again as it has run, if its limit allows: run times are spread over many orders of magnitude, and of
    such the older are those that last (Harchol-Balter and Downey, "Exploiting Process Lifetime Distributions for
    Dynamic Load Balancing", ACM TOCS 15(3), 1997, measured it on processes).
    """

    latest: Floats
    likely: Floats

    @classmethod
    def of(cls, holdings: Holdings, size: int, now: float) -> "Freeing":
        """The times of `size` machines with these holdings; `now` where a machine is idle."""
        latest, likely = np.full(size, now), np.full(size, now)
        ends = np.where(holdings.stopping, now, np.maximum(holdings.ends, now))
        np.maximum.at(latest, holdings.rows, ends)
        lasts = now + np.maximum(now - holdings.started, SOONEST_SECONDS)
        np.maximum.at(likely, holdings.rows, np.minimum(ends, lasts))
        return cls(latest, likely)

    def take(self, taking: Taking, now: float, limit: float | None) -> None:
        """A run of this time limit starts there now."""
        ends = np.inf if limit is None else now + limit
        self._hold(taking, ends, min(ends, now + SOONEST_SECONDS))

    def keep(self, taking: Taking) -> None:
        """Room there is kept for somebody."""
        self._hold(taking, np.inf, np.inf)

    def _hold(self, taking: Taking, latest: float, likely: float) -> None:
        self.latest[taking.rows] = np.maximum(self.latest[taking.rows], latest)
        self.likely[taking.rows] = np.maximum(self.likely[taking.rows], likely)
