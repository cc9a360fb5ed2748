"""The place a patient claim waits for: the domain of its ideal rung that will have room soonest."""

from collections.abc import Mapping

import numpy as np

from astraeus.placement.choose import Found, choose_rows
from astraeus.placement.fleet import Floats, Ints
from astraeus.placement.freeing import Freeing
from astraeus.placement.grant import estimate_of
from astraeus.placement.ladder import LEVELS, MACHINE_LEVEL
from astraeus.placement.need import Need
from astraeus.placement.room import Room
from astraeus.placement.view import View


def wanted_place(
    need: Need, level: int, room: Room, freeing: Freeing, kept: Ints, factors: Mapping[str, float]
) -> tuple[str, float | None]:
    """The domain waited for in words, and the bandwidth to expect there in GB/s."""
    shape = next(s for on, s in need.steps if on == level and s.kind.most_ever(on) >= s.wanted(on))
    view = room.view(shape.kind)
    domain = _soonest(level, shape.wanted(level), view, freeing.times(view, kept))
    fleet = room.fleet
    rows = np.flatnonzero(shape.kind.ever & (shape.kind.ids(level, nominal=True) == domain))
    picked = rows[:1] if level == MACHINE_LEVEL else choose_rows(level, shape.size, view, rows)
    rows = rows[: shape.size] if picked is None else picked
    estimate = estimate_of(Found(level, domain, shape, rows), LEVELS[level].words, fleet, factors)
    text = LEVELS[level].wanted.format(*fleet.domains[level].keys[domain])
    return text, None if estimate is None else estimate.busbw_gbps


def _soonest(level: int, size: int, view: View, times: Floats) -> int:
    """The domain where enough machines are free soonest, then the one with most free now, then by id."""
    ids = view.kind.ids(level, nominal=True)
    rows = np.flatnonzero(view.kind.ever & (ids >= 0))
    waits = np.where(view.fit[rows], -np.inf, np.where(view.usable[rows], times[rows], np.inf))
    order = np.lexsort((waits, ids[rows]))
    able = np.flatnonzero(view.kind.capacity(level) >= size)
    when = waits[order][np.searchsorted(ids[rows][order], able) + size - 1]
    domains = view.room.fleet.domains[level]
    free = view.rows[ids[view.rows] >= 0]
    counts = np.bincount(domains.ids[free], minlength=len(domains.keys))
    return int(able[np.lexsort((able, -counts[able], when))[0]])
