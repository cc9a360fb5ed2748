"""Kinds of workers: what one worker needs of its machine, and which machines of a fleet could ever serve it.

Workers that no machine of the fleet tells apart are of one kind, so that what is worked out for one serves all.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

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


@dataclass(eq=False)
class Kind:
    """The machines for one kind of worker.

    `usable` could serve it now if they were idle, `ever` if they were also in health. `codes` says of every machine
    what keeps it from serving whatever runs there. `allowed` are the GPUs it may have; `rails` those with good ports,
    by link, and `nominal` the same if no port were down.
    """

    gpus: int
    cpu: float
    memory: float
    usable: Bools
    ever: Bools
    codes: npt.NDArray[np.int8]
    allowed: Ints
    rails: tuple[Ints, ...]
    nominal: tuple[Ints, ...]
    fleet: Fleet
    network: Floats
    """The sum of the rates of each machine's RDMA ports that this worker may use."""
    any_port: bool
    """Whether Ethernet rungs need no known port."""
    memo: dict[tuple[object, ...], object] = field(default_factory=dict)

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


def matches_model(wanted: str, model: str) -> bool:
    """Whether a GPU model answers to a name: equal, or its words stand in the model's name in a row."""
    if wanted.strip().lower() == model.strip().lower():
        return True
    words, all_words = model_words(wanted), model_words(model)
    return bool(words) and any(all_words[i : i + len(words)] == words for i in range(len(all_words)))


def _kind(worker: Worker, fleet: Fleet) -> Kind:
    """Workers are told apart only by arrays that differ on this fleet."""
    rails = tuple(fleet.rails_of(link, worker.min_gbps) for link in LINK_NUMBERS)
    nominal = tuple(fleet.rails_of(link, worker.min_gbps, nominal=True) for link in LINK_NUMBERS)
    allowed = fleet.clean if worker.healthy_only else fleet.sound
    arrays = (
        allowed,
        _linked(worker, rails, fleet),
        _linked(worker, nominal, fleet),
        _large(worker, fleet),
        _right_model(worker, fleet),
        _selected(worker, fleet),
    )
    alike = (worker.gpus, worker.cpu, worker.memory, not worker.min_gbps, *map(id, (*arrays, *rails, *nominal)))
    if alike not in fleet.memo:
        codes = fleet.same(_codes(worker.gpus, arrays, fleet))
        fleet.memo[alike] = Kind(
            gpus=worker.gpus,
            cpu=worker.cpu,
            memory=worker.memory,
            usable=fleet.same(codes == FITS),
            ever=fleet.same((codes == FITS) | ((codes < SMALL) & arrays[2])),
            codes=codes,
            allowed=allowed,
            rails=rails,
            nominal=nominal,
            fleet=fleet,
            network=fleet.network(worker.min_gbps),
            any_port=not worker.min_gbps,
        )
    kind: Kind = fleet.memo[alike]
    return kind


def _codes(gpus: int, arrays: tuple[Ints, Bools, Bools, Bools, Bools, Bools], fleet: Fleet) -> npt.NDArray[np.int8]:
    """For every machine the first thing that keeps it from serving the worker even when idle."""
    allowed, linked, _, large, right_model, selected = arrays
    codes = np.zeros(fleet.size, np.int8)
    for code, bad in (
        (DOUBTFUL, np.bitwise_count(allowed) < gpus),
        (BROKEN, np.bitwise_count(fleet.sound) < gpus),
        (PORTS, ~linked),
        (REFUSED, fleet.refused),
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
