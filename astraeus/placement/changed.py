"""A fleet as it might be: without some of its machines, or with more of them."""

from collections import Counter
from collections.abc import Collection
from dataclasses import replace

from astraeus.model.errors import NotFound
from astraeus.model.machine import FABRIC, LEAF, NVLINK, RACK, ROCE, SPINE
from astraeus.placement.types import Machine, Snapshot

PLACES = (LEAF, SPINE, FABRIC, RACK, NVLINK, ROCE)
OWN = (LEAF, RACK, NVLINK)
"""Labels of places that new machines have to themselves."""


def without(snapshot: Snapshot, names: Collection[str]) -> tuple[Snapshot, tuple[str, ...]]:
    """The snapshot without these machines, or all machines of a place of that name, and the runs that end with them.

    A gang that loses one machine loses all its room. Raises `NotFound` for a name that nothing has.
    """
    lost: set[str] = set()
    for name in names:
        found = {machine.name for machine in snapshot.machines if _is_in(machine, name)}
        if not found:
            raise NotFound(f"No machine and no place of {snapshot.cluster} is called {name}")
        lost |= found
    hit = {holding.claim for holding in snapshot.holdings if holding.machine in lost}
    ended = {holding.run_name for holding in snapshot.holdings if holding.claim in hit}
    left = replace(
        snapshot,
        machines=tuple(machine for machine in snapshot.machines if machine.name not in lost),
        holdings=tuple(holding for holding in snapshot.holdings if holding.claim not in hit),
        reserved=tuple(row for row in snapshot.reserved if row.machine not in lost),
    )
    return left, tuple(sorted(ended))


def _is_in(machine: Machine, name: str) -> bool:
    return machine.name == name or any(machine.labels.get(place) == name for place in PLACES)


def with_machines(snapshot: Snapshot, count: int) -> Snapshot:
    """The snapshot with so many more machines like those of its largest leaf group, idle, in leaf groups as large.

    They are on the same spine group and fabric. A fleet without leaf groups grows by machines like its first.
    """
    if not snapshot.machines:
        raise NotFound(f"{snapshot.cluster} has no machine that more could be like")
    sizes = Counter((machine.fabric, machine.leaf) for machine in snapshot.machines if machine.leaf)
    largest, size = max(sizes.items(), key=lambda item: (item[1], str(item[0]))) if sizes else ((None, None), 0)
    models = [machine for machine in snapshot.machines if not size or (machine.fabric, machine.leaf) == largest]
    taken = {machine.name for machine in snapshot.machines}
    names = [name for i in range(count + len(taken)) if (name := f"added-{i:05d}") not in taken]
    added = tuple(_another(models[0], name, i // size if size else 0) for i, name in enumerate(names[:count]))
    return replace(snapshot, machines=snapshot.machines + added)


def _another(model: Machine, name: str, group: int) -> Machine:
    own = {place: f"added-{group}" for place in OWN if place in model.labels}
    return replace(model, name=name, labels={**model.labels, **own}, broken=0, doubtful=0, refusal=None)
