"""Why a claim waits: every blocker with its true count, in the sentence users read."""

from collections import Counter
from typing import Any, NamedTuple

import numpy as np

from astraeus.model.network import Rung
from astraeus.placement.fleet import Fleet, Ints
from astraeus.placement.kinds import (
    BROKEN,
    BUSY,
    CPU_BUSY,
    DOUBTFUL,
    FITS,
    LINKS_OF,
    MEMORY_BUSY,
    MODEL,
    PORTS,
    REFUSED,
    ROOM_SMALL,
    SELECTION,
    SLACK,
    SMALL,
    UNLABELLED,
    Codes,
    Kind,
    Worker,
)
from astraeus.placement.ladder import ETHERNET, INFINIBAND, LEVELS, MACHINE_LEVEL, ROCE
from astraeus.placement.need import Need
from astraeus.placement.room import Room
from astraeus.placement.view import View

HOLDERS_NAMED = 3
GIB = 1024**3
INTERCONNECT_WORDS = {
    "infiniband": "InfiniBand",
    "rdma": "RDMA",
    "ethernet": "Ethernet ports",
    "nvlink": "NVLink",
    "any": "ports",
}
LINK_WORDS = {INFINIBAND: "InfiniBand", ROCE: "RoCE", ETHERNET: "Ethernet ports"}


class Reason(NamedTuple):
    """The sentence for a gang that fits nowhere and all blockers; `of` is what they were made from."""

    text: str
    blockers: tuple[str, ...]
    of: "Grounds | None" = None


class Standing(NamedTuple):
    """How many machines of a domain fit, and what stands against each of the others."""

    has: int
    blockers: tuple[str, ...]


Grounds = tuple[int, int | None, int, Standing]
"""What a reason is made from: level and domain that came nearest, machines left out, what stands against the others."""


class Seen(NamedTuple):
    """What a reason was read from: of a view, what depends on counts and what is of the place; the machines' state."""

    nearest: dict[Any, Any]
    place: dict[Any, Any] | None
    codes: Codes

    @classmethod
    def of(cls, view: View, reason: Reason) -> "Seen":
        """The view as it is now."""
        return cls(view.nearest, None if reason.of is None else view.memo_of(*reason.of[:2]), view.kind.codes)


def holds(reason: Reason, need: Need, view: View, seen: Seen | None) -> bool:
    """Whether nothing that a reason tells has changed since it was read from the view."""
    if reason.of is None:
        return True
    level, domain, lone, _ = reason.of
    if seen is None or seen.nearest is not view.nearest or seen.place is not view.memo_of(level, domain):
        return False
    # Of machines outside the place that it is about, it tells those without any place.
    return seen.codes is view.kind.codes or _apart(need, level) == lone


def reason_of(need: Need, view: View, cluster: str, last: Reason | None = None) -> Reason:
    """Why a gang fits nowhere. The view is of its widest shape; `last` is what was said of the same need before."""
    if not need.steps:
        words = _impossible(need)
        return Reason(words, (words,))
    level, domain = _nearest(need, view)
    of = level, domain, _apart(need, level), _blockers(level, domain, view, need.widest.worker)
    return last if last is not None and last.of == of else _reason(need, view, cluster, of)


def _reason(need: Need, view: View, cluster: str, of: Grounds) -> Reason:
    level, domain, lone, standing = of
    shape, has, blockers = need.widest, standing.has, standing.blockers
    if has >= shape.size > 1 and LEVELS[level].link in (INFINIBAND, ROCE):
        blockers = (*blockers, f"no {shape.size} of them have a rail in common")
    where = LEVELS[level].needs if shape.size > 1 else ""
    if domain is None and LEVELS[level].rung is Rung.ROCE:
        where = "on one RDMA network"
    name = cluster if domain is None else view.room.fleet.domains[level].keys[domain][-1] or cluster
    detail = f" ({', '.join(blockers)})" if blockers else ""
    unit = "" if need.least is None else f" machine{_s(has)} with {shape.worker.gpus} free"
    key = f"words {where}"
    if key not in need.memo:
        need.memo[key] = needs_words(need, where)
    subject = need.memo[key]
    text = f"Needs {subject}; {name} has {has}{unit}{detail}"
    return Reason(text, blockers + _extra(need, lone, subject, cluster), of)


def needs_words(need: Need, where: str) -> str:
    """What the gang needs: `8 machines with 8 free H100 GPUs on one InfiniBand fabric`."""
    shape = need.widest
    models = " or ".join(need.resources.gpu_requests.models)
    place = f" {where}" if where else ""
    if need.least is not None and shape.size > 1:
        count = need.resources.gpu_requests.count
        return f"{count}{f' {models}' if models else ''} GPUs, {need.least} or more on each machine,{place}".rstrip(",")
    machines = f"{shape.size} machine{_s(shape.size)}"
    if shape.worker.gpus:
        gpus = f"{shape.worker.gpus} free{f' {models}' if models else ''} GPU{_s(shape.worker.gpus)}"
        return f"{machines} with {gpus}{place}"
    parts = [
        *([f"{shape.worker.cpu:g} free CPU core{_s(shape.worker.cpu)}"] if shape.worker.cpu else []),
        *([f"{_gib(shape.worker.memory)} of free memory"] if shape.worker.memory else []),
    ]
    return f"{machines}{' with ' + ' and '.join(parts) if parts else ''}{place}"


def _nearest(need: Need, view: View) -> tuple[int, int | None]:
    """The level and domain that came nearest, on the loosest level that could ever hold the gang, else has any machine.

    Domains that could ever hold it come first, then those with most machines that fit now.
    """
    size = need.widest.size
    if size == 1:
        return MACHINE_LEVEL, None
    key = ("nearest", need.levels, size)
    if key not in view.nearest:
        view.nearest[key] = _nearest_anew(need, size, view)
    nearest: tuple[int, int | None] = view.nearest[key]
    return nearest


def _nearest_anew(need: Need, size: int, view: View) -> tuple[int, int | None]:
    levels = [level for level in reversed(need.levels) if level != MACHINE_LEVEL]
    for least in (size, 1):
        for level in levels:
            if view.kind.most_ever(level) >= least:
                return level, _nearest_domain(level, size, view)
    return levels[0], None


def _nearest_domain(level: int, size: int, view: View) -> int:
    most = view.kind.capacity(level)
    if level not in view.nearest:
        scores = view.counts(level) * (view.kind.most_ever(level) + 1) + most
        view.nearest[level] = scores, int(scores.argmax())
    found: tuple[Ints, int] = view.nearest[level]
    scores, best = found
    if most[best] >= size:
        return best
    # No score is negative: all domains that could never hold the gang are below all that could.
    return int(np.where(most >= size, scores, scores - scores[best] - 1).argmax())


def _blockers(level: int, domain: int | None, view: View, worker: Worker) -> Standing:
    memo = view.memo_of(level, domain)
    key = ("blockers", worker.min_gbps, worker.interconnect, worker.named, worker.labels)
    if key not in memo:
        able, before, after = _standing(level, domain, view.kind, worker)
        if id(able) not in memo:
            memo[id(able)] = _taken(able, view, worker)
        has, taken = memo[id(able)]
        memo[key] = Standing(has, (*before, *taken, *after))
    standing: Standing = memo[key]
    return standing


def _standing(
    level: int, domain: int | None, kind: Kind, worker: Worker
) -> tuple[Ints, tuple[str, ...], tuple[str, ...]]:
    """The machines of a domain that could serve, and what stands against the others whatever runs there.

    That is told before and after what runs there. It is kept with the codes, until a machine there changes.
    """
    memo = kind.codes.at(level, domain)
    key = (kind, worker.min_gbps, worker.interconnect, worker.named, worker.labels)
    if key not in memo:
        able, against = _sorted(level, domain, kind)
        told: dict[bool, list[str]] = {False: [], True: []}
        for code, rows in against:
            told[code > BUSY] += _told(code, rows, level, kind.fleet, worker)
        memo[key] = able, tuple(told[False]), tuple(told[True])
    standing: tuple[Ints, tuple[str, ...], tuple[str, ...]] = memo[key]
    return standing


def _sorted(level: int, domain: int | None, kind: Kind) -> tuple[Ints, list[tuple[int, Ints]]]:
    """The machines of a domain that could serve, and the others by what keeps them from it."""
    ids = kind.ids(level)
    memo, key = kind.codes.at(level, domain), id(ids)
    if key not in memo:
        rows = kind.fleet.rows_of(level, domain)
        codes = kind.codes.array[rows]
        if level != MACHINE_LEVEL:
            apart = (ids[rows] < 0) & (codes == FITS)
            codes = np.where(apart, np.where(kind.fleet.domains[level].ids[rows] < 0, UNLABELLED, PORTS), codes)
        present = np.flatnonzero(np.bincount(codes)).tolist()
        memo[key] = rows[codes == FITS], [(code, rows[codes == code]) for code in present if code != FITS]
    found: tuple[Ints, list[tuple[int, Ints]]] = memo[key]
    return found


def _taken(able: Ints, view: View, worker: Worker) -> tuple[int, tuple[str, ...]]:
    """How many of the machines that could serve fit, and what runs on the others.

    That is who holds their GPUs, or that cores or memory are short.
    """
    kind, room = view.kind, view.room
    enough, held = _in_use(able, kind, room)
    if not (kind.cpu or kind.memory):
        return enough.size, held
    short = enough[~view.fit[enough]]
    if not short.size:
        return enough.size, held
    few_cores = int(np.count_nonzero(room.cpu[short] + SLACK < kind.cpu))
    counts = ((CPU_BUSY, few_cores), (MEMORY_BUSY, short.size - few_cores))
    told = [f"{count} {_words(code, worker)}" for code, count in counts if count]
    return enough.size - short.size, (*held, *told)


def _told(code: int, rows: Ints, level: int, fleet: Fleet, worker: Worker) -> list[str]:
    if code == REFUSED:
        states = Counter(fleet.machines[row].refusal or "" for row in rows.tolist())
        return [f"{number} {state}" for state, number in sorted(states.items())]
    if code == PORTS:
        return _port_words(rows, level, worker, fleet)
    if code == SMALL:
        without = int(np.count_nonzero(fleet.full[rows] == 0))
        few = rows.size - without
        return [
            *([f"{few} with fewer than {worker.gpus} GPUs"] if few else []),
            *([f"{without} without GPUs"] if without else []),
        ]
    return [f"{rows.size} {_words(code, worker)}"]


def _words(code: int, worker: Worker) -> str:
    cores, memory = f"{worker.cpu:g} CPU core{_s(worker.cpu)}", f"{_gib(worker.memory)} of memory"
    wanted = [*([cores] if worker.cpu else []), *([memory] if worker.memory else [])]
    if code == SELECTION and worker.named is not None:
        return "not among the machines named"
    labels = ", ".join(f"{key}={value}" for key, value in worker.labels)
    return {
        BROKEN: "with broken GPUs",
        DOUBTFUL: "with doubtful GPUs",
        CPU_BUSY: f"with under {cores} free",
        MEMORY_BUSY: f"with under {memory} free",
        UNLABELLED: "without topology labels",
        ROOM_SMALL: f"with under {' or '.join(wanted)} in all",
        MODEL: "with other GPUs",
        SELECTION: f"without the label{_s(len(worker.labels))} {labels}",
    }[code]


def _in_use(able: Ints, kind: Kind, room: Room) -> tuple[Ints, tuple[str, ...]]:
    """The machines of these with enough free GPUs, and who holds the others. Kinds of worker share the answer."""
    key = (id(able), id(kind.allowed), kind.gpus)
    if key not in room.memo:
        gpus, owners = _state(able, kind.allowed, room)
        few = gpus < kind.gpus
        room.memo[key] = able[~few], _holders(owners[few], room)
    found: tuple[Ints, tuple[str, ...]] = room.memo[key]
    return found


def _state(able: Ints, allowed: Ints, room: Room) -> tuple[Ints, Ints]:
    """How many free GPUs these machines have, and the numbers of their owners, one higher."""
    key = (id(able), id(allowed))
    if key not in room.memo:
        room.memo[key] = np.bitwise_count(room.free[able] & allowed[able]), room.owner[able] + 1
    state: tuple[Ints, Ints] = room.memo[key]
    return state


def _holders(owners: Ints, room: Room) -> tuple[str, ...]:
    """Who holds machines of these owners: the largest by name, the rest as a number."""
    if not owners.size:
        return ()
    counts = np.bincount(owners)
    numbers = np.flatnonzero(counts)
    shown = HOLDERS_NAMED if numbers.size > HOLDERS_NAMED + 1 else numbers.size
    least = np.partition(counts[numbers], numbers.size - shown)[numbers.size - shown]
    large = numbers[counts[numbers] >= least]
    large = large[np.lexsort((room.owners.order()[large], -counts[large]))][:shown]
    names = room.owners.names
    told = [f"{counts[number]} {names[number - 1] if number else 'with too few GPUs'}" for number in large.tolist()]
    rest = numbers.size - shown
    if rest:
        told.append(f"{owners.size - int(counts[large].sum())} in use by {rest} other run{_s(rest)}")
    return tuple(told)


def _port_words(rows: Ints, level: int, worker: Worker, fleet: Fleet) -> list[str]:
    link = LEVELS[level].link
    links = list(LINKS_OF[worker.interconnect]) if link is None or worker.interconnect != "any" else [link]
    name = INTERCONNECT_WORDS[worker.interconnect] if link is None or worker.interconnect != "any" else LINK_WORDS[link]
    rates = np.stack([fleet.rates(link, rows) for link in links])
    up = np.stack([fleet.up(link, rows) for link in links])
    some = (rates > 0).any(axis=(0, 2))
    fast = ((rates > 0) & (rates >= worker.min_gbps)).any(axis=(0, 2))
    slow_up = ((rates > 0) & (rates < worker.min_gbps) & up).any(axis=(0, 2))
    down = some & fast & ~slow_up
    told = [
        (int(np.count_nonzero(some & ~down)), f"with ports under {worker.min_gbps:g} Gb/s"),
        (int(np.count_nonzero(down)), "with ports down"),
        (int(np.count_nonzero(~some)), f"without {name}"),
    ]
    return [f"{number} {words}" for number, words in told if number]


def _extra(need: Need, lone: int, subject: str, cluster: str) -> tuple[str, ...]:
    """What is true beyond the nearest domain: that it could never fit, and machines left out for want of labels."""
    extra = []
    if need.ideal is None:
        extra.append(f"even idle and in full health {cluster} has no room for {subject}")
    if lone:
        extra.append(f"{lone} machine{_s(lone)} without topology labels can only be used on looser rungs")
    return tuple(extra)


def _apart(need: Need, level: int) -> int:
    """Machines that would do but have no place on any level the gang may stand on; none where it needs no place."""
    if LEVELS[level].link == ETHERNET or level == MACHINE_LEVEL:
        return 0
    kind = need.widest.kind
    memo, key = kind.codes.at(MACHINE_LEVEL, None), ("apart", need.levels)
    if key not in memo:
        placed = np.zeros(kind.fleet.size, np.bool_)
        for level in need.levels:
            if level != MACHINE_LEVEL:
                placed |= kind.fleet.domains[level].ids >= 0
        memo[key] = int(np.count_nonzero(kind.usable & ~placed))
    apart: int = memo[key]
    return apart


def _impossible(need: Need) -> str:
    resources, size = need.resources, need.widest.size
    kind, within = resources.network.interconnect, resources.topology.keep_within
    if not need.levels:
        return f"Cannot be placed: interconnect {kind} has no rung within {within}"
    return f"Cannot be placed: {size} machines can not be kept within one {within.replace('_', ' ')}"


def _gib(memory: float) -> str:
    return f"{memory / GIB:.4g} GiB"


def _s(number: float) -> str:
    return "" if number == 1 else "s"
