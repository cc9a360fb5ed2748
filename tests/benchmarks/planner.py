"""How long a pass takes: 10,000 machines, 85 % busy, 1,000 waiting gangs of mixed needs, all explained.

Run with `python tests/benchmarks/planner.py [--json]`; prints a table, or the entries of build/bench.json.
"""

import argparse
import json
import random
import resource
import statistics
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from astraeus.model.machine import FABRIC, LEAF, RACK, SPINE, Nic
from astraeus.model.spec import Resources
from astraeus.placement.planner import plan
from astraeus.placement.types import Ask, Holding, Machine, Snapshot

GIB = 1024**3
LEAF_MACHINES, SPINE_LEAVES, FABRICS = 32, 16, 2
PORTS = tuple(Nic(device=f"mlx5_{i}", rail=i, gbps=400) for i in range(8))


def machines(count: int) -> tuple[Machine, ...]:
    """A fleet in leaf groups of 32 under spine groups of 16, on two fabrics."""
    found = []
    for i in range(count):
        leaf = i // LEAF_MACHINES
        labels = {
            LEAF: f"leaf-{leaf:04d}",
            SPINE: f"spine-{leaf // SPINE_LEAVES:03d}",
            FABRIC: f"fabric-{i * FABRICS // count}",
            RACK: f"rack-{i // 8:05d}",
        }
        model = "NVIDIA H100 80GB HBM3" if leaf % 10 else "NVIDIA H200"
        found.append(Machine(f"m-{i:06d}", 8, model, 192, 2048 * GIB, labels, PORTS))
    return tuple(found)


def holdings(fleet: tuple[Machine, ...], busy: float, dice: random.Random, low: float) -> tuple[Holding, ...]:
    """Gangs of 1 to 64 machines over a share of the fleet; `low` of them have a priority under the waiting ones."""
    held: list[Holding] = []
    claim, at = 1_000_000, 0
    while at < len(fleet):
        size = dice.choice((1, 1, 2, 4, 8, 8, 16, 32, 64))
        claim += 1
        if dice.random() < busy:
            priority = -dice.randrange(1, 4) if dice.random() < low else 50
            ends = None if dice.random() < 0.3 else dice.uniform(60, 86_400)
            for machine in fleet[at : at + size]:
                held.append(
                    Holding(
                        claim,
                        f"uid-{claim}",
                        f"run-{claim}",
                        "acme/w",
                        1,
                        machine.name,
                        255,
                        96,
                        800 * GIB,
                        priority,
                        started_at=-float(claim % 977),
                        ends_at=ends,
                    )
                )
        at += size
    return tuple(held)


def asks(count: int, dice: random.Random, high: int = 0) -> tuple[Ask, ...]:
    """Waiting gangs with mixed constraints; the first `high` of them may preempt."""
    found = []
    for i in range(count):
        size = dice.choice((1, 2, 4, 8, 16, 32, 48, 64))
        per = dice.choice((8, 8, 8, 4, 2, 1))
        within = dice.choice(("any", "fabric", "fabric", "leaf", "rack", "rdma")) if size <= LEAF_MACHINES else "fabric"
        resources = Resources.model_validate(
            {
                "gpu_requests": {
                    "count": size * per,
                    "models": dice.choice(([], ["H100"], ["H200"], ["H100", "H200"])),
                    "healthy_only": dice.random() < 0.5,
                },
                "machines": size,
                "per_gpu": {"cpu_cores": dice.choice((0.0, 12.0)), "memory_bytes": dice.choice((0, 100 * GIB))},
                "network": {
                    "interconnect": dice.choice(("any", "infiniband", "rdma")),
                    "min_gbps": dice.choice((0.0, 400.0)),
                },
                "topology": {"keep_within": within},
            }
        )
        patience = 900.0 if dice.random() < 0.2 else 0.0
        limit = dice.choice((None, 3600, 86_400))
        priority = 10 if i < high else dice.choice((-10, -9, -8))
        found.append(
            Ask(
                i + 1,
                f"uid-w{i}",
                f"wait-{i}",
                "acme/w",
                1,
                resources,
                priority,
                float(i),
                patience,
                time_limit_seconds=limit,
            )
        )
    return tuple(found)


def timed(action: Callable[[], Any], rounds: int) -> float:
    """The median processor time of an action in milliseconds; a busy machine makes it no longer."""
    times = []
    for _ in range(rounds):
        begin = time.process_time()
        action()
        times.append((time.process_time() - begin) * 1000)
    return statistics.median(times)


def snapshot(count: int, waiting: int, high: int = 0, low: float = 0.0) -> Snapshot:
    """The fleet of the benchmark with its load and its queue."""
    dice = random.Random(7)
    fleet = machines(count)
    return Snapshot("bench", fleet, holdings(fleet, 0.85, dice, low), asks(waiting, dice, high))


def measure(rounds: int) -> list[dict[str, Any]]:
    """All measurements, as entries of build/bench.json."""
    small = snapshot(10_000, 1_000)
    first = timed(lambda: plan(replace(small, machines=(*small.machines,)), 0.0), 1)
    decided = plan(small, 0.0)
    ten = timed(lambda: plan(small, 0.0), rounds)
    settled = replace(small, asks=tuple(a for a in small.asks if a.claim not in {g.claim for g in decided.grants}))
    waiting = timed(lambda: plan(settled, 0.0), rounds)
    able = snapshot(10_000, 1_000, high=200, low=0.6)
    evicting = plan(able, 0.0)
    preempt = timed(lambda: plan(able, 0.0), rounds)
    evicted = f"{len(evicting.evictions)} evictions"
    alone = replace(small, asks=(small.asks[3],))
    single = timed(lambda: plan(alone, 0.0), rounds)
    large = snapshot(100_000, 1_000)
    plan(large, 0.0)
    hundred = timed(lambda: plan(large, 0.0), max(2, rounds // 3))
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    note = f"{len(decided.grants)} granted, {len(decided.waits)} wait"
    return [
        {"name": "pass_10k_1k_ms_p50", "value": round(ten, 1), "unit": "ms", "note": note},
        {"name": "pass_10k_1k_all_waiting_ms_p50", "value": round(waiting, 1), "unit": "ms"},
        {"name": "pass_10k_new_fleet_ms", "value": round(first, 1), "unit": "ms"},
        {"name": "pass_one_gang_ms_p50", "value": round(single, 1), "unit": "ms"},
        {"name": "pass_preempt_ms_p50", "value": round(preempt, 1), "unit": "ms", "note": evicted},
        {"name": "pass_100k_1k_ms_p50", "value": round(hundred, 1), "unit": "ms"},
        {"name": "pass_growth_100k", "value": round(hundred / ten, 2), "unit": "ratio"},
        {"name": "planner_mb_100k", "value": round(memory, 1), "unit": "MB"},
    ]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.add_argument("--rounds", type=int, default=9)
    options = parser.parse_args()
    found = measure(options.rounds)
    if options.json:
        print(json.dumps(found, indent=2))
        return
    for entry in found:
        print(f"{entry['name']:34} {entry['value']:>10} {entry['unit']:6} {entry.get('note', '')}")


if __name__ == "__main__":
    main()
