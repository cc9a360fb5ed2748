"""An exact solver of small fleets, the reference for how well the planner does; slow, and for whole machines only."""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ortools.sat.python import cp_model
from placement.drawing import ask

from astraeus.model.machine import FABRIC, LEAF, Nic
from astraeus.placement.planner import plan
from astraeus.placement.types import Holding, Machine, Snapshot

SECONDS = 20.0
WHOLE = 0xFF
PORTS = (Nic(device="mlx5_0", rail=0, gbps=400),)


def fewest_leaf_groups(free: Sequence[int], sizes: Sequence[int]) -> int | None:
    """The least sum, over gangs of these sizes, of leaf groups used; None where they do not fit together.

    `free` are the free machines of each leaf group.
    """
    model: Any = cp_model.CpModel()
    used = []
    columns: list[list[Any]] = [[] for _ in free]
    for g, size in enumerate(sizes):
        row = []
        for leaf, most in enumerate(free):
            there = model.NewBoolVar(f"y{g}-{leaf}")
            count = model.NewIntVar(0, min(size, most), f"x{g}-{leaf}")
            model.Add(count <= min(size, most) * there)
            row.append(count)
            columns[leaf].append(count)
            used.append(there)
        model.Add(sum(row) == size)
    for column, most in zip(columns, free, strict=True):
        model.Add(sum(column) <= most)
    model.Minimize(sum(used))
    solver: Any = cp_model.CpSolver()
    solver.parameters.max_time_in_seconds = SECONDS
    solver.parameters.num_workers = 1
    status = solver.Solve(model)
    if status == cp_model.INFEASIBLE:
        return None
    assert status == cp_model.OPTIMAL, f"no proof within {SECONDS} s"
    return round(solver.ObjectiveValue())


@dataclass(frozen=True)
class Case:
    """A small fleet of whole machines with its load, and gangs that fit into what is free, in queue order."""

    snapshot: Snapshot
    free: tuple[int, ...]
    sizes: tuple[int, ...]

    def planned(self) -> int:
        """The leaf groups that the planner's gangs use; all of them must be placed."""
        decided = plan(self.snapshot, 0.0)
        assert len(decided.grants) == len(self.sizes)
        home = {machine.name: machine.leaf for machine in self.snapshot.machines}
        return sum(len({home[member.machine] for member in grant.members}) for grant in decided.grants)


def case(dice: random.Random, leaves: int = 8, leaf: int = 8) -> Case:
    """Leaf groups that are filled to differing degrees, and gangs that take 85 to 95 % of what is left."""
    machines, held, free = [], [], []
    for group in range(leaves):
        busy = dice.randrange(leaf)
        free.append(leaf - busy)
        for i in range(leaf):
            name = f"m-{group}-{i}"
            machines.append(Machine(name, 8, "H100", 96, 2**40, {LEAF: f"leaf-{group}", FABRIC: "f"}, PORTS))
            if i < busy:
                held.append(Holding(1000 + len(held), "u", "r", "a/w", 1, name, WHOLE, 0, 0))
    room = int(sum(free) * dice.uniform(0.85, 0.95))
    sizes: list[int] = []
    while room:
        sizes.append(min(room, dice.choice((1, 1, 2, 2, 3, 4, 4, 6, 8, 12))))
        room -= sizes[-1]
    asks = tuple(ask(f"g{i}", i + 1, machines=size, gpus=8 * size, at=float(i)) for i, size in enumerate(sizes))
    return Case(Snapshot("small", tuple(machines), tuple(held), asks), tuple(free), tuple(sizes))


def gap(cases: Sequence[Case]) -> float:
    """How many per cent more leaf groups the planner's gangs use than the fewest that all of them could."""
    best = [fewest_leaf_groups(one.free, one.sizes) for one in cases]
    assert None not in best
    planned, fewest = sum(one.planned() for one in cases), sum(number or 0 for number in best)
    return 100 * (planned - fewest) / fewest
