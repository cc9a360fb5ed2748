"""What a replay saw, and the figures made of it."""

import statistics
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from astraeus.model.network import Rung
from astraeus.placement.types import Machine
from astraeus.simulator.trace import Job

CLASSES = ((1, "1"), (7, "2-7"), (8, "8"), (64, "9-64"), (256, "65-256"), (1 << 62, "more"))
"""Sizes in GPUs that are looked at together."""


@dataclass(frozen=True, slots=True)
class Moment:
    """GPUs held and waited for, and machines down, from `at` on."""

    at: float
    used: int
    waiting: int
    down: int


@dataclass(frozen=True, slots=True)
class Started:
    """An attempt that began: how long after the run's submission, and where. `first` is a run's first attempt."""

    job: Job
    waited: float
    machines: tuple[str, ...]
    rung: Rung
    first: bool


@dataclass
class Outcome:
    """A finished replay. Work is in GPU-seconds: `held` is `useful`, `lost`, and time of starting and stopping."""

    gpus: int = 0
    fleet: tuple[Machine, ...] = ()
    moments: list[Moment] = field(default_factory=list)
    starts: list[Started] = field(default_factory=list)
    finished: int = 0
    unplaced: int = 0
    too_large: int = 0
    preemptions: int = 0
    failures: int = 0
    failed_attempts: int = 0
    passes: int = 0
    useful: float = 0.0
    lost: float = 0.0
    held: float = 0.0
    ended_at: float = 0.0

    def utilisation(self) -> float:
        """The share of all GPUs held, over the time in which jobs were submitted."""
        end = max((start.job.submit for start in self.starts), default=0.0)
        begin = self.moments[0].at if self.moments else 0.0
        held = sum(moment.used * max(0.0, min(until, end) - moment.at) for moment, until in self._spans())
        return held / (self.gpus * (end - begin)) if end > begin and self.gpus else 0.0

    def demand_met(self) -> float:
        """GPUs held over those that could be: as many as were asked for, up to all; while jobs came."""
        end = max((start.job.submit for start in self.starts), default=0.0)
        held = wanted = 0.0
        for moment, until in self._spans():
            lasts = max(0.0, min(until, end) - moment.at)
            held += moment.used * lasts
            wanted += min(self.gpus, moment.used + moment.waiting) * lasts
        return held / wanted if wanted else 1.0

    def _spans(self) -> Iterator[tuple[Moment, float]]:
        for moment, following in zip(self.moments, self.moments[1:], strict=False):
            yield moment, following.at

    def goodput(self) -> float:
        """The share of held GPU time that was work which counted."""
        return self.useful / self.held if self.held else 1.0

    def waits(self) -> dict[str, list[float]]:
        """Seconds to the first start, by size."""
        found: dict[str, list[float]] = defaultdict(list)
        for start in self.starts:
            if start.first:
                found[next(name for most, name in CLASSES if start.job.gpus <= most)].append(start.waited)
        return {name: sorted(found[name]) for _, name in CLASSES if name in found}

    def leaf_ratios(self) -> list[tuple[int, float]]:
        """For each start its machines, and the leaf groups it used over the fewest that could hold so many."""
        home = {machine.name: (machine.fabric, machine.leaf) for machine in self.fleet if machine.leaf}
        fewest = fewest_leaves(list(Counter(home.values()).values()))
        return [
            (len(start.machines), len({home[name] for name in start.machines}) / fewest[len(start.machines) - 1])
            for start in self.starts
            if len(start.machines) <= len(fewest) and all(name in home for name in start.machines)
        ]

    def leaf_ratio(self, least: int = 1) -> float:
        """The mean of `leaf_ratios` of gangs of at least so many machines; 1 is the best there can be."""
        ratios = [ratio for size, ratio in self.leaf_ratios() if size >= least]
        return statistics.fmean(ratios) if ratios else 1.0

    def rows(self) -> list[tuple[str, str]]:
        """The figures as people read them."""
        hours, ratios = 3600.0, self.leaf_ratios()
        gangs = sum(size > 1 for size, _ in ratios)
        leaves = f"{self.leaf_ratio():.3f} of the fewest possible over {len(ratios)} starts"
        met = f"{self.demand_met():.1%} of what was asked for and there"
        return [
            ("Jobs", f"{self.finished} finished, {self.unplaced} never placed, {self.too_large} larger than the fleet"),
            ("Utilisation", f"{self.utilisation():.1%} of {self.gpus} GPUs while jobs came; {met}"),
            ("Leaf groups", f"{leaves}; {self.leaf_ratio(2):.3f} over {gangs} on two machines and more"),
            ("Preemptions", str(self.preemptions)),
            ("Failures", f"{self.failures} of machines, which ended {self.failed_attempts} attempts"),
            ("Lost", f"{self.lost / hours:,.1f} GPU-hours of work since the last checkpoint"),
            ("Goodput", f"{self.goodput():.2%} of {self.held / hours:,.0f} GPU-hours held"),
            ("Passes", str(self.passes)),
        ]

    def waiting_rows(self) -> list[tuple[str, int, str, str, str]]:
        """Waiting time by size: jobs, median, 90th percentile, longest."""
        return [
            (name, len(waits), lasting(quantile(waits, 0.5)), lasting(quantile(waits, 0.9)), lasting(waits[-1]))
            for name, waits in self.waits().items()
        ]

    def figures(self) -> dict[str, object]:
        """The figures for programs."""
        return {
            "finished": self.finished,
            "unplaced": self.unplaced,
            "too_large": self.too_large,
            "gpus": self.gpus,
            "utilisation": round(self.utilisation(), 4),
            "demand_met": round(self.demand_met(), 4),
            "leaf_ratio_mean": round(self.leaf_ratio(), 4),
            "leaf_ratio_gangs_mean": round(self.leaf_ratio(2), 4),
            "preemptions": self.preemptions,
            "failures": self.failures,
            "failed_attempts": self.failed_attempts,
            "gpu_hours_lost": round(self.lost / 3600, 2),
            "goodput": round(self.goodput(), 4),
            "passes": self.passes,
            "waiting_seconds": {
                name: {
                    "jobs": len(waits),
                    "median": quantile(waits, 0.5),
                    "p90": quantile(waits, 0.9),
                    "max": waits[-1],
                }
                for name, waits in self.waits().items()
            },
        }


def fewest_leaves(sizes: Sequence[int]) -> list[int]:
    """For 1, 2, 3, … machines, the fewest leaf groups of these sizes that have so many."""
    return [count for count, size in enumerate(sorted(sizes, reverse=True), 1) for _ in range(size)]


def quantile(ordered: Sequence[float], share: float) -> float:
    """The value below which a share of the values is."""
    return round(ordered[min(int(share * len(ordered)), len(ordered) - 1)], 1)


def lasting(seconds: float) -> str:
    """A time in the unit that suits it."""
    for unit, size in (("d", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.0f} s"
