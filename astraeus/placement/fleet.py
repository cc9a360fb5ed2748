"""The machines of a cluster as arrays, made once for as long as the same machines stand in the same places.

Machines are kept in rank order (fabric, spine group, leaf group, name), so that an array index is also the place
of a machine in the order of ranks, and the order of the snapshot does not matter.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from astraeus.model.machine import Nic
from astraeus.placement.ladder import LINKS, ROCE
from astraeus.placement.types import Machine

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]

_Array = TypeVar("_Array", bound=npt.NDArray[Any])

RailKey = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Domains:
    """A division of the machines: `ids[m]` is the domain of machine m (-1: none), `keys` are sorted."""

    ids: Ints
    keys: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True)
class Ports:
    """The ports of all machines. `pattern[m]` is the row of machine m in the tables, which few machines differ in.

    `rates` are Gb/s by link, pattern and rail, 0 where there is no port; `up` the same for ports that are up.
    """

    pattern: Ints
    rates: Floats
    up: Bools
    rails: tuple[RailKey, ...]
    lists: tuple[tuple[Nic, ...], ...]


@dataclass(eq=False)
class Fleet:
    """All machines of a cluster, `given` in the order of the snapshot.

    `full` are all GPUs of a machine, `sound` those that may take work, `clean` those of them without doubts.
    """

    given: tuple[Machine, ...]
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
    ports: Ports
    memo: dict[Any, Any] = field(default_factory=dict)
    needs: dict[int, tuple[Any, Any]] = field(default_factory=dict)

    @property
    def size(self) -> int:
        """How many machines there are."""
        return len(self.machines)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The machines' names."""
        return tuple(self.index)

    @property
    def rails(self) -> tuple[RailKey, ...]:
        """The rails that any machine has."""
        return self.ports.rails

    @cached_property
    def most_gpus(self) -> int:
        """How many GPUs the largest machine has."""
        return int(np.bitwise_count(self.full).max(initial=0))

    def places(self, level: int) -> Ints:
        """The domain of every machine on a level, one higher than its number: what can be counted."""
        key = ("places", level)
        if key not in self.memo:
            self.memo[key] = self.domains[level].ids + 1
        places: Ints = self.memo[key]
        return places

    def rates(self, link: int, rows: Ints) -> Floats:
        """Gb/s of the ports of some machines by rail, 0 where there is none."""
        rates: Floats = self.ports.rates[link][self.ports.pattern[rows]]
        return rates

    def up(self, link: int, rows: Ints) -> Bools:
        """Which of these ports are up."""
        up: Bools = self.ports.up[link][self.ports.pattern[rows]]
        return up

    def rails_of(self, link: int, least: float, nominal: bool = False) -> Ints:
        """Bitmask of each machine's rails that carry `least` Gb/s; `nominal` also counts ports that are down."""
        key = ("rails", link, least, nominal)
        if key not in self.memo:
            rates = self.ports.rates[link]
            good = (rates > 0) & (rates >= least)
            if not nominal:
                good &= self.ports.up[link]
            bits = np.left_shift(np.int64(1), np.arange(good.shape[1], dtype=np.int64))
            table = good @ bits if good.shape[1] else np.zeros(good.shape[0], np.int64)
            self.memo[key] = self.same(table[self.ports.pattern])
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
            rates, up = self.ports.rates[: ROCE + 1], self.ports.up[: ROCE + 1]
            table = np.where(up & (rates >= least), rates, 0).sum(axis=(0, 2))
            self.memo[key] = self.same(table[self.ports.pattern])
        network: Floats = self.memo[key]
        return network

    def rows_of(self, level: int, domain: int | None) -> Ints:
        """The machines of a domain of a level, all machines for None."""
        if domain is None:
            every: Ints = np.arange(self.size)
            return every
        key = ("rows", level)
        if key not in self.memo:
            ids = self.domains[level].ids
            order = np.argsort(ids, kind="stable")
            starts = np.searchsorted(ids[order], np.arange(len(self.domains[level].keys) + 1))
            self.memo[key] = order, starts
        order, starts = self.memo[key]
        rows: Ints = order[starts[domain] : starts[domain + 1]]
        return rows

    def hcas(self, pattern: int, link: int, rails: tuple[int, ...]) -> tuple[str, ...]:
        """The ports of a machine with this pattern of ports that are on these rails, in order, as NCCL names them."""
        key = ("hcas", pattern, link, rails)
        if key not in self.memo:
            wanted = {self.rails[rail] for rail in rails}
            ports = keyed_ports(self.ports.lists[pattern], link)
            self.memo[key] = tuple(nic.hca for key, nic in ports if key in wanted)
        hcas: tuple[str, ...] = self.memo[key]
        return hcas


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
