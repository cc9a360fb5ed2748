"""How well gangs are placed: leaf groups used over a replayed trace, and against an exact solver on small fleets."""

import random
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from astraeus.agent.fleet import parse_fleet
from astraeus.cli.simulate import machines_of
from astraeus.simulator.engine import Options, Simulation
from astraeus.simulator.trace import generate, scaled

sys.path.insert(0, str(Path(__file__).parents[1]))

FLEET = """
cluster: bench
machines:
  m-{0..511}:
    gpus: 8
    gpu_model: NVIDIA H100 80GB HBM3
    cpu_cores: 112
    memory: 2TiB
    rails: {count: 8, gbps: 400}
    labels: {leaf: "leaf-{n/32}", spine: "s{n/128}", fabric: f0, rack: "r{n/8}"}
"""
JOBS, LOAD, SEED, PATIENCE = 5000, 0.98, 1, 1800
"""The load is what the jobs ask for on average; while the fleet fills, it is less."""
SMALL = ((4, 4), (8, 8), (6, 16))
"""Leaf groups and machines in each, of the small fleets."""
CASES = 60


def measure() -> Iterator[dict[str, Any]]:
    """The rows of build/bench.json."""
    fleet = machines_of(parse_fleet(FLEET))
    gpus = sum(machine.gpus for machine in fleet)
    jobs = scaled(generate(JOBS, SEED, 512), gpus, LOAD)
    for name, patience in (("leaf_ratio_mean", 0), ("leaf_ratio_patient_mean", PATIENCE)):
        outcome = Simulation(fleet, jobs, Options(patience_seconds=patience)).run()
        wide = [ratio for size, ratio in outcome.leaf_ratios() if 17 <= size <= 32]
        note = (
            f"{JOBS} generated jobs, 512 machines in leaf groups of 32, {outcome.utilisation():.0%} used, "
            f"patience {patience} s; "
            f"{len(wide)} gangs of 17-32 machines {sum(wide) / len(wide) if wide else 1:.2f}"
        )
        yield {"name": name, "value": round(outcome.leaf_ratio(), 3), "unit": "ratio", "note": note}
    yield _gaps()


def _gaps() -> dict[str, Any]:
    from placement.exact import case, gap

    parts = [gap([case(dice, *shape) for _ in range(CASES)]) for shape in SMALL for dice in [random.Random(SEED)]]
    shapes = ", ".join(f"{leaves}x{leaf} {part:.1f}" for (leaves, leaf), part in zip(SMALL, parts, strict=True))
    value = round(sum(parts) / len(parts), 2)
    return {"name": "exact_gap_pct", "value": value, "unit": "%", "note": f"leaf groups x machines: {shapes}"}


if __name__ == "__main__":
    for found in measure():
        print(found)
