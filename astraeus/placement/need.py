"""What a claim needs: the shapes its gang may take and the levels it may stand on."""

from collections.abc import Hashable
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

from astraeus.model.spec import AnyMachine, NamedMachines, Resources
from astraeus.placement.fleet import Fleet
from astraeus.placement.kinds import Kind, Worker, kind_of
from astraeus.placement.ladder import LEVELS, MACHINE_LEVEL, levels_for

NEEDS_KEPT = 20_000


@dataclass(frozen=True, slots=True)
class Shape:
    """A gang of `size` workers, each on a machine of its own."""

    size: int
    worker: Worker
    kind: Kind

    def wanted(self, level: int) -> int:
        """How many machines of one domain it takes on a level."""
        return 1 if level == MACHINE_LEVEL else self.size


@dataclass(frozen=True, slots=True)
class Need:
    """The shapes a run may take, fewest machines first, and the levels it may stand on, tightest first.

    `least` is the fewest GPUs per machine of a free shape, None where the shape is fixed. `steps` are the levels
    with the shapes that can stand on each, in the order in which they are tried. `ideal` is the tightest of them that
    could ever be had here, None where none could. Where a gang does not fit, no gang of the same `ladder` fits that
    needs at least as many machines (`least_size`).
    """

    resources: Resources
    shapes: tuple[Shape, ...]
    levels: tuple[int, ...]
    least: int | None
    steps: tuple[tuple[int, Shape], ...]
    widest: Shape
    """The shape with most machines that the fleet could ever hold; what a waiting claim is told about."""
    ideal: tuple[int, Shape] | None
    ladder: Hashable
    least_size: int
    memo: dict[str, Any] = field(default_factory=dict, compare=False)

    def tight(self) -> "Need":
        """The same need on levels of its ideal rung and tighter only."""
        if self.ideal is None:
            return self
        if "tight" not in self.memo:
            rung = LEVELS[self.ideal[0]].rung
            levels = tuple(level for level in self.levels if LEVELS[level].rung <= rung)
            ladder, least_size = _ladder(levels, self.shapes)
            self.memo["tight"] = replace(
                self, levels=levels, steps=steps_on(levels, self.shapes), ladder=ladder, least_size=least_size, memo={}
            )
        tight: Need = self.memo["tight"]
        return tight


def need_of(resources: Resources, fleet: Fleet) -> Need:
    """The need of these resources on this fleet; kept with the fleet, known by the identity of the resources."""
    kept = fleet.needs.get(id(resources))
    if kept is not None and kept[0] is resources:
        need: Need = kept[1]
        return need
    if len(fleet.needs) > NEEDS_KEPT:
        fleet.needs.clear()
    need = _need(resources, fleet)
    fleet.needs[id(resources)] = resources, need
    return need


def _need(resources: Resources, fleet: Fleet) -> Need:
    gpus = resources.gpu_requests
    free = resources.machines is None and gpus.count > 0
    sizes = _sizes(gpus.count, gpus.min_per_machine or 1, fleet.most_gpus) if free else (resources.machines or 1,)
    workers = [(size, _worker(resources, gpus.count // size)) for size in sizes]
    shapes = tuple(Shape(size, worker, kind_of(worker, fleet)) for size, worker in workers)
    levels = levels_for(resources.network.interconnect, resources.topology.keep_within)
    steps = steps_on(levels, shapes)
    possible = [step for step in steps if step[1].kind.most_ever(step[0]) >= step[1].wanted(step[0])]
    widest = max([shape for _, shape in possible or steps] or list(shapes), key=lambda shape: shape.size)
    ladder, least_size = _ladder(levels, shapes)
    return Need(
        resources=resources,
        shapes=shapes,
        levels=levels,
        least=(gpus.min_per_machine or 1) if free else None,
        steps=steps,
        widest=widest,
        ideal=possible[0] if possible else None,
        ladder=ladder,
        least_size=least_size,
    )


def _ladder(levels: tuple[int, ...], shapes: tuple[Shape, ...]) -> tuple[Hashable, int]:
    """Several shapes are one case; with one shape, room that is too small for a gang is too small for larger ones."""
    if len(shapes) > 1:
        return (levels, *((shape.size, shape.kind) for shape in shapes)), 1
    return (levels, shapes[0].kind, shapes[0].size == 1), shapes[0].size


def steps_on(levels: tuple[int, ...], shapes: tuple[Shape, ...]) -> tuple[tuple[int, Shape], ...]:
    """Which shapes to try on which levels: one worker stands on one machine, and only one does."""
    return tuple(
        (level, shape) for level in levels for shape in shapes if (shape.size == 1) == (level == MACHINE_LEVEL)
    )


@lru_cache(maxsize=4096)
def _sizes(count: int, least: int, most: int) -> tuple[int, ...]:
    """Numbers of machines that divide the GPUs evenly; where the fleet's machines are too small, the largest number."""
    even = [size for size in _divisors(count) if count // size >= least]
    return tuple(size for size in even if count // size <= most) or (even[-1],)


def _divisors(count: int) -> list[int]:
    small = [size for size in range(1, int(count**0.5) + 1) if count % size == 0]
    return sorted({*small, *(count // size for size in small)})


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
