"""Room for the first claim that does not fit: which machines are kept for it, and when it can have them."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from astraeus.placement.choose import Found, domain_of, pick_gpus, rails_on
from astraeus.placement.fleet import Bools, Floats, Ints
from astraeus.placement.freeing import SOONEST_SECONDS, Freeing
from astraeus.placement.holdings import Taking
from astraeus.placement.kinds import Kind
from astraeus.placement.ladder import MACHINE_LEVEL
from astraeus.placement.need import Need, Shape
from astraeus.placement.room import Room

LONGER = 4.0
"""So many times the shortest time in which a gang is likely to have room may fewer leaf groups take."""
TOGETHER_SECONDS = 6 * 3600.0
"""So long machines are kept in few leaf groups where nobody knows what ends first: what runs there may never end."""


@dataclass(frozen=True, slots=True)
class Gathering:
    """Machines kept for a claim, and the time at which all of them are free (infinity: not known).

    `until` is when others will be kept, whatever else happens or not; None: never.
    """

    found: Found
    at: float
    until: float | None


@dataclass(frozen=True, slots=True)
class Owed:
    """To whom the next room is due: what it needs, the machines kept for it before, its seconds of waiting.

    It has `waited` since its patience was over; less than 0: it is not. `others` are each machine's GPUs that are kept
    for other claims.
    """

    need: Need
    own: Ints
    waited: float
    others: Ints


class _Step(NamedTuple):
    """A level, a shape for it, when each machine likely has room, the domain that has soonest, and when."""

    level: int
    shape: Shape
    times: Floats
    domain: int
    last: float


def gather(owed: Owed, room: Room, freeing: Freeing, now: float) -> Gathering | None:
    """The machines a gang would have soonest, or None when too few machines take work at all.

    Of machines that are free in time, those of the fewest leaf groups are kept, so that others have what is scattered.
    Where no time is known, those are kept that are likely to be free soon; and where it has waited long, those that
    lack fewest machines with a known end, which are no fewer in a later pass. What was kept before is kept unless
    others are better.
    """
    best: tuple[tuple[float, int, int, int], Found] | None = None
    for level, shape, times in _timed(owed, room, freeing):
        chosen = _soonest(level, shape, room, times, owed.own)
        if chosen is None:
            continue
        rows = chosen[1]
        at, unknown = float(times[rows].max()), int(np.isinf(times[rows]).sum())
        kept = int(np.isin(rows, owed.own).sum())
        found = ((at, unknown, -kept, level), Found(level, chosen[0], shape, np.sort(rows)))
        if best is None or found[0] < best[0]:
            best = found
    if best is None:
        return None
    likely = _likely(owed, room, freeing, now) if np.isinf(best[0][0]) and owed.waited < TOGETHER_SECONDS else None
    if likely is None or np.array_equal(likely.rows, best[1].rows):
        return Gathering(best[1], best[0][0], None)
    return Gathering(likely, best[0][0], now - owed.waited + TOGETHER_SECONDS)


def _timed(owed: Owed, room: Room, freeing: Freeing, likely: bool = False) -> Iterator[tuple[int, Shape, Floats]]:
    """The steps of a need, with the time at which each machine has room for a worker of that shape."""
    known: dict[Kind, Floats] = {}
    for level, shape in owed.need.steps:
        if shape.kind not in known:
            known[shape.kind] = freeing.times(room.view(shape.kind), owed.others, likely)
        yield level, shape, known[shape.kind]


def _likely(owed: Owed, room: Room, freeing: Freeing, now: float) -> Found | None:
    """Machines likely to be free not much later than any, on the tightest level and in the fewest leaf groups.

    Those kept before are kept as long as they are such.
    """
    steps: list[_Step] = []
    for level, shape, times in _timed(owed, room, freeing, likely=True):
        chosen = _soonest(level, shape, room, times, owed.own)
        if chosen is not None:
            domain, rows, sharing = chosen
            steps.append(_Step(level, shape, sharing, domain, float(sharing[rows].max())))
    if not steps or np.isinf(soonest := min(step.last for step in steps)):
        return None
    by = now + LONGER * max(soonest - now, SOONEST_SECONDS)
    for step in steps:
        if (kept := _kept(owed.own, by, step)) is not None:
            return kept
    step = next(step for step in steps if step.last <= by)
    rows = _few_groups(step, by, now, room.fleet.home)
    return Found(step.level, step.domain, step.shape, np.sort(rows))


def _few_groups(step: _Step, by: float, now: float, home: Ints) -> Ints:
    """As many machines of the domain as are needed, in the fewest leaf groups in which these are likely free `by` then.

    Of as many groups those with most free machines are taken, then those whose even shares are free first.
    """
    ids, size, times = step.shape.kind.ids(step.level), step.shape.size, step.times
    rows = np.flatnonzero((ids == step.domain) & (times <= by))
    rows = rows[np.lexsort((rows, times[rows], home[rows]))]
    groups, first, number, counts = np.unique(home[rows], return_index=True, return_inverse=True, return_counts=True)
    free = np.bincount(number, times[rows] <= now)
    most = np.cumsum(np.sort(counts)[::-1])
    for many in range(1 + int(np.argmax(most >= size)), groups.size):
        share = -(-size // many)
        able = np.flatnonzero(counts >= share)
        order = np.lexsort((groups[able], times[rows[first[able] + share - 1]], -free[able]))
        inside: Ints = rows[np.isin(number, able[order][:many])]
        if inside.size >= size:
            break
    else:
        inside = rows
    chosen: Ints = inside[np.lexsort((inside, times[inside]))][:size]
    return chosen


def _kept(own: Ints, by: float, step: _Step) -> Found | None:
    """The machines kept before, if these are as many as needed, of one domain and likely to be free `by` then."""
    domain = domain_of(step.level, step.shape, own)
    if domain is None or not (step.times[own] <= by).all():
        return None
    return Found(step.level, domain, step.shape, np.sort(own))


def _soonest(level: int, shape: Shape, room: Room, times: Floats, own: Ints) -> tuple[int, Ints, Floats] | None:
    """The domain whose soonest machines for the gang are free first, those machines, and the times of all like them.

    Where the level promises RDMA these have a rail in common: the times of machines without it are not known.
    """
    found, rails = _soonest_of(level, shape, room, times, own), rails_on(level, shape.kind)
    if found is None or rails is None or np.bitwise_and.reduce(rails[found[1]]):
        return None if found is None else (*found, times)
    best: tuple[float, tuple[int, Ints, Floats]] | None = None
    for rail in range(len(room.fleet.rails)):
        sharing = np.where((rails >> rail) & 1 == 1, times, np.nan)
        if (found := _soonest_of(level, shape, room, sharing, own)) is None:
            continue
        last = float(times[found[1]].max())
        if best is None or last < best[0]:
            best = last, (*found, sharing)
    return None if best is None else best[1]


def _soonest_of(level: int, shape: Shape, room: Room, times: Floats, own: Ints) -> tuple[int, Ints] | None:
    ids, size = shape.kind.ids(level), shape.size
    rows = np.flatnonzero((ids >= 0) & ~np.isnan(times))
    if not rows.size:
        return None
    fresh = np.ones(room.fleet.size, np.int64)
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
    return int(domains[able][pick]), _together(size, inside, ready, room.fleet.home, fresh)


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
