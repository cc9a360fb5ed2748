"""How well gangs are placed: leaf groups used over replayed traces, and against an exact solver on small fleets.

The trace is the file that `ASTRAEUS_TRACE` names; without one only generated jobs are replayed.
"""

import os
import random
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from astraeus.agent.fleet import parse_fleet
from astraeus.cli.simulate import machines_of
from astraeus.placement.types import Machine
from astraeus.simulator.engine import Options, Simulation
from astraeus.simulator.trace import Job, generate, read_trace, scaled

sys.path.insert(0, str(Path(__file__).parents[1]))

FLEET = """
cluster: bench
machines:
  m-{{0..{last}}}:
    gpus: 8
    gpu_model: NVIDIA H100 80GB HBM3
    cpu_cores: 112
    memory: 2TiB
    rails: {{count: 8, gbps: 400}}
    labels: {{leaf: "leaf-{{n/{leaf}}}", spine: "s{{n/{spine}}}", fabric: f0, rack: "r{{n/8}}"}}
"""
GENERATED, GENERATED_LOAD, SEED = 5000, 0.98, 1
TRACED, TRACED_LOAD = slice(60_000, 70_000), 0.95
"""Jobs, and what they ask for on average; while the fleet fills, it is less."""
PATIENCE = 900
"""Seconds; what the recipe for large training runs asks for."""
SMALL = ((4, 4), (8, 8), (6, 16))
"""Leaf groups and machines in each, of the small fleets."""
CASES = 60


def measure() -> Iterator[dict[str, Any]]:
    """The rows of build/bench.json."""
    if path := os.environ.get("ASTRAEUS_TRACE"):
        machines = fleet(144, leaf=16, spine=48)
        jobs = read_trace(Path(path))[TRACED]
        yield from _ratios("leaf_ratio", machines, jobs, TRACED_LOAD, f"{Path(path).stem}, {len(jobs)} jobs")
    machines = fleet(512, leaf=32, spine=128)
    jobs = generate(GENERATED, SEED, 512)
    yield from _ratios("leaf_ratio_generated", machines, jobs, GENERATED_LOAD, f"{GENERATED} generated jobs")
    yield _gaps()


def fleet(machines: int, leaf: int, spine: int) -> tuple[Machine, ...]:
    """Machines of 8 GPUs, so many in each leaf group and under each spine group."""
    return machines_of(parse_fleet(FLEET.format(last=machines - 1, leaf=leaf, spine=spine)))


def _ratios(
    name: str, machines: Sequence[Machine], jobs: Sequence[Job], load: float, what: str
) -> Iterator[dict[str, Any]]:
    jobs = scaled(jobs, sum(machine.gpus for machine in machines), load)
    for kind, patience in (("", 0), ("_patient", PATIENCE)):
        outcome = Simulation(machines, jobs, Options(patience_seconds=patience)).run()
        waits = "; ".join(f"{gpus} GPUs {median}, {most}" for gpus, _, median, most, _ in outcome.waiting_rows())
        note = (
            f"{what} on {len(machines)} machines, {outcome.utilisation():.1%} of GPUs held, "
            f"{outcome.demand_met():.1%} of what could be, patience {patience} s; waited (median, 90 %): {waits}"
        )
        for gangs, least in (("", 1), ("_gangs", 2)):
            value = round(outcome.leaf_ratio(least), 3)
            yield {"name": f"{name}{kind}{gangs}_mean", "value": value, "unit": "ratio", "note": note}


def _gaps() -> dict[str, Any]:
    from placement.exact import case, gap

    parts = [gap([case(dice, *shape) for _ in range(CASES)]) for shape in SMALL for dice in [random.Random(SEED)]]
    shapes = ", ".join(f"{leaves}x{leaf} {part:.1f}" for (leaves, leaf), part in zip(SMALL, parts, strict=True))
    value = round(sum(parts) / len(parts), 2)
    return {"name": "exact_gap_pct", "value": value, "unit": "%", "note": f"leaf groups x machines: {shapes}"}


if __name__ == "__main__":
    for found in measure():
        print(found)
