"""What a claim needs, said once for all claims that need the same: shapes, and the machines that could serve each."""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from astraeus.model.network import Rung
from astraeus.model.spec import AnyMachine, Interconnect, NamedMachines, Resources
from astraeus.placement.bandwidth import has_nvlink, model_words
from astraeus.placement.fleet import Bools, Fleet, Ints
from astraeus.placement.ladder import ETHERNET, INFINIBAND, LEVELS, MACHINE_LEVEL, ROCE, levels_for

SLACK = 1e-6
"""Cores are fractions; sums of them are compared with this much tolerance."""

Selection = tuple[tuple[str, ...] | None, tuple[tuple[str, str], ...]]


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


@dataclass(frozen=True, slots=True)
class Shape:
    """A gang of `size` workers, each on a machine of its own."""

    size: int
    worker: Worker


@dataclass(frozen=True, slots=True)
class Need:
    """The shapes a run may take, fewest machines first, and the levels it may stand on, tightest first.

    `least` is the fewest GPUs per machine of a free shape, None where the shape is fixed.
    """

    resources: Resources
    shapes: tuple[Shape, ...]
    levels: tuple[int, ...]
    least: int | None

    def shapes_on(self, level: int) -> tuple[Shape, ...]:
        """The shapes that can stand on a level: one worker stands on one machine, and only one does."""
        alone = level == MACHINE_LEVEL
        return tuple(shape for shape in self.shapes if (shape.size == 1) == alone)


def need_of(resources: Resources, fleet: Fleet) -> Need:
    """The need of these resources on this fleet."""
    gpus = resources.gpu_requests
    levels = levels_for(resources.network.interconnect, resources.topology.keep_within)
    free = resources.machines is None and gpus.count > 0
    if not free:
        sizes: tuple[int, ...] = (resources.machines or 1,)
    else:
        sizes = _sizes(gpus.count, gpus.min_per_machine or 1, _most_gpus(fleet))
    shapes = tuple(Shape(size, _worker(resources, gpus.count // size)) for size in sizes)
    return Need(resources, shapes, levels, (gpus.min_per_machine or 1) if free else None)


def _most_gpus(fleet: Fleet) -> int:
    return int(np.bitwise_count(fleet.full).max()) if fleet.size else 0


@lru_cache(maxsize=4096)
def _sizes(count: int, least: int, most: int) -> tuple[int, ...]:
    fitting = tuple(k for k in range(1, count + 1) if count % k == 0 and least <= count // k <= most)
    return fitting or (max(1, count // max(least, 1)) if count % max(least, 1) == 0 else 1,)


def _worker(resources: Resources, gpus: int) -> Worker:
    selection = resources.machine_selection
    times = gpus if resources.gpu_requests.count else 1
    return Worker(
        gpus=gpus,
        cpu=resources.per_gpu.cpu_cores * times,
        memory=float(resources.per_gpu.memory_bytes * times),
        models=tuple(sorted({model.lower() for model in resources.gpu_requests.models})),
        healthy_only=resources.gpu_requests.healthy_only,
        interconnect=resources.network.interconnect,
        min_gbps=resources.network.min_gbps,
        named=tuple(sorted(set(selection.machines))) if isinstance(selection, NamedMachines) else None,
        labels=tuple(sorted(selection.match_labels.items())) if isinstance(selection, AnyMachine) else (),
    )


def matches_model(wanted: str, model: str) -> bool:
    """Whether a GPU model answers to a name: equal, or its words stand in the model's name in a row."""
    if wanted.strip().lower() == model.strip().lower():
        return True
    words, all_words = model_words(wanted), model_words(model)
    return bool(words) and any(all_words[i : i + len(words)] == words for i in range(len(all_words)))


@dataclass(frozen=True, slots=True)
class Candidates:
    """The machines that could serve a worker. `usable` could now if they were idle; `ever` could if also in health."""

    worker: Worker
    selected: Bools
    right_model: Bools
    large: Bools
    roomy: Bools
    linked: Bools
    ever: Bools
    usable: Bools
    allowed: Ints
    """The GPUs of each machine that the worker may have."""


def candidates(worker: Worker, fleet: Fleet) -> Candidates:
    """The machines for a worker; kept with the fleet."""
    found = fleet.memo.get(worker)
    if found is None:
        found = fleet.memo[worker] = _candidates(worker, fleet)
    kept: Candidates = found
    return kept


def _candidates(worker: Worker, fleet: Fleet) -> Candidates:
    selected = _selected(worker, fleet)
    right = _right_model(worker, fleet)
    large = np.bitwise_count(fleet.full) >= worker.gpus
    roomy = (fleet.cpu + SLACK >= worker.cpu) & (fleet.memory >= worker.memory)
    ever = selected & right & large & roomy & _linked(worker, fleet, nominal=True)
    linked = _linked(worker, fleet, nominal=False)
    allowed = fleet.clean if worker.healthy_only else fleet.sound
    usable = ever & linked & ~fleet.refused & (np.bitwise_count(allowed) >= worker.gpus)
    return Candidates(worker, selected, right, large, roomy, linked, ever, usable, allowed)


def _selected(worker: Worker, fleet: Fleet) -> Bools:
    if worker.named is not None:
        chosen = np.zeros(fleet.size, np.bool_)
        chosen[[fleet.index[name] for name in worker.named if name in fleet.index]] = True
        return chosen
    return np.array(
        [all(machine.labels.get(key) == value for key, value in worker.labels) for machine in fleet.machines], np.bool_
    )


def _right_model(worker: Worker, fleet: Fleet) -> Bools:
    if not worker.models or not worker.gpus:
        return np.ones(fleet.size, np.bool_)
    good = [any(matches_model(wanted, model) for wanted in worker.models) for model in fleet.models]
    return np.array(good, np.bool_)[fleet.model] if good else np.zeros(0, np.bool_)


def _linked(worker: Worker, fleet: Fleet, nominal: bool) -> Bools:
    ports: list[Bools] = [fleet.rails_of(link, worker.min_gbps, nominal) != 0 for link in (INFINIBAND, ROCE, ETHERNET)]
    infiniband, roce, ethernet = ports
    if worker.interconnect == "infiniband":
        return infiniband
    if worker.interconnect == "rdma":
        return np.logical_or(infiniband, roce)
    if worker.interconnect == "ethernet":
        good: Bools = roce | ethernet
    else:
        good = infiniband | roce | ethernet
    if not worker.min_gbps:
        good = np.ones(fleet.size, np.bool_)
    if worker.interconnect == "nvlink":
        good = good & _on_nvlink(fleet)
    return good


def _on_nvlink(fleet: Fleet) -> Bools:
    return np.array([bool(m.nvlink_domain) or has_nvlink(m.gpu_model) for m in fleet.machines], np.bool_)


def ids_on(level: int, worker: Worker, fleet: Fleet, nominal: bool = False) -> Ints:
    """The domain of every machine on a level, -1 where the machine has no place on it for this worker."""
    key = ("ids", level, worker.min_gbps, nominal)
    found = fleet.memo.get(key)
    if found is None:
        ids = fleet.domains[level].ids
        link = LEVELS[level].link
        if link == ETHERNET:
            if worker.min_gbps:
                ports = fleet.rails_of(ROCE, worker.min_gbps, nominal) | fleet.rails_of(
                    ETHERNET, worker.min_gbps, nominal
                )
                ids = np.where(ports != 0, ids, -1)
        elif link is not None:
            ids = np.where(fleet.rails_of(link, worker.min_gbps, nominal) != 0, ids, -1)
        found = fleet.memo[key] = ids
    kept: Ints = found
    return kept


def capacity(level: int, worker: Worker, fleet: Fleet) -> Ints:
    """How many machines each domain of a level could ever give this worker: all idle, all in health."""
    key = ("capacity", level, worker)
    found = fleet.memo.get(key)
    if found is None:
        ids = ids_on(level, worker, fleet, nominal=True)
        chosen = ids[candidates(worker, fleet).ever & (ids >= 0)]
        found = fleet.memo[key] = np.bincount(chosen, minlength=len(fleet.domains[level].keys))
    kept: Ints = found
    return kept


def ideal_level(need: Need, fleet: Fleet) -> tuple[int, Shape] | None:
    """The tightest level that any shape could ever have here, None when none could."""
    for level in need.levels:
        for shape in need.shapes_on(level):
            room = capacity(level, shape.worker, fleet)
            if room.size and (level == MACHINE_LEVEL or room.max() >= shape.size) and room.max() > 0:
                return level, shape
    return None


def ideal_rung(need: Need, fleet: Fleet) -> Rung | None:
    """The rung of the ideal level."""
    found = ideal_level(need, fleet)
    return None if found is None else LEVELS[found[0]].rung
