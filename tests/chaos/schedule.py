"""What is submitted, ordered, killed and cut, and when: a pure function of the seed and the length."""

import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

MACHINES = tuple(f"m-{i}" for i in range(16))
PARTS = ("api", "worker", "agent", "temporal")
AWAY_AT_ONCE = 2
"""More machines than a fifth of the fleet silent at once hold every declaration, which would hide losses."""

PAST_LEASES = (18.0, 24.0)


@dataclass(frozen=True)
class Job:
    """A run to submit. `fails` is how often it fails by itself; the rest is the spec."""

    name: str
    at: float
    machines: int
    gpus: int
    priority: int
    steps: int
    fails: int = 0
    fail_after: int = 3
    deaf: bool = False
    budget: int = 10
    mounts: bool = False

    @property
    def plan(self) -> dict[str, Any]:
        """What its members are told."""
        rank = len(self.name) % self.machines
        return {
            "steps": self.steps,
            "fails": self.fails,
            "fail_after": self.fail_after,
            "fail_rank": rank,
            "deaf": self.deaf,
        }


@dataclass(frozen=True)
class Deed:
    """One thing done to a part, a machine, a shim or a run: `seconds` is how long it lasts.

    The target of a shim's death is a number from 0 to 1: where it stands among those that are alive then.
    """

    at: float
    what: str
    target: str = ""
    seconds: float = 0.0
    hasty: bool = False


@dataclass(frozen=True)
class Schedule:
    """Everything, each list in the order of time."""

    seed: int
    seconds: float
    jobs: list[Job] = field(default_factory=list)
    orders: list[Deed] = field(default_factory=list)
    faults: list[Deed] = field(default_factory=list)
    cuts: list[Deed] = field(default_factory=list)


def schedule(seed: int, seconds: float, postgresql: bool = False) -> Schedule:
    """The schedule of a seed."""
    jobs = list(_jobs(random.Random(f"{seed} jobs"), seconds))
    orders = sorted(_orders(random.Random(f"{seed} orders"), jobs, seconds), key=lambda deed: deed.at)
    faults = list(_faults(random.Random(f"{seed} faults"), seconds, postgresql))
    cuts = sorted(_cuts(random.Random(f"{seed} cuts"), seconds), key=lambda deed: deed.at)
    return Schedule(seed, seconds, jobs, orders, faults, cuts)


def _jobs(chance: random.Random, seconds: float) -> Iterator[Job]:
    at, count = 0.0, 0
    while at < seconds * 0.9:
        count += 1
        kind = chance.choice(("small", "big", "big", "high", "high", "failing", "failing", "deaf", "fragile", "cpu"))
        yield _job(chance, f"{kind}-{count}", kind, at)
        at += chance.expovariate(1 / 1.8)


def _job(chance: random.Random, name: str, kind: str, at: float) -> Job:
    machines, gpus, priority, steps = chance.randint(1, 4), chance.choice((1, 4, 8)), 0, chance.randint(15, 70)
    mounts = chance.random() < 0.3
    if kind == "big":
        machines, gpus, steps = 8, 8, chance.randint(30, 80)
    elif kind == "high":
        machines, gpus, priority, steps = chance.choice((4, 8, 12)), 8, chance.choice((5, 10)), chance.randint(8, 30)
    elif kind == "cpu":
        gpus = 0
    return Job(
        name,
        at,
        machines,
        gpus,
        priority,
        steps,
        fails=chance.choice((1, 1, 1, 2)) if kind == "failing" else int(kind == "fragile" and chance.random() < 0.5),
        fail_after=chance.randint(1, 12),
        deaf=kind == "deaf",
        budget=0 if kind == "fragile" else 10,
        mounts=mounts,
    )


def _orders(chance: random.Random, jobs: list[Job], seconds: float) -> Iterator[Deed]:
    for job in jobs:
        if chance.random() < 0.2:
            what = chance.choice(("cancel", "delete", "preempt", "restart", "hold"))
            at = job.at + chance.uniform(0.0, 8.0)
            yield Deed(at, what, job.name)
            if what == "hold":
                yield Deed(at + chance.uniform(1.0, 6.0), "release", job.name)
    at = chance.uniform(5.0, 30.0)
    while at < seconds * 0.9:
        machine = chance.choice(MACHINES)
        yield Deed(at, "drain", machine)
        yield Deed(at + chance.uniform(2.0, 10.0), "return", machine)
        at += chance.uniform(20.0, 60.0)


def _faults(chance: random.Random, seconds: float, postgresql: bool) -> Iterator[Deed]:
    kinds = ["kill"] * 8 + ["pause"] * 3 + ["long pause", "kill all", "everything", "sleep", "double"]
    kinds += ["shim"] * 4 + ["nursery"]
    kinds += ["ledger"] * 2 if postgresql else []
    at = chance.uniform(3.0, 8.0)
    while at < seconds:
        yield _fault(chance, chance.choice(kinds), at)
        at += chance.expovariate(1 / 4.0)


def _fault(chance: random.Random, kind: str, at: float) -> Deed:
    part, hasty = chance.choice(PARTS), chance.random() < 0.4
    match kind:
        case "pause":
            return Deed(at, "pause", part, chance.uniform(0.3, 4.0))
        case "long pause":
            return Deed(at, "pause", part, chance.uniform(*PAST_LEASES))
        case "sleep":
            return Deed(at, "sleep", "", chance.uniform(1.0, PAST_LEASES[1]))
        case "shim":
            return Deed(at, "shim", f"{chance.random():.3f}", 0.0, True)
        case "nursery":
            return Deed(at, "nursery", "", 0.0, True)
        case "everything":
            return Deed(at, "everything", "", chance.choice((0.0, 1.0, 8.0)))
        case "double":
            return Deed(at, "double", "", chance.uniform(3.0, 12.0), hasty)
        case "ledger":
            return Deed(at, "ledger", "", chance.choice((0.5, 5.0, 20.0)))
    return Deed(at, kind, part, 0.0, hasty)


def _cuts(chance: random.Random, seconds: float) -> Iterator[Deed]:
    away: dict[str, float] = {}
    at = chance.uniform(4.0, 10.0)
    while at < seconds * 0.9:
        away = {machine: until for machine, until in away.items() if until > at}
        if len(away) < AWAY_AT_ONCE:
            machine = chance.choice([name for name in MACHINES if name not in away])
            what = chance.choice((("off", "on"), ("unplug", "plug")))
            lasts = chance.choice((chance.uniform(0.5, 8.0), chance.uniform(17.0, 40.0)))
            # A machine that is back has a period of grace before another cut counts as one more at once.
            away[machine] = at + lasts + 5.0
            yield Deed(at, what[0], machine, lasts)
            yield Deed(at + lasts, what[1], machine)
        at += chance.uniform(4.0, 14.0)
