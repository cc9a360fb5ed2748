"""Looks at the stack from outside while things happen: the process table, the ledger's rows, the API."""

import os
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from tests.chaos import picture
from tests.chaos.doer import Doer
from tests.chaos.picture import Picture

MARK = b"ASTRAEUS_WORKER_KEY="
PAUSE_SECONDS = 0.3
FENCING_SECONDS = 20.0
"""A machine that was plugged in again may take so long to end what it should not run."""


@dataclass(frozen=True)
class Process:
    """A live process of a worker: its pid and start, whose it is, on which machine, with which GPUs."""

    pid: int
    started: str
    uid: str
    attempt: int
    rank: int
    machine: str
    gpus: frozenset[str]


def processes(directory: Path) -> Iterator[Process]:
    """Every live process of a worker of this stack."""
    for pid in (int(name) for name in os.listdir("/proc") if name.isdigit()):
        with suppress(OSError, ValueError):
            environment = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
            mark = next((line[len(MARK) :].decode() for line in environment if line.startswith(MARK)), "")
            key, _, host = mark.partition("@")
            if host.startswith(str(directory)):
                stat = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
                if stat[0] in "ZX":
                    continue
                uid, attempt, rank = key.split("/")
                gpus = next((one[21:].decode() for one in environment if one.startswith(b"CUDA_VISIBLE_DEVICES=")), "")
                yield Process(
                    pid,
                    stat[19],
                    uid,
                    int(attempt),
                    int(rank),
                    Path(host).name,
                    frozenset(filter(None, gpus.split(","))),
                )


def alive(process: Process) -> bool:
    """Whether it is the same process still."""
    with suppress(OSError):
        stat = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
        return stat[0] not in "ZX" and stat[19] == process.started
    return False


class Observer:
    """Samples until stopped; `violations` are what no moment may show."""

    def __init__(self, doer: Doer, url: str) -> None:
        self.doer, self.url = doer, url
        self.violations: dict[str, str] = {}
        self.finals: dict[str, str] = {}
        self.looks = {"processes": 0, "ledger": 0, "api": 0}
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def start(self) -> None:
        """Look from now on."""
        self._thread.start()

    def stop(self) -> None:
        """Look no longer."""
        self._end.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._end.wait(PAUSE_SECONDS):
            self.look_at_processes()
            with suppress(Exception):
                self.look_at_ledger(picture.take(self.url))
                self.looks["ledger"] += 1
            with suppress(httpx.HTTPError, KeyError, ValueError):
                self.look_at_api()
                self.looks["api"] += 1

    def say(self, key: str, evidence: str) -> None:
        """Note a violation once."""
        self.violations.setdefault(key, f"{time.strftime('%H:%M:%S')} {key}: {evidence}")

    def look_at_processes(self) -> None:
        """No two attempts of one run, and no GPU in two workers, unless the older is on a machine that is cut off."""
        self.looks["processes"] += 1
        now = time.time()
        found = list(processes(self.doer.stack.directory))
        runs, seats = defaultdict(list), defaultdict(list)
        for one in found:
            runs[one.uid].append(one)
            for gpu in one.gpus:
                seats[one.machine, gpu].append(one)
        for uid, members in runs.items():
            newest = max(one.attempt for one in members)
            for old in members:
                excused = self.doer.record.cut(old.machine, now - FENCING_SECONDS, now, "unplug")
                if old.attempt < newest and not excused and alive(old):
                    new = [one for one in members if one.attempt == newest]
                    self.say(f"two attempts of {uid} at once", f"{old} is alive beside {new[:2]}")
        for seat, members in seats.items():
            keys = {(one.uid, one.attempt) for one in members if alive(one)}
            if len(keys) > 1:
                self.say(f"GPU {seat} is used twice", f"{members}")

    def look_at_ledger(self, now: Picture) -> None:
        """No GPU in two live allocations, machines know what is held, one live claim per run, final is final."""
        held: dict[str, int] = defaultdict(int)
        granted = {row["id"] for row in now.claims if row["state"] == "Granted"}
        for row in now.allocations:
            if not row["live"]:
                continue
            if held[row["machine"]] & row["gpu_mask"]:
                self.say(f"{row['machine']} is allocated twice", f"{row} overlaps {held[row['machine']]:#x}")
            held[row["machine"]] |= row["gpu_mask"]
            if row["claim"] not in granted:
                self.say(f"claim {row['claim']} holds without a grant", f"{row}")
        for row in now.machines:
            if row["used_gpus"] != held[row["name"]]:
                self.say(f"{row['name']} counts wrongly", f"{row} but {held[row['name']]:#x} is allocated")
        live = defaultdict(list)
        for row in now.claims:
            if row["state"] != "Released":
                live[row["run_uid"]].append(row["attempt"])
        for uid, attempts in live.items():
            if len(attempts) > 1:
                self.say(f"{uid} has two live claims", f"{attempts}")
        for row in now.runs:
            self._final(row["uid"], row["state"], bool(row["final"]), bool(live.get(row["uid"])), "ledger")

    def _final(self, uid: str, state: str, final: bool, holds: bool, where: str) -> None:
        before = self.finals.get(uid)
        if before and state != before:
            self.say(f"{uid} was final", f"{before} became {state} in the {where}")
        if final:
            self.finals[uid] = state
            if holds:
                self.say(f"{uid} is {state} and still has a claim", where)

    def look_at_api(self) -> None:
        """What users see never goes back from a final state either, and a preemptor that is named is more urgent."""
        access = self.doer.access
        headers = {"authorization": f"Bearer {access['token']}"}
        answer = httpx.get(f"{access['api']}/runs?limit=500", headers=headers, timeout=3)
        if answer.status_code != 200:
            return
        items: list[dict[str, Any]] = answer.json()["items"]
        priorities = {job.name: job.priority for job in self.doer.plan.jobs}
        for item in items:
            name, state, reason = item["metadata"]["name"], item["state"], item["reason"]
            final = state in ("Succeeded", "Failed", "Cancelled")
            self._final(item["metadata"]["uid"], state, final, False, "API")
            if reason.startswith("Preempted by higher-priority work ("):
                by = reason.partition("(")[2].partition(")")[0]
                if priorities.get(by, -1) <= priorities[name]:
                    self.say(f"{name} says what is not true", reason)
