"""The largest gang that fits now on each rung: pure, from the planner's own snapshot and ladder."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from astraeus.placement.ladder import LEVELS, LINKS, Level
from astraeus.placement.types import Machine, Snapshot


@dataclass(frozen=True)
class Room:
    """A rung's largest gang: `machines` workers of `gpus` GPUs each, in `place`. No machine: none fits."""

    rung: int
    words: str
    machines: int = 0
    gpus: int = 0
    place: str = ""

    @property
    def total(self) -> int:
        """GPUs of the whole gang."""
        return self.machines * self.gpus


def largest(snapshot: Snapshot) -> list[Room]:
    """For each rung that this cluster has, the gang of most GPUs whose workers all get the same number.

    GPUs kept for runs that wait count as free, since shorter runs may use them; `kept` tells how many these are.
    """
    used = _used(snapshot)
    best: dict[int, Room] = {}
    for level in LEVELS:
        domains = _domains(level, snapshot.machines)
        if not domains:
            continue
        found = max((_best(level, key, some, used) for key, some in sorted(domains.items())), key=lambda r: r.total)
        if level.rung not in best or found.total > best[level.rung].total:
            best[level.rung] = found
    return list(best.values())


def kept(snapshot: Snapshot) -> dict[str, int]:
    """How many free GPUs are kept for each run that waits."""
    names, used = {ask.claim: ask.run_name for ask in snapshot.asks}, _used(snapshot)
    counts: defaultdict[str, int] = defaultdict(int)
    for reserved in snapshot.reserved:
        free = reserved.gpu_mask & ~used.get(reserved.machine, 0)
        counts[names.get(reserved.claim, "a run")] += free.bit_count()
    return {name: count for name, count in counts.items() if count}


def _used(snapshot: Snapshot) -> dict[str, int]:
    used: defaultdict[str, int] = defaultdict(int)
    for holding in snapshot.holdings:
        used[holding.machine] |= holding.gpu_mask
    return used


def _domains(level: Level, machines: Iterable[Machine]) -> dict[tuple[str, ...], list[Machine]]:
    domains: defaultdict[tuple[str, ...], list[Machine]] = defaultdict(list)
    for machine in machines:
        key = level.key(machine)
        if key is not None and machine.gpus and (level.link is None or _has_link(machine, LINKS[level.link])):
            domains[key].append(machine)
    return domains


def _has_link(machine: Machine, link: str) -> bool:
    return any(port.link == link for port in machine.ports)


def _best(level: Level, key: tuple[str, ...], machines: list[Machine], used: dict[str, int]) -> Room:
    free = sorted((_free(machine, level, used.get(machine.name, 0)) for machine in machines), reverse=True)
    sizes = [(each * (i + 1), i + 1, each) for i, each in enumerate(free) if each]
    if not sizes:
        return Room(level.rung, level.words)
    _, count, each = max(sizes, key=lambda size: (size[0], size[2]))
    return Room(level.rung, level.words, count, each, level.now.format(*key))


def _free(machine: Machine, level: Level, used: int) -> int:
    if machine.refusal is not None:
        return 0
    if level.link is not None and not any(port.up and port.link == LINKS[level.link] for port in machine.ports):
        return 0
    return (((1 << machine.gpus) - 1) & ~used & ~machine.broken).bit_count()
