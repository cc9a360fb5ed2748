"""Judges a chaos run after its end: the ledger's account of every attempt against what really happened."""

import itertools
import json
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tests.chaos.doer import Record
from tests.chaos.picture import Picture, Row
from tests.chaos.schedule import Job, Schedule

BACKOFF_FIRST, BACKOFF_MOST = 10.0, 300.0
LATE_SECONDS = 30.0
SILENCE_SECONDS = 15.0
GENUINE = ("exited", "oom", "start_failed", "machine_lost", "barrier_timeout")


@dataclass
class Diary:
    """What one member wrote, and when it last was alive."""

    attempt: int
    rank: int
    events: list[Row]
    last: float
    machine: str = ""
    began: float = 0.0
    kinds: set[str] = field(default_factory=set)


def diaries(folder: Path, name: str) -> list[Diary]:
    """Everything the members of a run wrote."""
    found = []
    for path in sorted((folder / name).glob("*.*")):
        attempt, _, rank = path.name.partition(".")
        if attempt.isdigit() and rank.isdigit():
            events = [json.loads(line) for line in path.read_text().splitlines()]
            if events:
                kinds = {event["event"] for event in events}
                first = events[0]
                found.append(
                    Diary(int(attempt), int(rank), events, path.stat().st_mtime, first["machine"], first["at"], kinds)
                )
    return found


class Judge:
    """One look at the end, one list of violations."""

    def __init__(self, plan: Schedule, record: Record, now: Picture, folder: Path) -> None:
        self.plan, self.record, self.now, self.folder = plan, record, now, folder
        self.claims: dict[str, list[Row]] = defaultdict(list)
        for row in now.claims:
            self.claims[row["run_uid"]].append(row)
        self.runs = {row["uid"]: row for row in now.runs}
        self.places: dict[int, set[str]] = defaultdict(set)
        for row in now.allocations:
            self.places[row["claim"]].add(row["machine"])

    def violations(self) -> Iterator[str]:
        """Everything that is not as it must be."""
        yield from self.record.wrong
        yield from self.accepted()
        for job in self.plan.jobs:
            run = self.runs.get(self.record.uids.get(job.name, ""))
            if run is not None:
                told = diaries(self.folder, job.name)
                for complaint in self.of_run(job, run, self.claims[run["uid"]], told):
                    yield f"{job.name} ({run['uid']}): {complaint}"
        yield from self.leaked()

    def of_run(self, job: Job, run: Row, claims: list[Row], told: list[Diary]) -> Iterator[str]:
        """What is wrong with one run."""
        yield from self.ended(job, run, claims, told)
        yield from self.charged(job, run, claims, told)
        yield from self.overlapping(run, told)
        yield from self.vanished(claims, told)
        yield from self.timed(claims)

    def accepted(self) -> Iterator[str]:
        """No run that was accepted is lost, and none was made twice."""
        names: dict[str, list[str]] = defaultdict(list)
        for row in self.now.runs:
            names[row["name"]].append(row["uid"])
        for name, uid in self.record.uids.items():
            if names.get(name) != [uid]:
                yield f"{name} was accepted as {uid}, but the ledger has {names.get(name)}"

    def ended(self, job: Job, run: Row, claims: list[Row], told: list[Diary]) -> Iterator[str]:
        """Each run reached the end that it must, and a success is one of every member."""
        ordered = {what for what, name in self.record.ordered if name == job.name}
        allowed = {"Succeeded"} | ({"Cancelled"} if ordered & {"cancel", "delete"} else set())
        charges = sum(bool(row["charged"]) for row in claims)
        if charges > job.budget:
            allowed = (allowed - {"Succeeded"}) | {"Failed"}
        if run["state"] not in allowed:
            yield f"is {run['state']} ({run['reason']}), must be one of {sorted(allowed)}"
        if run["state"] == "Succeeded":
            last = claims[-1]
            done = {one.rank for one in told if one.attempt == last["attempt"] and "done" in one.kinds}
            if done != set(range(job.machines)) or last["cause"] != "succeeded":
                yield f"succeeded in attempt {last['attempt']} ({last['cause']}), where only {sorted(done)} are done"
        for row in claims[:-1]:
            if row["cause"] == "succeeded":
                yield f"has succeeded in attempt {row['attempt']}, and went on to {claims[-1]['attempt']}"

    def charged(self, job: Job, run: Row, claims: list[Row], told: list[Diary]) -> Iterator[str]:
        """The budget was charged once for each genuine failure and for nothing else."""
        failed = {one.attempt for one in told if "fail" in one.kinds}
        for row in claims:
            attempt, cause = row["attempt"], row["cause"]
            if (
                bool(row["charged"]) != (cause in GENUINE and row["cause"] != "cancelled")
                and run["state"] != "Cancelled"
            ):
                yield f"attempt {attempt} ended by {cause} ({row['detail']}), charged: {bool(row['charged'])}"
            if cause == "machine_lost" and not self.lost(row):
                yield f"attempt {attempt} lost a machine, but none of its was cut: {row}"
            shim = (run["uid"], attempt) in self.record.shims
            excused = attempt in failed or shim or (cause == "exited" and self.killed_by_cut(row))
            if cause in ("exited", "oom", "start_failed", "barrier_timeout") and not excused:
                yield f"attempt {attempt} ended by {cause} ({row['detail']}), but no member failed: {row}"
            if attempt in failed and cause in ("succeeded", "never_started"):
                yield f"attempt {attempt} has a member that failed, and ended by {cause}"
        left, charges = run["budget_left"], sum(bool(row["charged"]) for row in claims)
        if run["state"] == "Succeeded" and left is not None and left != max(0, job.budget - charges):
            yield f"{charges} charges leave {left} of {job.budget}"

    def lost(self, row: Row) -> bool:
        """Whether a machine of the attempt was cut while it had it, or so shortly before that the lease still ran."""
        since = (row["granted_at"] or row["entered_at"]) - SILENCE_SECONDS - 5
        until = row["failure_at"] or row["released_at"]
        return any(self.record.cut(name, since, until) for name in self.places[row["id"]])

    def killed_by_cut(self, row: Row) -> bool:
        """Whether a member was killed with its machine, and the machine was back before its lease ran out.

        One that was still held at its gate has written no diary, so the claim's machines are looked at.
        """
        since = row["granted_at"] or row["entered_at"]
        return any(self.record.cut(name, since, row["released_at"], "off") for name in self.places[row["id"]])

    def overlapping(self, run: Row, told: list[Diary]) -> Iterator[str]:
        """No member of an older attempt lived when a newer one began, unless its machine was cut off."""
        first = {
            attempt: min(one.began for one in told if one.attempt == attempt) for attempt in {o.attempt for o in told}
        }
        for one in told:
            if "superseded" in one.kinds and not self.record.cut(one.machine, one.began, one.last, "unplug"):
                yield f"attempt {one.attempt} wrote after a newer one had: {one.events[-1]}"
            for attempt, began in first.items():
                excused = self.record.cut(one.machine, one.began, one.last, "unplug")
                if attempt > one.attempt and one.last > began and not excused:
                    yield (
                        f"rank {one.rank} of attempt {one.attempt} was alive on {one.machine} at {one.last:.2f}, "
                        f"attempt {attempt} began at {began:.2f}"
                    )

    def vanished(self, claims: list[Row], told: list[Diary]) -> Iterator[str]:
        """What ran goes on untouched: whoever ended without a word was on a machine that was cut."""
        for one in told:
            if one.kinds & {"done", "fail", "stopped", "term"}:
                continue
            shim = bool(claims) and (claims[0]["run_uid"], one.attempt) in self.record.shims
            if not shim and not self.record.cut(one.machine, one.began - 1, one.last + 60):
                yield f"rank {one.rank} of attempt {one.attempt} vanished from {one.machine} at {one.last:.2f}"
        for attempt in {one.attempt for one in told if "term" in one.kinds}:
            row = next((row for row in claims if row["attempt"] == attempt), None)
            if row is None or (row["intent"] is None and row["failure"] is None):
                yield f"attempt {attempt} was told to stop without a reason on record: {row}"

    def timed(self, claims: list[Row]) -> Iterator[str]:
        """A backoff ends at its deadline: never before, and not much later unless the control plane was away."""
        charges = 0
        for row, after in itertools.pairwise(claims):
            charges += bool(row["charged"])
            if not row["charged"]:
                continue
            pause = min(BACKOFF_FIRST * 2.0 ** (charges - 1), BACKOFF_MOST)
            waited = after["entered_at"] - row["released_at"]
            if waited < pause - 1.0 and not self.restarted(claims):
                yield f"waited {waited:.1f} s of {pause:.0f} s after attempt {row['attempt']}"
            if waited > pause + LATE_SECONDS + self.away(row["released_at"], after["entered_at"]) and not self.held(
                row
            ):
                yield f"waited {waited:.1f} s instead of {pause:.0f} s after attempt {row['attempt']}"

    def restarted(self, claims: list[Row]) -> bool:
        """Whether a person ended a backoff early: by a restart, or by releasing a run that was held in it."""
        name = self.now.names[claims[0]["run_uid"]]
        return bool({("restart", name), ("hold", name)} & set(self.record.ordered))

    def held(self, row: Row) -> bool:
        return ("hold", self.now.names[row["run_uid"]]) in self.record.ordered

    def away(self, since: float, until: float) -> float:
        """For how long the control plane was away between two moments."""
        total = 0.0
        for one in self.record.outages:
            ended = until if one.ended is None else one.ended
            total += max(0.0, min(until, ended) - max(since, one.began))
        return total

    def leaked(self) -> Iterator[str]:
        """Nothing is held any more, and nothing waits to be said."""
        for row in self.now.claims:
            if row["state"] != "Released":
                yield f"a claim is left: {row}"
        for row in self.now.allocations:
            if row["live"]:
                yield f"an allocation is left: {row}"
        for row in self.now.machines:
            if row["used_gpus"] or row["used_memory"] or abs(row["used_cpu"]) > 1e-6 or row["state"] != "Ready":
                yield f"a machine is not free: {row}"
        for row in self.now.workers:
            if not row["gone"]:
                yield f"a worker is not gone: {row}"
        for name, rows in (("reservation", self.now.reservations), ("message", self.now.unsent)):
            for row in rows:
                yield f"a {name} is left: {row}"
