"""The place a patient claim waits for: the domain of its ideal rung that will have room soonest."""

from collections.abc import Mapping

import numpy as np

from astraeus.placement.choose import Found, choose_rows
from astraeus.placement.fleet import Floats, Ints
from astraeus.placement.grant import estimate_of
from astraeus.placement.ladder import LEVELS, MACHINE_LEVEL
from astraeus.placement.need import Need, candidates, capacity, ids_on
from astraeus.placement.room import Holdings, Room, View


def free_at(holdings: Holdings, size: int, now: float) -> Floats:
    """When every machine will be idle, by the time limits of what runs on it; infinity where there is none."""
    times = np.full(size, now)
    ends = np.array(
        [now if h.stopping else np.inf if h.ends_at is None else max(now, h.ends_at) for h in holdings.all], np.float64
    )
    np.maximum.at(times, holdings.rows, ends)
    return times


def wanted_place(
    need: Need, level: int, room: Room, ends: Floats, factors: Mapping[str, float]
) -> tuple[str, float | None]:
    """The domain waited for in words, and the bandwidth to expect there in GB/s."""
    shape = next(s for s in need.shapes_on(level) if _holds(level, s.size, capacity(level, s.worker, room.fleet)))
    view = room.view(shape.worker)
    domain = _soonest(level, shape.size, view, ends)
    fleet = room.fleet
    ids = ids_on(level, shape.worker, fleet, nominal=True)
    rows = np.flatnonzero(candidates(shape.worker, fleet).ever & (ids == domain))
    picked = rows[:1] if level == MACHINE_LEVEL else choose_rows(level, shape.size, view, rows)
    rows = rows[: shape.size] if picked is None else picked
    estimate = estimate_of(Found(level, domain, shape, rows), LEVELS[level].words, fleet, factors)
    text = LEVELS[level].wanted.format(*fleet.domains[level].keys[domain])
    return text, None if estimate is None else estimate.busbw_gbps


def _holds(level: int, size: int, room: Ints) -> bool:
    return bool(room.size and room.max() >= (1 if level == MACHINE_LEVEL else size))


def _soonest(level: int, size: int, view: View, times: Floats) -> int:
    """The domain where enough machines are free soonest, then the one with most free now, then by id."""
    fleet = view.room.fleet
    ids = ids_on(level, view.worker, fleet, nominal=True)
    ever = candidates(view.worker, fleet).ever
    counts = np.bincount(fleet.domains[level].ids[view.fit & (ids >= 0)], minlength=len(fleet.domains[level].keys))
    able = np.flatnonzero(capacity(level, view.worker, fleet) >= (1 if level == MACHINE_LEVEL else size))
    size = 1 if level == MACHINE_LEVEL else size
    when = np.zeros(able.size, np.float64)
    for place, domain in enumerate(able.tolist()):
        waits = np.where(view.fit, -np.inf, np.where(view.usable, times, np.inf))[ever & (ids == domain)]
        when[place] = np.sort(waits)[size - 1]
    return int(able[np.lexsort((able, -counts[able], when))[0]])
