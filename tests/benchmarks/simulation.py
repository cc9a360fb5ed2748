"""How well gangs are placed: leaf groups used over replayed traces, and against an exact solver on small fleets.

The traces are the files of the folder that `ASTRAEUS_TRACE` names, or the one file; without it only generated jobs
are replayed.
"""

import os
import random
import statistics
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from astraeus.agent.fleet import parse_fleet
from astraeus.cli.simulate import machines_of
from astraeus.placement.types import Machine
from astraeus.simulator.engine import Options, Simulation
from astraeus.simulator.outcome import Outcome, lasting, quantile
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
LOADS = (0.85, 0.9, 0.95)
"""What the jobs of each part of a trace ask for on average; while the fleet fills and drains, it is less."""
PART_JOBS, PARTS_LEAST = 7_000, 5
"""A trace is cut into equal parts of so many jobs or some more, and into at least so many parts."""
PATIENCES = {"": 0, "_patient": 172_800}
"""Seconds that gangs wait for a tighter rung than the one free: none, as where nothing is said, or two days."""
SMALL = ((4, 4), (8, 8), (6, 16))
"""Leaf groups and machines in each, of the small fleets."""
CASES = 60


def measure() -> Iterator[dict[str, Any]]:
    """The rows of build/bench.json."""
    if path := os.environ.get("ASTRAEUS_TRACE"):
        yield from _traced(Path(path))
    machines = fleet(512, leaf=32, spine=128)
    jobs = generate(GENERATED, SEED, 512)
    for kind, patience in PATIENCES.items():
        outcome = _replay(machines, jobs, GENERATED_LOAD, patience)
        note = f"{GENERATED} generated jobs; {_told(machines, [outcome], patience)}"
        for gangs, least in (("", 1), ("_gangs", 2)):
            yield _row(f"leaf_ratio{kind}_generated{gangs}_mean", outcome.leaf_ratio(least), note)
    yield _gaps()


def fleet(machines: int, leaf: int, spine: int) -> tuple[Machine, ...]:
    """Machines of 8 GPUs, so many in each leaf group and under each spine group."""
    return machines_of(parse_fleet(FLEET.format(last=machines - 1, leaf=leaf, spine=spine)))


def _traced(path: Path) -> Iterator[dict[str, Any]]:
    """A row for each trace and load, and their means, in which each counts alike."""
    machines = fleet(144, leaf=16, spine=48)
    traces = {file.stem: read_trace(file) for file in (sorted(path.glob("*.csv")) if path.is_dir() else [path])}
    for kind, patience in PATIENCES.items():
        rows, over_gangs = [], []
        for name, load in [(name, load) for name in traces for load in LOADS]:
            outcomes = [_replay(machines, part, load, patience) for part in parts_of(traces[name])]
            over_gangs.append(_ratio(outcomes, 2))
            note = f"{load:.0%} asked for; {_told(machines, outcomes, patience)}; gangs {over_gangs[-1]:.3f}"
            rows.append(_row(f"leaf_ratio{kind}_{name}_{load * 100:.0f}", _ratio(outcomes, 1), note))
            yield rows[-1]
        note = f"mean of {len(rows)} rows: {', '.join(row['name'] for row in rows)}"
        yield _row(f"leaf_ratio{kind}_mean", statistics.fmean(row["value"] for row in rows), note)
        yield _row(f"leaf_ratio{kind}_gangs_mean", statistics.fmean(over_gangs), f"over starts on 2 and more; {note}")


def parts_of(jobs: Sequence[Job]) -> list[Sequence[Job]]:
    """A trace cut into parts of as many jobs each, one after the other; at the end fewer jobs than parts are left."""
    count = max(PARTS_LEAST, len(jobs) // PART_JOBS)
    length = len(jobs) // count
    return [jobs[part * length : (part + 1) * length] for part in range(count)]


def _replay(machines: Sequence[Machine], jobs: Sequence[Job], load: float, patience: int) -> Outcome:
    jobs = scaled(jobs, sum(machine.gpus for machine in machines), load)
    return Simulation(machines, jobs, Options(patience_seconds=patience)).run()


def _ratio(outcomes: Sequence[Outcome], least: int) -> float:
    """The mean over the starts of all of them on at least so many machines."""
    return statistics.fmean(ratio for one in outcomes for size, ratio in one.leaf_ratios() if size >= least)


def _told(machines: Sequence[Machine], outcomes: Sequence[Outcome], patience: int) -> str:
    waits: dict[str, list[float]] = defaultdict(list)
    for name, found in [(name, found) for outcome in outcomes for name, found in outcome.waits().items()]:
        waits[name] = sorted(waits[name] + found)
    held, met = (
        f"{min(shares):.1%} to {max(shares):.1%}, {statistics.fmean(shares):.1%} on average"
        for shares in ([one.utilisation() for one in outcomes], [one.demand_met() for one in outcomes])
    )
    everybody = statistics.fmean([wait for found in waits.values() for wait in found])
    waited = "; ".join(
        f"{gpus} GPUs {lasting(statistics.fmean(found))}, {lasting(quantile(found, 0.9))}"
        for gpus, found in waits.items()
    )
    return (
        f"{sum(len(one.starts) for one in outcomes)} starts on {len(machines)} machines, patience {patience} s, "
        f"GPUs held {held}; of what could be, {met}; waited (mean, 90 %): all {lasting(everybody)}; {waited}"
    )


def _row(name: str, value: float, note: str) -> dict[str, Any]:
    return {"name": name, "value": round(value, 3), "unit": "ratio", "note": note}


def _gaps() -> dict[str, Any]:
    from placement.exact import case, gap

    parts = [gap([case(dice, *shape) for _ in range(CASES)]) for shape in SMALL for dice in [random.Random(SEED)]]
    shapes = ", ".join(f"{leaves}x{leaf} {part:.1f}" for (leaves, leaf), part in zip(SMALL, parts, strict=True))
    value = round(sum(parts) / len(parts), 2)
    return {"name": "exact_gap_pct", "value": value, "unit": "%", "note": f"leaf groups x machines: {shapes}"}


if __name__ == "__main__":
    for found in measure():
        print(found)
