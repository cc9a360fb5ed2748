"""Traces: what is submitted when, how large it is and how long it runs; read from CSV, or made from a seed."""

import csv
import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from astraeus.model.errors import Invalid

COLUMNS = {
    "submit": ("submit_s", "submit"),
    "gpus": ("gpus",),
    "duration": ("duration_s", "duration"),
    "priority": ("priority",),
    "limit": ("limit_s", "limit"),
}
NEEDED = ("submit", "gpus", "duration")
FAULTS_SHOWN = 5
HOUR = 3600.0
SIZES = ((1, 30), (2, 10), (4, 8), (8, 28), (16, 9), (32, 6), (64, 4), (128, 3), (256, 1), (512, 1))
"""GPUs of a generated job and how often they are asked for, of 100."""


@dataclass(frozen=True, slots=True)
class Job:
    """One row: seconds from the trace's beginning, GPUs, seconds of work, priority, its time limit if it has one."""

    submit: float
    gpus: int
    duration: float
    priority: int = 0
    limit: int | None = None


def read_trace(path: Path) -> list[Job]:
    """The jobs of a CSV file in the order of their submission; `Invalid` names the faults of its rows."""
    try:
        with path.open(newline="", encoding="utf-8") as file:
            return _read(csv.DictReader(file), path.name)
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise Invalid(f"cannot read the trace {path}: {error}") from error


def _read(rows: "csv.DictReader[str]", name: str) -> list[Job]:
    present = {
        field: next((c for c in names if c in (rows.fieldnames or ())), None) for field, names in COLUMNS.items()
    }
    if missing := [COLUMNS[field][0] for field in NEEDED if present[field] is None]:
        raise Invalid(f"{name}: its first line must name the columns {', '.join(missing)}")
    columns = {field: column for field, column in present.items() if column is not None}
    jobs: list[Job] = []
    faults: list[str] = []
    for row in rows:
        try:
            jobs.append(_job({field: row[column] or "" for field, column in columns.items()}))
        except (ValueError, OverflowError) as error:
            faults.append(f"{name} line {rows.line_num}: {error}")
    if faults:
        more = len(faults) - FAULTS_SHOWN
        raise Invalid("\n".join([*faults[:FAULTS_SHOWN], *([f"and {more} more"] if more > 0 else [])]))
    return sorted(jobs, key=lambda job: job.submit)


def _job(row: Mapping[str, str]) -> Job:
    limit = row.get("limit")
    job = Job(
        submit=float(row["submit"]),
        gpus=int(row["gpus"]),
        duration=float(row["duration"]),
        priority=int(row.get("priority") or 0),
        limit=int(float(limit)) if limit else None,
    )
    if not (0 <= job.submit < float("inf") and 0 <= job.duration < float("inf") and job.gpus >= 1):
        raise ValueError("submit and duration must not be negative, and gpus at least 1")
    if job.limit is not None and job.limit < 1:
        raise ValueError("a limit must be a second at least")
    return job


def generate(count: int, seed: int, gpus_max: int, urgent: float = 0.0) -> list[Job]:
    """Jobs of a shape like public traces': many small, few large, long-tailed durations, submitted in bursts.

    A share `urgent` has a higher priority. Three of four have a time limit, between once and thrice their duration.
    """
    dice = random.Random(seed)
    sizes = [(size, weight) for size, weight in SIZES if size <= gpus_max]
    at = 0.0
    jobs = []
    for _ in range(count):
        at += 0.0 if dice.random() < 0.3 else dice.expovariate(1 / 300)
        gpus = dice.choices([size for size, _ in sizes], [weight for _, weight in sizes])[0]
        duration = min(max(dice.lognormvariate(8.0, 1.4), 60.0), 48 * HOUR)
        limit = int(duration * dice.uniform(1, 3)) + 1 if dice.random() < 0.75 else None
        priority = 10 if dice.random() < urgent else 0
        jobs.append(Job(round(at, 1), gpus, round(duration, 1), priority, limit))
    return jobs


def scaled(jobs: Sequence[Job], gpus: int, load: float) -> list[Job]:
    """The same jobs submitted so close together that they ask for a share `load` of so many GPUs, on average."""
    if not jobs:
        return []
    first, span = jobs[0].submit, jobs[-1].submit - jobs[0].submit
    wanted = work(jobs) / (load * gpus)
    factor = wanted / span if span else 0.0
    return [replace(job, submit=(job.submit - first) * factor) for job in jobs]


def work(jobs: Iterable[Job]) -> float:
    """GPU-seconds asked for."""
    return sum(job.gpus * job.duration for job in jobs)
