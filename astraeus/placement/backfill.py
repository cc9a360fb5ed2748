"""Room for the first claim that does not fit: which machines are kept for it, and when it can have them."""

from dataclasses import dataclass

import numpy as np

from astraeus.placement.choose import Found, pick_gpus
from astraeus.placement.fleet import Bools, Floats, Ints
from astraeus.placement.holdings import Taking
from astraeus.placement.ladder import MACHINE_LEVEL
from astraeus.placement.need import Need
from astraeus.placement.room import Room
from astraeus.placement.view import View


@dataclass(frozen=True, slots=True)
class Gathering:
    """Machines kept for a claim, and the time at which all of them are free (infinity: not known)."""

    found: Found
    at: float


def gather(need: Need, room: Room, ends: Floats, own: Ints, now: float) -> Gathering | None:
    """The machines a gang would have soonest, or None when too few machines take work at all.

    `ends` is when each machine's last holder must be gone. Where no time is known, those are chosen that lack
    fewest machines with a known end. `own` are machines kept for it before; they are kept unless others are better.
    Of machines that are free in time, those of the fewest leaf groups are kept, so that others have what is scattered.
    """
    best: tuple[tuple[float, int, int, int], Found] | None = None
    for level, shape in need.steps:
        view = room.view(shape.kind)
        times = np.where(view.fit, now, ends)
        times[~view.usable] = np.nan
        chosen = _soonest(level, shape.size, view, times, own)
        if chosen is None:
            continue
        rows = chosen[1]
        at, unknown = float(times[rows].max()), int(np.isinf(times[rows]).sum())
        kept = int(np.isin(rows, own).sum())
        found = ((at, unknown, -kept, level), Found(level, chosen[0], shape, np.sort(rows)))
        if best is None or found[0] < best[0]:
            best = found
    return None if best is None else Gathering(best[1], best[0][0])


def _soonest(level: int, size: int, view: View, times: Floats, own: Ints) -> tuple[int, Ints] | None:
    """The domain whose `size` soonest machines are free first, and those machines."""
    ids = view.kind.ids(level)
    rows = np.flatnonzero((ids >= 0) & ~np.isnan(times))
    if not rows.size:
        return None
    fresh = np.ones(view.room.fleet.size, np.int64)
    fresh[own] = 0
    if level == MACHINE_LEVEL:
        row = int(rows[np.lexsort((rows, fresh[rows], times[rows]))[0]])
        return int(ids[row]), np.array([row], np.int64)
    rows = rows[np.lexsort((rows, fresh[rows], times[rows], ids[rows]))]
    domains, first, counts = np.unique(ids[rows], return_index=True, return_counts=True)
    able = np.flatnonzero(counts >= size)
    if not able.size:
        return None
    last = times[rows[first[able] + size - 1]]
    known, held = (_sums(given, first[able], size) for given in (np.isfinite(times[rows]), fresh[rows] == 0))
    pick = int(np.lexsort((domains[able], -held, -known, last))[0])
    start = first[able][pick]
    inside = rows[start : start + counts[able][pick]]
    ready = np.isfinite(times[inside]) & (times[inside] <= last[pick])
    return int(domains[able][pick]), _together(size, inside, ready, view.room.fleet.home, fresh)


def _together(size: int, rows: Ints, ready: Bools, home: Ints, fresh: Ints) -> Ints:
    """`size` of these machines in as few leaf groups as have those that are ready in time, then others of the same."""
    groups, number = np.unique(home[rows], return_inverse=True)
    if groups.size == 1:
        return rows[:size]
    good, every = np.bincount(number, ready), np.bincount(number)
    order = np.lexsort((groups, -np.bincount(number, fresh[rows] == 0), -good))
    enough = (np.cumsum(good[order]) >= min(size, int(ready.sum()))) & (np.cumsum(every[order]) >= size)
    place = np.empty_like(order)
    place[order] = np.arange(order.size)
    best = np.lexsort((np.arange(rows.size), place[number], ~ready))
    chosen: Ints = rows[best[place[number][best] <= int(np.argmax(enough))][:size]]
    return chosen


def _sums(given: Bools, starts: Ints, size: int) -> Ints:
    """How many of the `size` values from each start on are true."""
    total = np.concatenate(([0], np.cumsum(given)))
    sums: Ints = total[starts + size] - total[starts]
    return sums


def keeping(found: Found, room: Room) -> Taking:
    """The room kept on those machines: GPUs that are free now before those that must still become free."""
    worker, fleet = found.shape.worker, room.fleet
    allowed = fleet.clean if worker.healthy_only else fleet.sound
    masks = [
        pick_gpus(mask, free, worker.gpus)
        for mask, free in zip(allowed[found.rows].tolist(), room.free[found.rows].tolist(), strict=True)
    ]
    size = found.rows.size
    return Taking(found.rows, np.array(masks, np.int64), np.full(size, worker.cpu), np.full(size, worker.memory))
