"""Why a claim waits: every blocker with its true count, in the sentence users read."""

from collections import Counter

import numpy as np

from astraeus.model.network import Rung
from astraeus.model.spec import Resources
from astraeus.placement.fleet import Fleet, Ints
from astraeus.placement.ladder import ETHERNET, INFINIBAND, LEVELS, LINKS, MACHINE_LEVEL, ROCE
from astraeus.placement.need import Need, Worker, candidates, capacity, ids_on
from astraeus.placement.room import View

(
    FITS,
    REFUSED,
    PORTS,
    BROKEN,
    DOUBTFUL,
    BUSY,
    CPU_BUSY,
    MEMORY_BUSY,
    UNLABELLED,
    SMALL,
    ROOM_SMALL,
    MODEL,
    SELECTION,
) = range(13)
"""What keeps a machine from serving a worker; the order is that in which they are told."""

HOLDERS_NAMED = 3
GIB = 1024**3
LINK_NAMES = {"infiniband": "InfiniBand", "rdma": "RDMA", "ethernet": "Ethernet", "nvlink": "NVLink", "any": "network"}


def reason_of(need: Need, view: View, cluster: str) -> tuple[str, tuple[str, ...]]:
    """The sentence for a gang that fits nowhere, and the blockers behind it. The view is of its least shape."""
    if not need.levels or not any(need.shapes_on(level) for level in need.levels):
        words = _impossible(need)
        return words, (words,)
    level, domain = _nearest(need, view)
    has, blockers = blockers_in(level, domain, view)
    shape = need.shapes[-1]
    where = LEVELS[level].needs if shape.size > 1 else ""
    if domain is None and LEVELS[level].rung is Rung.ROCE:
        where = "on one RDMA network"
    subject = needs_words(need, where)
    name = cluster if domain is None else view.room.fleet.domains[level].keys[domain][-1] or cluster
    detail = f" ({', '.join(blockers)})" if blockers else ""
    unit = "" if need.least is None else f" machine{_s(has)} with {shape.worker.gpus} free"
    extra = _never(need, view.room.fleet, where, cluster) + _apart(need, level, view)
    return f"Needs {subject}; {name} has {has}{unit}{detail}", blockers + extra


def needs_words(need: Need, where: str) -> str:
    """What the gang needs: `8 machines with 8 free H100 GPUs on one InfiniBand fabric`."""
    shape = need.shapes[-1]
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
    """The level and domain that came nearest, on the loosest level that has any machine for it."""
    levels = [level for level in reversed(need.levels) if need.shapes_on(level)]
    if levels == [MACHINE_LEVEL] or need.shapes[-1].size == 1:
        return MACHINE_LEVEL, None
    for level in levels:
        room = capacity(level, view.worker, view.room.fleet)
        if level != MACHINE_LEVEL and room.size and room.max() > 0:
            counts = view.counts(level)
            return level, int(np.lexsort((np.arange(counts.size), -room, -counts))[0])
    return next(level for level in levels if level != MACHINE_LEVEL), None


def blockers_in(level: int, domain: int | None, view: View) -> tuple[int, tuple[str, ...]]:
    """How many machines of a domain fit, and what stands against each of the others. Kept until the room changes."""
    fleet = view.room.fleet
    if domain is None:
        rows = np.arange(fleet.size)
        codes = codes_of(view)
        if level != MACHINE_LEVEL:
            lone = np.isin(codes, (FITS, BUSY, CPU_BUSY, MEMORY_BUSY)) & (ids_on(level, view.worker, fleet) < 0)
            codes = np.where(lone, UNLABELLED, codes)
    else:
        rows = np.flatnonzero(fleet.domains[level].ids == domain)
        codes = codes_of(view)[rows]
        codes = np.where((codes == FITS) & (ids_on(level, view.worker, fleet)[rows] < 0), PORTS, codes)
    found = [
        words for code in np.unique(codes).tolist() if code != FITS for words in _told(code, rows[codes == code], view)
    ]
    return int(np.count_nonzero(codes == FITS)), tuple(found)


def codes_of(view: View) -> Ints:
    """For every machine the first thing that keeps it from serving the worker."""
    found, worker, room = view.candidates, view.worker, view.room
    fleet = room.fleet
    key = ("codes", worker)
    if key not in fleet.memo:
        static = np.zeros(fleet.size, np.int64)
        for code, bad in (
            (DOUBTFUL, np.bitwise_count(found.allowed) < worker.gpus),
            (BROKEN, np.bitwise_count(fleet.sound) < worker.gpus),
            (PORTS, ~found.linked),
            (REFUSED, fleet.refused),
            (ROOM_SMALL, ~found.roomy),
            (SMALL, ~found.large),
            (MODEL, ~found.right_model),
            (SELECTION, ~found.selected),
        ):
            static[bad] = code
        fleet.memo[key] = static
    static = fleet.memo[key]
    codes: Ints = static.copy()
    open_ = (static == FITS) & ~view.fit
    codes[open_ & (room.memory < worker.memory)] = MEMORY_BUSY
    codes[open_ & (room.cpu < worker.cpu)] = CPU_BUSY
    codes[open_ & (np.bitwise_count(room.free & found.allowed) < worker.gpus)] = BUSY
    return codes


def _told(code: int, rows: Ints, view: View) -> list[str]:
    count, worker, fleet = rows.size, view.worker, view.room.fleet
    if code == REFUSED:
        states = Counter(fleet.machines[row].refusal or "" for row in rows.tolist())
        return [f"{number} {state}" for state, number in sorted(states.items())]
    if code == PORTS:
        return _port_words(rows, worker, fleet)
    if code == BUSY:
        return _holders(rows, view)
    if code == SMALL:
        without = int(np.count_nonzero(fleet.full[rows] == 0))
        few = count - without
        return [
            *([f"{few} with fewer than {worker.gpus} GPUs"] if few else []),
            *([f"{without} without GPUs"] if without else []),
        ]
    return [f"{count} {_words(code, worker)}"]


def _words(code: int, worker: Worker) -> str:
    cores, memory = f"{worker.cpu:g} CPU core{_s(worker.cpu)}", f"{_gib(worker.memory)} of memory"
    wanted = [*([cores] if worker.cpu else []), *([memory] if worker.memory else [])]
    if code == SELECTION:
        label = (
            "labels asked for"
            if len(worker.labels) > 1
            else "label " + "".join(f"{key}={value}" for key, value in worker.labels)
        )
        return "not among the machines named" if worker.named is not None else f"without the {label}"
    return {
        BROKEN: "with broken GPUs",
        DOUBTFUL: "with doubtful GPUs",
        CPU_BUSY: f"with under {cores} free",
        MEMORY_BUSY: f"with under {memory} free",
        UNLABELLED: "without topology labels",
        ROOM_SMALL: f"with under {' or '.join(wanted)} in all",
        MODEL: "with other GPUs",
    }[code]


def _holders(rows: Ints, view: View) -> list[str]:
    owners = view.room.owner[rows]
    numbers, counts = np.unique(owners, return_counts=True)
    names: Counter[str] = Counter()
    for number, count in zip(numbers.tolist(), counts.tolist(), strict=True):
        names[view.room.owners[number] if number >= 0 else ""] += count
    ordered = sorted(names.items(), key=lambda item: (-item[1], item[0]))
    shown = HOLDERS_NAMED if len(ordered) > HOLDERS_NAMED + 1 else len(ordered)
    named = [f"{count} {name}" if name else f"{count} with too few GPUs" for name, count in ordered[:shown]]
    rest = ordered[shown:]
    if rest:
        more = sum(count for _, count in rest)
        named.append(f"{more} in use by {len(rest)} other run{_s(len(rest))}")
    return named


def _port_words(rows: Ints, worker: Worker, fleet: Fleet) -> list[str]:
    links = {
        "infiniband": [INFINIBAND],
        "rdma": [INFINIBAND, ROCE],
        "ethernet": [ROCE, ETHERNET],
    }.get(worker.interconnect, range(len(LINKS)))
    rates, up = fleet.rates[list(links)][:, rows], fleet.up[list(links)][:, rows]
    some = (rates > 0).any(axis=(0, 2))
    fast = ((rates > 0) & (rates >= worker.min_gbps)).any(axis=(0, 2))
    slow_up = ((rates > 0) & (rates < worker.min_gbps) & up).any(axis=(0, 2))
    down = some & fast & ~slow_up
    under = some & ~down
    name = LINK_NAMES[worker.interconnect]
    told = [
        (int(np.count_nonzero(under)), f"with ports under {worker.min_gbps:g} Gb/s"),
        (int(np.count_nonzero(down)), "with ports down"),
        (int(np.count_nonzero(~some)), f"without {name}" if worker.interconnect != "any" else "without ports"),
    ]
    return [f"{number} {words}" for number, words in told if number]


def _never(need: Need, fleet: Fleet, where: str, cluster: str) -> tuple[str, ...]:
    """Said where not even an idle cluster in full health could hold the gang."""
    for level in need.levels:
        for shape in need.shapes_on(level):
            room = capacity(level, shape.worker, fleet)
            if room.size and room.max() >= (1 if level == MACHINE_LEVEL else shape.size):
                return ()
    return (f"even idle and in full health {cluster} has no room for {needs_words(need, where)}",)


def _apart(need: Need, level: int, view: View) -> tuple[str, ...]:
    """Machines that would fit but have no place on any level the gang may stand on, for want of labels."""
    if LEVELS[level].link == ETHERNET or need.shapes[-1].size == 1:
        return ()
    placed = np.zeros(view.room.fleet.size, np.bool_)
    for allowed in need.levels:
        if allowed != MACHINE_LEVEL:
            placed |= ids_on(allowed, view.worker, view.room.fleet) >= 0
    lone = int(np.count_nonzero(candidates(view.worker, view.room.fleet).usable & ~placed))
    if not lone:
        return ()
    return (f"{lone} machine{_s(lone)} without topology labels can only be used on looser rungs",)


def _impossible(need: Need) -> str:
    resources: Resources = need.resources
    size = need.shapes[-1].size
    machines = f"{size} machine{_s(size)}"
    if not need.levels:
        kind, within = resources.network.interconnect, resources.topology.keep_within
        return f"Cannot be placed: interconnect {kind} has no rung within {within}"
    return f"Cannot be placed: {machines} can not be kept within one {resources.topology.keep_within.replace('_', ' ')}"


def _gib(memory: float) -> str:
    return f"{memory / GIB:.4g} GiB"


def _s(number: float) -> str:
    return "" if number == 1 else "s"
