"""Kinds of workers: what one worker needs of its machine, and which machines of a fleet could ever serve it.

Workers that no machine of the fleet tells apart are of one kind, so that what is worked out for one serves all.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from astraeus.model.spec import Interconnect
from astraeus.placement.bandwidth import has_nvlink, model_words
from astraeus.placement.fleet import Bools, Fleet, Floats, Ints
from astraeus.placement.ladder import ETHERNET, INFINIBAND, LEVELS, LINKS, NVLINK_LEVEL, ROCE

LINK_NUMBERS = range(len(LINKS))
SLACK = 1e-6
"""Cores are fractions; sums of them are compared with this much tolerance."""

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


@dataclass(frozen=True, slots=True)
class Worker:
    """What one worker needs of its machine."""

    gpus: int
    cpu: float
    memory: float
    models: tuple[str, ...]
    healthy_only: bool
    interconnect: Interconnect
    min_gbps: float
    named: tuple[str, ...] | None
    labels: tuple[tuple[str, str], ...]


class Codes:
    """What keeps each machine from serving whatever runs there, and which machines nothing keeps.

    `memo` holds what was worked out of the machines of a domain, by level and domain.
    """

    def __init__(self, array: npt.NDArray[np.int8]) -> None:
        self.array = array
        self.usable: Bools = array == FITS
        self.memo: dict[tuple[int, int | None], dict[Any, Any]] = {}

    def at(self, level: int, domain: int | None) -> dict[Any, Any]:
        """What is known of a domain, or of all machines."""
        return self.memo.setdefault((level, domain), {})

    def but(self, rows: Ints, values: npt.NDArray[np.int8], fleet: Fleet) -> "Codes":
        """The same with other values for some machines."""
        array = self.array.copy()
        array[rows] = values
        changed = Codes(array)
        touched = [{None, *domains.ids[rows].tolist()} for domains in fleet.domains]
        changed.memo = {key: known for key, known in self.memo.items() if key[1] not in touched[key[0]]}
        return changed


@dataclass(eq=False)
class Kind:
    """The machines for one kind of worker.

    `codes` is what keeps machines from serving it now, `lasting` what does so in any state of their health; `ever` are
    those that could if they were idle and in health. `allowed` are the GPUs it may have; `rails` those with good ports,
    by link, and `nominal` the same if no port were down.
    """

    gpus: int
    cpu: float
    memory: float
    lasting: npt.NDArray[np.int8]
    ever: Bools
    allowed: Ints
    rails: tuple[Ints, ...]
    nominal: tuple[Ints, ...]
    fleet: Fleet
    network: Floats
    """The sum of the rates of each machine's RDMA ports that this worker may use."""
    any_port: bool
    """Whether Ethernet rungs need no known port."""
    memo: dict[tuple[object, ...], object] = field(default_factory=dict)
    codes: Codes = field(init=False)

    def __post_init__(self) -> None:
        self.room = (id(self.allowed), self.gpus, self.cpu, self.memory)
        """The room that it needs: kinds that agree in it fit the same machines, as far as those may serve them."""
        self._places: dict[int, Ints] = {}

    @property
    def usable(self) -> Bools:
        """The machines that could serve it now if they were idle."""
        return self.codes.usable

    @cached_property
    def easiest(self) -> "Kind":
        """The kind of workers with as many GPUs that need nothing else: where these do not fit, none do."""
        return kind_of(Worker(self.gpus, 0.0, 0.0, (), False, "any", 0.0, None, ()), self.fleet)

    def codes_of(self, rows: Ints) -> npt.NDArray[np.int8]:
        """The first thing that keeps each of these machines from serving it even when idle."""
        fleet, lasting = self.fleet, self.lasting[rows]
        doubtful = np.bitwise_count(self.allowed[rows]) < self.gpus
        broken = np.bitwise_count(fleet.sound[rows]) < self.gpus
        codes = np.where(lasting != FITS, lasting, np.where(broken, BROKEN, np.where(doubtful, DOUBTFUL, FITS)))
        return np.where(fleet.refused[rows] & (lasting < SMALL), REFUSED, codes).astype(np.int8)

    def ids(self, level: int, nominal: bool = False) -> Ints:
        """The domain of every machine on a level, -1 where the machine has no place on it for this worker."""
        key = ("ids", level, nominal)
        if key not in self.memo:
            self.memo[key] = self._ids(level, self.nominal if nominal else self.rails)
        ids = self.memo[key]
        assert isinstance(ids, np.ndarray)
        return ids

    def _ids(self, level: int, rails: tuple[Ints, ...]) -> Ints:
        ids, link = self.fleet.domains[level].ids, LEVELS[level].link
        if link is None or (link == ETHERNET and self.any_port):
            return ids
        links = (ROCE, ETHERNET) if link == ETHERNET else (link,)
        key = ("ids", level, *(id(rails[link]) for link in links))
        if key not in self.fleet.memo:
            good = np.bitwise_or.reduce([rails[link] for link in links])
            self.fleet.memo[key] = self.fleet.same(np.where(good != 0, ids, -1))
        found: Ints = self.fleet.memo[key]
        return found

    def places(self, level: int) -> Ints:
        """The same, one higher: numbers that can be counted."""
        found = self._places.get(level)
        if found is None:
            ids = self.ids(level)
            found = self._places[level] = self.fleet.memo.setdefault(("places", id(ids)), ids + 1)
        return found

    def capacity(self, level: int) -> Ints:
        """How many machines each domain of a level could ever give: all idle, all in health."""
        ids = self.ids(level, nominal=True)
        key = ("capacity", id(ids), id(self.ever))
        if key not in self.fleet.memo:
            size = len(self.fleet.domains[level].keys)
            self.fleet.memo[key] = np.bincount(ids[self.ever & (ids >= 0)], minlength=size)
        room: Ints = self.fleet.memo[key]
        return room

    def most_ever(self, level: int) -> int:
        """The best domain's capacity."""
        key = ("most", level)
        if key not in self.memo:
            room = self.capacity(level)
            self.memo[key] = int(room.max()) if room.size else 0
        most = self.memo[key]
        assert isinstance(most, int)
        return most


def kind_of(worker: Worker, fleet: Fleet) -> Kind:
    """The kind a worker is of; kept with the fleet."""
    found = fleet.memo.get(worker)
    if found is None:
        found = fleet.memo[worker] = _kind(worker, fleet)
    kind: Kind = found
    return kind


@lru_cache(maxsize=4096)
def matches_model(wanted: str, model: str) -> bool:
    """Whether a GPU model answers to a name: equal, or its words stand in the model's name in a row."""
    if wanted.strip().lower() == model.strip().lower():
        return True
    words, all_words = model_words(wanted), model_words(model)
    return bool(words) and any(all_words[i : i + len(words)] == words for i in range(len(all_words)))


def kinds_of(fleet: Fleet) -> list[Kind]:
    """All kinds of workers that were asked about on a fleet."""
    kinds: list[Kind] = fleet.memo.setdefault("kinds", [])
    return kinds


def _kind(worker: Worker, fleet: Fleet) -> Kind:
    """Workers are told apart only by arrays that differ on this fleet."""
    rails = tuple(fleet.rails_of(link, worker.min_gbps) for link in LINK_NUMBERS)
    nominal = tuple(fleet.rails_of(link, worker.min_gbps, nominal=True) for link in LINK_NUMBERS)
    allowed = fleet.clean if worker.healthy_only else fleet.sound
    arrays = (
        _linked(worker, rails, fleet),
        _linked(worker, nominal, fleet),
        _large(worker, fleet),
        _right_model(worker, fleet),
        _selected(worker, fleet),
    )
    same = (*map(id, (allowed, *arrays, *rails, *nominal)),)
    alike = (worker.gpus, worker.cpu, worker.memory, not worker.min_gbps, *same)
    if alike not in fleet.memo:
        lasting = fleet.same(_lasting(worker.gpus, arrays, fleet))
        kind = fleet.memo[alike] = Kind(
            gpus=worker.gpus,
            cpu=worker.cpu,
            memory=worker.memory,
            lasting=lasting,
            ever=fleet.same((lasting < SMALL) & arrays[1]),
            allowed=allowed,
            rails=rails,
            nominal=nominal,
            fleet=fleet,
            network=fleet.network(worker.min_gbps),
            any_port=not worker.min_gbps,
        )
        array = kind.codes_of(np.arange(fleet.size))
        known = dict.fromkeys(other.codes for other in kinds_of(fleet))
        kind.codes = next((codes for codes in known if np.array_equal(codes.array, array)), None) or Codes(array)
        kinds_of(fleet).append(kind)
    found: Kind = fleet.memo[alike]
    return found


def _lasting(gpus: int, arrays: tuple[Bools, ...], fleet: Fleet) -> npt.NDArray[np.int8]:
    """For every machine the first thing that keeps it from serving the worker in any state of its health."""
    linked, _, large, right_model, selected = arrays
    codes = np.zeros(fleet.size, np.int8)
    for code, bad in (
        (PORTS, ~linked),
        (ROOM_SMALL, ~large),
        (SMALL, np.bitwise_count(fleet.full) < gpus),
        (MODEL, ~right_model),
        (SELECTION, ~selected),
    ):
        codes[bad] = code
    return codes


def _once(fleet: Fleet, key: tuple[object, ...], make: Callable[[], Bools]) -> Bools:
    """What is worked out once for a fleet; equal arrays are one."""
    if key not in fleet.memo:
        fleet.memo[key] = fleet.same(make())
    array: Bools = fleet.memo[key]
    return array


def _large(worker: Worker, fleet: Fleet) -> Bools:
    """The machines with enough cores and memory in all."""
    key = ("large", worker.cpu, worker.memory)
    return _once(fleet, key, lambda: (fleet.cpu + SLACK >= worker.cpu) & (fleet.memory >= worker.memory))


def _selected(worker: Worker, fleet: Fleet) -> Bools:
    return _once(fleet, ("selected", worker.named, worker.labels), lambda: _selected_anew(worker, fleet))


def _selected_anew(worker: Worker, fleet: Fleet) -> Bools:
    if worker.named is not None:
        chosen = np.zeros(fleet.size, np.bool_)
        chosen[[fleet.index[name] for name in worker.named if name in fleet.index]] = True
        return chosen
    chosen = np.ones(fleet.size, np.bool_)
    for key, value in worker.labels:
        chosen &= np.array([machine.labels.get(key) == value for machine in fleet.machines], np.bool_)
    return chosen


def _right_model(worker: Worker, fleet: Fleet) -> Bools:
    models = worker.models if worker.gpus else ()
    good = [not models or any(matches_model(wanted, model) for wanted in models) for model in fleet.models]
    return _once(fleet, ("models", *good), lambda: np.array(good, np.bool_)[fleet.model])


def _linked(worker: Worker, rails: Sequence[Ints], fleet: Fleet) -> Bools:
    """The machines whose ports will do for the interconnect asked for."""
    key = ("linked", worker.interconnect, not worker.min_gbps, *map(id, rails))
    return _once(fleet, key, lambda: _linked_anew(worker, rails, fleet))


def _linked_anew(worker: Worker, rails: Sequence[Ints], fleet: Fleet) -> Bools:
    infiniband: Bools = rails[INFINIBAND] != 0
    roce: Bools = rails[ROCE] != 0
    ethernet: Bools = rails[ETHERNET] != 0
    if worker.interconnect == "infiniband":
        return infiniband
    if worker.interconnect == "rdma":
        return infiniband | roce
    good: Bools = roce | ethernet if worker.interconnect == "ethernet" else infiniband | roce | ethernet
    if not worker.min_gbps:
        good = np.ones(fleet.size, np.bool_)
    if worker.interconnect == "nvlink":
        joined = np.array([has_nvlink(model) for model in fleet.models], np.bool_)[fleet.model]
        good = good & (joined | (fleet.domains[NVLINK_LEVEL].ids >= 0))
    return good


LINKS_OF: dict[Interconnect, tuple[int, ...]] = {
    "any": (INFINIBAND, ROCE, ETHERNET),
    "nvlink": (INFINIBAND, ROCE, ETHERNET),
    "rdma": (INFINIBAND, ROCE),
    "infiniband": (INFINIBAND,),
    "ethernet": (ROCE, ETHERNET),
}
"""The links whose ports count for an interconnect."""
