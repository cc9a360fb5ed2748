"""The machines of a cluster as arrays, made once for as long as the machines stay the same.

Machines are kept in rank order (fabric, spine group, leaf group, name), so that an array index is also the place
of a machine in the order of ranks, and the order of the snapshot does not matter.
"""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from astraeus.model.machine import Nic
from astraeus.placement.ladder import LEVELS, LINKS, ROCE
from astraeus.placement.types import Machine

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]

_Array = TypeVar("_Array", bound=npt.NDArray[Any])

RAILS_MAX = 62
RailKey = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Domains:
    """A division of the machines: `ids[m]` is the domain of machine m (-1: none), `keys` are sorted."""

    ids: Ints
    keys: tuple[tuple[str, ...], ...]


@dataclass(eq=False)
class Fleet:
    """All machines of a cluster. `full` are all GPUs of a machine, `sound` those that may take work."""

    machines: tuple[Machine, ...]
    index: dict[str, int]
    full: Ints
    sound: Ints
    clean: Ints
    cpu: Floats
    memory: Floats
    refused: Bools
    model: Ints
    models: tuple[str, ...]
    home: Ints
    homes: int
    spine: Ints
    domains: tuple[Domains, ...]
    rates: Floats
    """Gb/s of the port by link, machine and rail; 0 where there is none."""
    up: Bools
    rails: tuple[RailKey, ...]
    memo: dict[Any, Any] = field(default_factory=dict)
    needs: dict[int, tuple[Any, Any]] = field(default_factory=dict)

    @property
    def size(self) -> int:
        """How many machines there are."""
        return len(self.machines)

    def rails_of(self, link: int, least: float, nominal: bool = False) -> Ints:
        """Bitmask of each machine's rails that carry `least` Gb/s; `nominal` also counts ports that are down."""
        key = ("rails", link, least, nominal)
        if key not in self.memo:
            good = (self.rates[link] > 0) & (self.rates[link] >= least)
            if not nominal:
                good &= self.up[link]
            bits = np.left_shift(np.int64(1), np.arange(good.shape[1], dtype=np.int64))
            self.memo[key] = self.same(good @ bits if good.shape[1] else np.zeros(self.size, np.int64))
        rails: Ints = self.memo[key]
        return rails

    def same(self, array: _Array) -> _Array:
        """The first array with these values that was asked about, so that equal arrays are one."""
        digest = hashlib.blake2b(np.ascontiguousarray(array).data, digest_size=16).digest()
        first: _Array = self.memo.setdefault(("same", array.dtype.char, array.size, digest), array)
        return first

    def network(self, least: float) -> Floats:
        """The sum of the rates of each machine's RDMA ports that carry `least` Gb/s."""
        key = ("network", least)
        if key not in self.memo:
            rates, up = self.rates[: ROCE + 1], self.up[: ROCE + 1]
            self.memo[key] = np.where(up & (rates >= least), rates, 0).sum(axis=(0, 2))
        network: Floats = self.memo[key]
        return network

    def rows_of(self, level: int, domain: int | None) -> Ints:
        """The machines of a domain of a level, all machines for None."""
        key = ("rows", level, domain)
        if key not in self.memo:
            self.memo[key] = (
                np.arange(self.size) if domain is None else np.flatnonzero(self.domains[level].ids == domain)
            )
        rows: Ints = self.memo[key]
        return rows

    def hcas(self, machine: int, link: int, rails: tuple[int, ...]) -> tuple[str, ...]:
        """The ports of a machine on these rails, in their order, as NCCL names them."""
        key = ("hcas", machine, link, rails)
        if key not in self.memo:
            wanted = {self.rails[rail] for rail in rails}
            ports = keyed_ports(self.machines[machine].ports, link)
            self.memo[key] = tuple(nic.hca for key, nic in ports if key in wanted)
        hcas: tuple[str, ...] = self.memo[key]
        return hcas


def fleet_of(machines: tuple[Machine, ...]) -> Fleet:
    """The arrays of these machines; the last few fleets are kept, known by the identity of the tuple."""
    for known, fleet in _KEPT:
        if known is machines:
            return fleet
    fleet = _build(machines)
    _KEPT.insert(0, (machines, fleet))
    del _KEPT[_KEPT_MOST:]
    return fleet


_KEPT: list[tuple[tuple[Machine, ...], Fleet]] = []
_KEPT_MOST = 4


def keyed_ports(ports: Sequence[Nic], link: int) -> list[tuple[RailKey, Nic]]:
    """The ports of one link, each with its rail; a second port on a rail is a rail of its own."""
    mine = sorted((nic for nic in ports if nic.link == LINKS[link]), key=_port_order)
    seen: dict[int, int] = {}
    keyed = []
    for nic in mine:
        seen[nic.rail] = seen.get(nic.rail, -1) + 1
        keyed.append(((nic.rail, seen[nic.rail]), nic))
    return keyed


def _port_order(nic: Nic) -> tuple[int, int, str, int]:
    return nic.rail, len(nic.device), nic.device, nic.port


def _rank_order(machine: Machine) -> tuple[Any, ...]:
    labels = (machine.fabric, machine.spine, machine.leaf)
    return (*((value is None, value or "") for value in labels), machine.name)


def _build(given: tuple[Machine, ...]) -> Fleet:
    machines = tuple(sorted(given, key=_rank_order))
    rates, up, rails = _ports(machines)
    models = tuple(sorted({machine.gpu_model for machine in machines}))
    model_index = {name: i for i, name in enumerate(models)}
    full = np.array([(1 << m.gpus) - 1 for m in machines], np.int64)
    broken = np.array([m.broken for m in machines], np.int64)
    doubtful = np.array([m.doubtful for m in machines], np.int64)
    sound = full & ~broken
    home = _divide(machines, _home)
    return Fleet(
        machines=machines,
        index={machine.name: i for i, machine in enumerate(machines)},
        full=full,
        sound=sound,
        clean=sound if not (sound & doubtful).any() else sound & ~doubtful,
        cpu=np.array([m.cpu_cores for m in machines], np.float64),
        memory=np.array([m.memory_bytes for m in machines], np.float64),
        refused=np.array([m.refusal is not None for m in machines], np.bool_),
        model=np.array([model_index[m.gpu_model] for m in machines], np.int64),
        models=models,
        home=home.ids,
        homes=len(home.keys),
        spine=_divide(machines, lambda m: (m.fabric or "", m.spine) if m.spine else None).ids,
        domains=tuple(_divide(machines, level.key) for level in LEVELS),
        rates=rates,
        up=up,
        rails=rails,
    )


def _home(machine: Machine) -> tuple[str, ...]:
    """Where a machine's neighbours are: its leaf group, else its rack."""
    if machine.leaf:
        return ("leaf", machine.fabric or "", machine.leaf)
    return ("rack", machine.rack) if machine.rack else ("",)


def _divide(machines: Sequence[Machine], key: Callable[[Machine], tuple[str, ...] | None]) -> Domains:
    keys = [key(machine) for machine in machines]
    known = tuple(sorted({found for found in keys if found is not None}))
    number = {found: i for i, found in enumerate(known)}
    return Domains(np.array([-1 if found is None else number[found] for found in keys], np.int64), known)


def _ports(machines: Sequence[Machine]) -> tuple[Floats, Bools, tuple[RailKey, ...]]:
    found = [
        (link, row, key, nic)
        for row, machine in enumerate(machines)
        for link in sorted({LINKS.index(nic.link) for nic in machine.ports})
        for key, nic in keyed_ports(machine.ports, link)
    ]
    rails = tuple(sorted({key for _, _, key, _ in found}))[:RAILS_MAX]
    column = {key: i for i, key in enumerate(rails)}
    rates = np.zeros((len(LINKS), len(machines), len(rails)), np.float64)
    up = np.zeros(rates.shape, np.bool_)
    for link, row, key, nic in found:
        if key in column:
            rates[link, row, column[key]] = nic.gbps
            up[link, row, column[key]] = nic.up
    return rates, up, rails
