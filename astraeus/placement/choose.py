"""The choice inside a rung: which domain, and which of its machines."""

from dataclasses import dataclass
from itertools import combinations

import numpy as np

from astraeus.model.network import Rung
from astraeus.placement.fleet import Ints
from astraeus.placement.holdings import Taking
from astraeus.placement.kinds import Kind
from astraeus.placement.ladder import INFINIBAND, LEVELS, MACHINE_LEVEL, ROCE
from astraeus.placement.need import Need, Shape
from astraeus.placement.room import Room
from astraeus.placement.view import View

NOBODY: frozenset[str] = frozenset()
SPINES_SEARCHED = 12
"""With this many spine groups or fewer every pair is tried; with more the fullest are added one by one."""


@dataclass(frozen=True, slots=True)
class Found:
    """Room for a whole gang: the level and domain, and its machines in rank order."""

    level: int
    domain: int
    shape: Shape
    rows: Ints

    @property
    def rung(self) -> Rung:
        """The rung of the level."""
        return LEVELS[self.level].rung


def find(need: Need, room: Room, avoid: frozenset[str] = NOBODY) -> Found | None:
    """The room on the tightest rung that a gang can have; machines in `avoid` are used where nothing else fits."""
    if room.refuses(need.ladder, need.least_size):
        return None
    found = None
    if may_hold(need, room):
        found = (_climb(need, room, avoid) if avoid else None) or _climb(need, room, NOBODY)
    if found is None:
        room.refuse(need.ladder, need.least_size)
    return found


def may_hold(need: Need, room: Room) -> bool:
    """Whether the room would hold such a gang of the easiest workers: asked first, since few kinds tell it for all."""
    return any(room.look(shape.kind.easiest).may_hold(level, shape.size) for level, shape in need.steps)


def _climb(need: Need, room: Room, avoid: frozenset[str]) -> Found | None:
    shape, view = None, None
    for level, tried in need.steps:
        if view is None or tried is not shape:
            shape, view = tried, room.look(tried.kind, avoid)
        if view.may_hold(level, tried.size) and (found := _on_level(level, tried, view)):
            return found
    return None


def _on_level(level: int, shape: Shape, view: View) -> Found | None:
    if level == MACHINE_LEVEL:
        row = _best_machine(view)
        return Found(level, int(view.room.fleet.domains[level].ids[row]), shape, np.array([row], np.int64))
    for domain in _domains_by_leftover(level, shape, view):
        rows = _in_domain(level, domain, shape.size, view)
        if rows is not None:
            return Found(level, domain, shape, rows)
    return None


def _best_machine(view: View) -> int:
    rows = view.rows
    fleet, room = view.room.fleet, view.room
    left = np.bitwise_count(room.free[rows]).astype(np.float64)
    order = np.lexsort((rows, room.home_gpus[fleet.home[rows]], left))
    return int(rows[order[0]])


def _domains_by_leftover(level: int, shape: Shape, view: View) -> list[int]:
    """Domains with enough machines, the one with least left over first; on rung 5 those with fewest leaf groups."""
    counts = view.counts(level)
    enough = (counts >= shape.size).nonzero()[0]
    if enough.size == 1:
        return [int(enough[0])]
    fleet, rows = view.room.fleet, view.rows
    if view.kind.gpus == fleet.most_gpus:
        left = counts[enough]
    else:
        places = fleet.places(level)[rows]
        left = np.bincount(places, np.bitwise_count(view.room.free[rows]), minlength=counts.size + 1)[1:][enough]
    if LEVELS[level].rung is Rung.FABRIC:
        groups = [_fewest_groups(_in_domain(level, domain, shape.size, view), view) for domain in enough.tolist()]
        leaves, spines = np.array(groups, np.int64).T
        order = np.lexsort((enough, left, spines, leaves))
    else:
        order = np.argsort(left, kind="stable")
    domains: list[int] = enough[order].tolist()
    return domains


def _fewest_groups(picked: Ints | None, view: View) -> tuple[int, int]:
    if picked is None:
        return view.room.fleet.size, 0
    fleet = view.room.fleet
    return len(set(fleet.home[picked].tolist())), len(set(fleet.spine[picked].tolist()))


def _in_domain(level: int, domain: int, size: int, view: View) -> Ints | None:
    memo, key = view.memo_of(level, domain), ("picked", size)
    if key not in memo:
        memo[key] = choose_rows(level, size, view, view.rows_in(level, domain))
    picked: Ints | None = memo[key]
    return picked


def choose_rows(level: int, size: int, view: View, rows: Ints) -> Ints | None:
    """`size` of these machines, in rank order, with a rail in common where the level promises RDMA."""
    rails = rails_on(level, view.kind)
    picked = _spread(size, view, rows)
    if rails is None or np.bitwise_and.reduce(rails[picked]):
        return picked
    best: tuple[int, Ints] | None = None
    for rail in range(len(view.room.fleet.rails)):
        sharing = rows[(rails[rows] >> rail) & 1 == 1]
        if sharing.size < size:
            continue
        picked = _spread(size, view, sharing)
        width = int(np.bitwise_and.reduce(rails[picked])).bit_count()
        if best is None or width > best[0]:
            best = width, picked
    return None if best is None else best[1]


def rails_on(level: int, kind: Kind) -> Ints | None:
    """Every machine's rails, as masks, where the level promises RDMA: a gang there has one in common."""
    link = LEVELS[level].link
    return kind.rails[link] if link in (INFINIBAND, ROCE) else None


def together(need: Need, rows: Ints) -> Shape | None:
    """The shape in which a gang can run on exactly these machines; None where they make no rung of its ladder."""
    return next((shape for level, shape in need.steps if domain_of(level, shape, rows) is not None), None)


def domain_of(level: int, shape: Shape, rows: Ints) -> int | None:
    """The domain of a level that these machines make a gang's room in; None where they do not."""
    domains, rails = shape.kind.ids(level)[rows], rails_on(level, shape.kind)
    if shape.size != rows.size or domains[0] < 0 or (domains != domains[0]).any():
        return None
    return None if rails is not None and not np.bitwise_and.reduce(rails[rows]) else int(domains[0])


def _spread(size: int, view: View, rows: Ints) -> Ints:
    """`size` machines on as few leaf groups as possible, then as few spine groups, then evenly over them."""
    fleet = view.room.fleet
    home = fleet.home[rows]
    every = np.bincount(home, minlength=fleet.homes)
    homes = every.nonzero()[0]
    if homes.size == 1:
        return np.sort(_best_rows(size, view, rows))
    counts, spines = every[homes], np.zeros(fleet.homes, np.int64)
    spines[home] = fleet.spine[rows]
    groups = int(np.searchsorted(np.cumsum(np.sort(counts)[::-1]), size)) + 1
    allowed = _fewest_spines(size, groups, counts, spines[homes])
    quotas = _quotas(size, groups, counts, allowed)
    parts = [_best_rows(quota, view, rows[home == homes[group]]) for group, quota in quotas.items()]
    return np.sort(np.concatenate(parts))


def _fewest_spines(size: int, groups: int, counts: Ints, spine: Ints) -> Ints:
    """Indices of the groups under the fewest spine groups whose `groups` largest hold the gang."""
    under: dict[int, list[int]] = {}
    for count, number in zip(counts.tolist(), spine.tolist(), strict=True):
        under.setdefault(number, []).append(count)
    largest = {number: sorted(under[number])[-groups:] for number in sorted(under)}
    enough = [(room, number) for number, top in largest.items() if (room := sum(top)) >= size]
    chosen = [min(enough)[1]] if enough else _several_spines(size, groups, largest)
    return np.flatnonzero(np.isin(spine, chosen) if len(chosen) > 1 else spine == chosen[0])


def _several_spines(size: int, groups: int, largest: dict[int, list[int]]) -> list[int]:
    """The fewest spine groups that hold the gang, by the largest counts of their leaf groups."""

    def held(chosen: list[int]) -> int:
        return sum(sorted([count for number in chosen for count in largest[number]])[-groups:])

    singles = {number: sum(top) for number, top in largest.items()}
    if len(largest) <= SPINES_SEARCHED:
        likely = [[a, b] for a, b in combinations(largest, 2) if singles[a] + singles[b] >= size]
        good = [(room, pair) for pair in likely if (room := held(pair)) >= size]
        if good:
            return min(good)[1]
    chosen: list[int] = []
    for number in sorted(largest, key=lambda number: (-singles[number], number)):
        chosen.append(number)
        if held(chosen) >= size:
            break
    return chosen


def _quotas(size: int, groups: int, counts: Ints, allowed: Ints) -> dict[int, int]:
    """How many machines each chosen group gives: from the groups with least left over together, evenly."""
    quotas = dict.fromkeys(_least_left_over(size, groups, counts, allowed), 0)
    left = size
    for place, group in enumerate(sorted(quotas, key=lambda g: (int(counts[g]), g))):
        quotas[group] = min(int(counts[group]), left // (len(quotas) - place))
        left -= quotas[group]
    return {group: quota for group, quota in sorted(quotas.items()) if quota}


def _least_left_over(size: int, groups: int, counts: Ints, allowed: Ints) -> list[int]:
    """So many groups that hold the gang: the largest, each exchanged for the smallest that still does.

    What is left of a group that a gang crosses into is of little use to the next one, so remnants are used up first.
    """
    order = allowed[np.lexsort((-allowed, counts[allowed]))]
    chosen: list[int] = order[: -groups - 1 : -1].tolist()
    rest: list[int] = order[:-groups].tolist()
    left_over = int(counts[chosen].sum()) - size
    for place in reversed(range(groups)):
        if not left_over or not rest:
            break
        group, others = chosen[place], counts[rest]
        smallest = int(np.searchsorted(others, counts[group] - left_over))
        if smallest == len(rest) or others[smallest] == counts[group]:
            continue
        # Of equal groups the one with the lowest number stands last.
        smallest = int(np.searchsorted(others, others[smallest], side="right")) - 1
        left_over -= int(counts[group] - others[smallest])
        chosen[place] = rest.pop(smallest)
        rest.append(group)
    return chosen


def _best_rows(size: int, view: View, rows: Ints) -> Ints:
    """`size` machines of one group: those with most network first, then the fullest, then by id."""
    if rows.size == size:
        return rows
    room = view.room
    order = np.lexsort((rows, np.bitwise_count(room.free[rows]), -view.kind.network[rows]))
    picked: Ints = rows[order[:size]]
    return picked


def taking_of(found: Found, view: View, first: Ints | None = None) -> Taking:
    """The room a gang takes: on each machine its lowest free GPUs, those in `first` and in full health first."""
    size, worker = found.rows.size, found.shape.worker
    masks = view.free_gpus(found.rows)
    if (np.bitwise_count(masks) != worker.gpus).any():
        better = (view.room.free if first is None else first)[found.rows] & view.room.fleet.clean[found.rows]
        pairs = zip(masks.tolist(), better.tolist(), strict=True)
        masks = np.array([pick_gpus(free, good, worker.gpus) for free, good in pairs], np.int64)
    return Taking(found.rows, masks, np.full(size, worker.cpu), np.full(size, worker.memory))


def pick_gpus(free: int, better: int, count: int) -> int:
    """A mask of `count` of the free GPUs: the lowest of the better ones, then of the rest."""
    if free.bit_count() == count:
        return free
    picked = 0
    for pool in (free & better, free & ~better):
        while pool and picked.bit_count() < count:
            lowest = pool & -pool
            picked |= lowest
            pool ^= lowest
    return picked
