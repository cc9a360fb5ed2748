"""How long a pass takes: 10,000 machines, 85 % busy, 1,000 waiting gangs of mixed needs, all explained.

Times are processor times, which a busy machine lengthens least: the median of some passes, and of several such medians
the least. Memory is the peak of a process that makes the fleet and plans once.
"""

import json
import random
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from astraeus.model.machine import FABRIC, LEAF, RACK, SPINE, Nic
from astraeus.model.spec import Resources
from astraeus.placement.expect import expected
from astraeus.placement.grant import held_by
from astraeus.placement.planner import Planner, plan
from astraeus.placement.types import Ask, Holding, Machine, Plan, Snapshot

GIB = 1024**3
BATCHES, ROUNDS = 4, 7
BYTES_PER_UNIT = 1 if sys.platform == "darwin" else 1024
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


def timed(action: Callable[[], Any]) -> float:
    """The processor time of an action in milliseconds."""
    begin = time.process_time()
    action()
    return (time.process_time() - begin) * 1000


def p50(action: Callable[[], Any], rounds: int = ROUNDS) -> float:
    """The median of some times, at the best of a few tries."""
    return min(statistics.median([timed(action) for _ in range(rounds)]) for _ in range(BATCHES))


def snapshot(count: int, waiting: int, high: int = 0, low: float = 0.0) -> Snapshot:
    """The fleet of the benchmark with its load and its queue."""
    dice = random.Random(7)
    fleet = machines(count)
    return Snapshot("bench", fleet, holdings(fleet, 0.85, dice, low), asks(waiting, dice, high))


def committed(world: Snapshot, decided: Plan) -> Snapshot:
    """The snapshot after a plan was carried out; what it left alone are the same objects."""
    asks_of = {ask.claim: ask for ask in world.asks}
    granted = {grant.claim for grant in decided.grants}
    held = [
        replace(holding, priority=50, ends_at=None)
        for grant in decided.grants
        for holding in held_by(grant, asks_of[grant.claim], 0.0)
    ]
    return replace(
        world,
        holdings=tuple(sorted((*world.holdings, *held), key=lambda holding: holding.claim)) if held else world.holdings,
        asks=tuple(ask for ask in world.asks if ask.claim not in granted) if held else world.asks,
        reserved=decided.reserved if decided.reserved != world.reserved else world.reserved,
    )


def small(number: int) -> Ask:
    """A claim of one GPU for a minute: there is room for it."""
    resources = Resources.model_validate({"gpu_requests": {"count": 1}, "machines": 1})
    return Ask(
        number, f"uid-s{number}", f"small-{number}", "acme/w", 1, resources, -9, 500.0, 0.0, time_limit_seconds=60
    )


def incremental(world: Snapshot) -> Iterator[dict[str, Any]]:
    """Passes over a settled queue after one change: a claim came, one is placed or ended, a machine is down."""
    planner = Planner()
    times: dict[str, list[float]] = {"": [], "_placed": [], "_ended": [], "_machine": []}

    def after(what: str, world: Snapshot) -> Plan:
        begin = time.process_time()
        decided = planner.plan(world, 0.0)
        times[what].append((time.process_time() - begin) * 1000)
        return decided

    for _ in range(3):
        world = committed(world, planner.plan(world, 0.0))
    dice = random.Random(11)
    for number, new in enumerate(asks(30, dice), 5_000):
        waiting = replace(new, claim=number, submitted_at=dice.uniform(0, 1000), priority=-10)
        after("", replace(world, asks=(*world.asks, waiting)))
        after("", world)
        begun = replace(world, asks=(*world.asks, small(number)))
        world = committed(begun, after("_placed", begun))
        planner.plan(world, 0.0)
        world = replace(world, holdings=tuple(holding for holding in world.holdings if holding.claim != number))
        after("_ended", world)
        lost = dice.choice(world.machines)
        down = replace(lost, refusal="down")
        after("_machine", replace(world, machines=tuple(down if one is lost else one for one in world.machines)))
        planner.plan(world, 0.0)
    for name, found in times.items():
        yield row(f"pass_incremental{name}_ms_p50", statistics.median(found))


def row(name: str, value: float, unit: str = "ms") -> dict[str, Any]:
    """A measurement as build/bench.json has it."""
    return {"name": name, "value": round(value, 2), "unit": unit}


def measure() -> Iterator[dict[str, Any]]:
    """All measurements."""
    # First of all: a process counts the peak of the one that started it as its own.
    done = subprocess.run([sys.executable, "-m", __spec__.name, "100000"], check=True, capture_output=True, text=True)
    yield row("planner_mb_100k", float(done.stdout), "MB")
    world = snapshot(10_000, 1_000)
    yield row("pass_10k_new_fleet_ms", timed(lambda: plan(world, 0.0)))
    ten = p50(lambda: plan(world, 0.0))
    yield row("pass_10k_1k_ms_p50", ten)
    alone = replace(world, asks=(world.asks[3],))
    yield row("pass_one_gang_ms_p50", p50(lambda: plan(alone, 0.0)))
    yield from incremental(world)
    able = snapshot(10_000, 1_000, high=200, low=0.6)
    yield row("pass_preempt_ms_p50", p50(lambda: plan(able, 0.0)))
    known = snapshot(1_000, 1_000)
    plan(known, 0.0)
    yield row("expected_starts_1k_ms", timed(lambda: expected(known, 0.0)))
    large = snapshot(100_000, 1_000)
    plan(large, 0.0)
    yield row("pass_growth_100k", p50(lambda: plan(large, 0.0), 3) / ten, "ratio")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        plan(snapshot(int(sys.argv[1]), 1_000), 0.0)
        print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * BYTES_PER_UNIT / 1e6)
    else:
        for found in measure():
            print(json.dumps(found), flush=True)
