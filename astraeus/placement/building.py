"""The arrays of a fleet, made from its machines: a column at a time."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from astraeus.model.machine import FABRIC, LEAF, NVLINK, RACK, ROCE, SPINE, Nic
from astraeus.placement.fleet import Domains, Fleet, Ints, Ports, keyed_ports
from astraeus.placement.holdings import Owners
from astraeus.placement.ladder import LEVELS, LINKS
from astraeus.placement.types import Machine

RAILS_MAX = 62
OWNERS_MOST = 5_000
MEMO_MOST = 10_000
LABELS = {"fabric": FABRIC, "spine": SPINE, "leaf": LEAF, "rack": RACK, "nvlink_domain": NVLINK, "roce": ROCE}
SPINE_PARTS = ("fabric?", "spine")
LEAF_PARTS = ("fabric?", "leaf")

_KEPT: list[Fleet] = []
_KEPT_MOST = 4


def fleet_of(machines: tuple[Machine, ...]) -> Fleet:
    """The arrays of these machines; the last few fleets are kept, known by the identity of the tuple."""
    for i, fleet in enumerate(_KEPT):
        if fleet.given is machines:
            if not is_worn(fleet):
                return fleet
            del _KEPT[i]
            break
    fleet = build(machines)
    _KEPT.insert(0, fleet)
    del _KEPT[_KEPT_MOST:]
    return fleet


def is_worn(fleet: Fleet) -> bool:
    """Whether it is better made anew: what it knows of runs long gone would be kept for as long as it is."""
    return len(Owners.of(fleet).names) >= OWNERS_MOST + fleet.size or len(fleet.memo) >= MEMO_MOST


@dataclass(frozen=True, slots=True)
class Column:
    """One property of every machine: `codes[m]` is the place of its value in the sorted `values`, -1 for none."""

    codes: Ints
    values: tuple[str, ...]

    @classmethod
    def of(cls, found: Sequence[str | None]) -> "Column":
        """The column of these values."""
        values = tuple(sorted(value for value in set(found) if value))
        number: dict[str | None, int] = {value: i for i, value in enumerate(values)}
        return cls(_ints(number.get(value, -1) for value in found), values)

    def last(self) -> Ints:
        """The codes with machines that have no value behind all others."""
        last: Ints = np.where(self.codes < 0, len(self.values), self.codes)
        return last

    def read(self, rows: Ints) -> list[str]:
        """The values of some machines, empty for none."""
        values = (*self.values, "")
        return [values[code] for code in self.codes[rows].tolist()]

    def at(self, rows: Ints) -> "Column":
        """The column in another order of the machines."""
        return Column(self.codes[rows], self.values)


def build(given: tuple[Machine, ...]) -> Fleet:
    """The arrays of these machines, kept in rank order."""
    named = {"name": Column.of([machine.name for machine in given])}
    labels = [machine.labels for machine in given]
    named |= {part: Column.of([found.get(label) for found in labels]) for part, label in LABELS.items()}
    rank = np.lexsort((named["name"].codes, *(named[part].last() for part in ("leaf", "spine", "fabric"))))
    machines = tuple(map(given.__getitem__, rank.tolist()))
    columns = {part: column.at(rank) for part, column in named.items()}
    models = tuple(sorted({machine.gpu_model for machine in machines}))
    model_number = {name: i for i, name in enumerate(models)}
    full = np.left_shift(np.int64(1), _ints(machine.gpus for machine in machines)) - 1
    sound = full & ~_ints(machine.broken for machine in machines)
    doubtful = _ints(machine.doubtful for machine in machines)
    home = _homes(columns)
    return Fleet(
        given=given,
        machines=machines,
        index={machine.name: i for i, machine in enumerate(machines)},
        full=full,
        sound=sound,
        clean=sound if not (sound & doubtful).any() else sound & ~doubtful,
        cpu=np.array([machine.cpu_cores for machine in machines], np.float64),
        memory=np.array([machine.memory_bytes for machine in machines], np.float64),
        refused=np.array([machine.refusal is not None for machine in machines], np.bool_),
        model=_ints(model_number[machine.gpu_model] for machine in machines),
        models=models,
        home=home,
        homes=int(home.max(initial=-1)) + 1,
        spine=_divide(SPINE_PARTS, columns).ids,
        domains=tuple(_divide(level.parts, columns) for level in LEVELS),
        ports=_ports(machines),
    )


def _ints(values: Iterable[int]) -> Ints:
    return np.array(list(values), np.int64)


def _divide(parts: tuple[str, ...], columns: dict[str, Column]) -> Domains:
    """The domains of all machines by these parts; a part with a question mark may be missing."""
    size = columns["name"].codes.size
    used = [columns[part.rstrip("?")] for part in parts]
    placed, numbers = np.ones(size, np.bool_), np.zeros(size, np.int64)
    for part, column in zip(parts, used, strict=True):
        placed &= part.endswith("?") | (column.codes >= 0)
        numbers = numbers * (len(column.values) + 1) + column.codes + 1
    rows = np.flatnonzero(placed)
    _, first, ids = np.unique(numbers[rows], return_index=True, return_inverse=True)
    found = np.full(size, -1, np.int64)
    found[rows] = ids
    values = [column.read(rows[first]) for column in used]
    return Domains(found, tuple(zip(*values, strict=True)) if used else (("",),) * int(size > 0))


def _homes(columns: dict[str, Column]) -> Ints:
    """Where each machine's neighbours are: its leaf group, else its rack."""
    leaf, rack = _divide(LEAF_PARTS, columns), _divide(("rack",), columns)
    homes = np.where(leaf.ids >= 0, 1 + leaf.ids, np.where(rack.ids >= 0, 1 + len(leaf.keys) + rack.ids, 0))
    dense: Ints = np.unique(homes, return_inverse=True)[1].astype(np.int64)
    return dense


def _ports(machines: Sequence[Machine]) -> Ports:
    lists, pattern = _patterns([machine.ports for machine in machines])
    found = [
        (link, row, key, nic)
        for row, ports in enumerate(lists)
        for link in range(len(LINKS))
        for key, nic in keyed_ports(ports, link)
    ]
    rails = tuple(sorted({key for _, _, key, _ in found}))[:RAILS_MAX]
    column = {key: i for i, key in enumerate(rails)}
    rates = np.zeros((len(LINKS), len(lists), len(rails)), np.float64)
    up = np.zeros(rates.shape, np.bool_)
    for link, row, key, nic in found:
        if key in column:
            rates[link, row, column[key]] = nic.gbps
            up[link, row, column[key]] = nic.up
    return Ports(pattern, rates, up, rails, tuple(lists))


def _patterns(ports: Sequence[tuple[Nic, ...]]) -> tuple[list[tuple[Nic, ...]], Ints]:
    """The distinct lists of ports, and which of them each machine has. Lists of the same ports are one."""
    by_list: dict[int, int] = {}
    by_ports: dict[tuple[int, ...], int] = {}
    lists: list[tuple[Nic, ...]] = []
    pattern = []
    for mine in ports:
        number = by_list.get(id(mine))
        if number is None:
            number = by_ports.setdefault(tuple(map(id, mine)), len(lists))
            by_list[id(mine)] = number
            if number == len(lists):
                lists.append(mine)
        pattern.append(number)
    return lists, _ints(pattern)
