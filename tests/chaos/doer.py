"""Carries a schedule out on a real stack, and writes down what it really did and when."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import psutil

from astraeus.agent import control
from astraeus.model.errors import AstraeusError
from tests.chaos.schedule import Deed, Job, Schedule
from tests.support.postgres import PostgresServer
from tests.support.stack import DevStack

MEMBER = Path(__file__).with_name("member.py")
GRACE = 2
RECOVERY_SECONDS = 15.0
PATIENCE_SECONDS = 90.0
OPEN_AT_ONCE = 40
"""Users wait while so many of their runs are open: a queue that grew with the hour would outlast any convergence."""

ORDERS_OF_MACHINES = ("drain", "return")
OPEN = [("state", state) for state in ("Pending", "Starting", "Running", "Stopping")]


@dataclass
class Outage:
    """When something was done, and until when its effect lasted."""

    what: str
    target: str
    began: float
    ended: float | None = None


@dataclass
class Record:
    """What was done: the ground truth of the judge."""

    uids: dict[str, str] = field(default_factory=dict)
    outages: list[Outage] = field(default_factory=list)
    cuts: dict[str, list[Outage]] = field(default_factory=dict)
    shims: set[tuple[str, int]] = field(default_factory=set)
    ordered: list[tuple[str, str]] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    kills: int = 0

    def cut(self, machine: str, since: float, until: float, *kinds: str) -> bool:
        """Whether the machine was cut in one of these ways at some time between two moments."""
        return any(
            (not kinds or one.what in kinds) and one.began <= until and (one.ended is None or one.ended >= since)
            for one in self.cuts.get(machine, [])
        )


def spec_of(job: Job, folder: Path) -> dict[str, Any]:
    """The specification of a job."""
    resources = {"gpu_requests": {"count": job.machines * job.gpus}, "machines": job.machines}
    task: dict[str, Any] = {
        "command": sys.executable,
        "args": ["-I", "-S", str(MEMBER), str(folder), json.dumps(job.plan)],
        "stop_grace_seconds": 1 if job.deaf else GRACE,
        "requested_resources": resources,
    }
    if job.mounts:
        task["drives"] = [{"name": "checkpoints", "mount_path": "/chaos/ckpt"}]
        task["configs"] = [{"mounts": ["/chaos/config"], "value": job.name}]
    spec = {"priority": job.priority, "restart_budget": job.budget, "task_template": task}
    return {"metadata": {"name": job.name}, "spec": spec}


class Doer:
    """A thread each for what users do and for machines that are cut; the control plane's faults on the caller's."""

    def __init__(self, stack: DevStack, plan: Schedule, folder: Path, postgres: PostgresServer | None) -> None:
        self.stack, self.plan, self.folder, self.postgres = stack, plan, folder, postgres
        self.record = Record()
        self.began = time.monotonic()
        self.access = stack.facts
        self.doubles: list[subprocess.Popen[bytes]] = []

    def run(self) -> None:
        """Do all of it; returns when the last deed is done and everything is back."""
        self.began = time.monotonic()
        threads = [
            threading.Thread(target=self._users, daemon=True),
            threading.Thread(target=self._follow, args=(self.cut, self.plan.cuts), daemon=True),
        ]
        for thread in threads:
            thread.start()
        # On the caller's thread, since a database server ends with the thread that started it.
        self._follow(self.fault, self.plan.faults)
        for thread in threads:
            thread.join()
        self.restore()

    def _follow(self, do: Callable[[Any], None], deeds: Iterable[Any]) -> None:
        """One deed after the other; those for which the time did not suffice are left out."""
        for deed in deeds:
            time.sleep(max(0.0, self.began + deed.at - time.monotonic()))
            if self._over():
                return
            self._try(do, deed)

    def _try(self, do: Callable[[Any], None], deed: Any) -> None:
        try:
            do(deed)
        except Exception as fault:
            self.record.wrong.append(f"{deed} could not be done: {fault!r}")

    def _users(self) -> None:
        """Submissions and orders on one line of time, which stands still while too many runs are open."""
        stood = 0.0
        for deed in sorted([*self.plan.jobs, *self.plan.orders], key=lambda deed: deed.at):
            time.sleep(max(0.0, self.began + stood + deed.at - time.monotonic()))
            stands = time.monotonic()
            while isinstance(deed, Job) and not self._over() and self._open() >= OPEN_AT_ONCE:
                time.sleep(0.5)
            stood += time.monotonic() - stands
            if self._over():
                return
            self._try(self.submit if isinstance(deed, Job) else self.order, deed)

    def _over(self) -> bool:
        return time.monotonic() > self.began + self.plan.seconds

    def _open(self) -> int:
        """How many runs are open, counted up to the most that may be."""
        answer = self._insist("GET", "/runs", params=[*OPEN, ("limit", OPEN_AT_ONCE)])
        return 0 if answer is None else len(answer.json()["items"])

    def restore(self) -> None:
        """Everything that may still be away comes back."""
        for name in sorted({deed.target for deed in self.plan.cuts}):
            self._switch(name, "on")
            self._switch(name, "plug")
        for name in sorted({deed.target for deed in self.plan.orders if deed.what in ORDERS_OF_MACHINES}):
            self._insist("POST", f"/machines/{name}:return")
        for job in self.plan.jobs:
            if ("hold", job.name) in self.record.ordered:
                self._insist("POST", f"/runs/{job.name}:release")

    def submit(self, job: Job) -> None:
        """Submit until it is accepted, under one key: an answer may be lost, the run may not."""
        body = spec_of(job, self.folder)
        answer = self._insist("POST", "/runs", json=body, headers={"Idempotency-Key": job.name})
        if answer is None or answer.status_code not in (200, 201):
            raise RuntimeError("no answer" if answer is None else answer.text)
        self.record.uids[job.name] = answer.json()["metadata"]["uid"]

    def order(self, deed: Deed) -> None:
        """Order a run or a machine; a run that is final or not there yet has nothing to be ordered."""
        if deed.what in ORDERS_OF_MACHINES:
            self._insist("POST", f"/machines/{deed.target}:{deed.what}", json={"reason": "chaos"})
            return
        # An order whose answer was lost is refused when it is given again: it was done all the same.
        self.record.ordered.append((deed.what, deed.target))
        if deed.what == "delete":
            self._insist("DELETE", f"/runs/{deed.target}")
        else:
            self._insist("POST", f"/runs/{deed.target}:{deed.what}")

    def _insist(self, method: str, path: str, **more: Any) -> httpx.Response | None:
        ends = time.monotonic() + PATIENCE_SECONDS
        headers = {"authorization": f"Bearer {self.access['token']}", **more.pop("headers", {})}
        while time.monotonic() < ends:
            try:
                answer = httpx.request(method, self.access["api"] + path, headers=headers, timeout=5, **more)
            except httpx.HTTPError:
                time.sleep(0.2)
                continue
            if answer.status_code < 500:
                return answer
            time.sleep(0.2)
        self.record.wrong.append(f"{method} {path} found no answer within {PATIENCE_SECONDS:.0f} s")
        return None

    def cut(self, deed: Deed) -> None:
        """Cut a machine's power or network, or give it back."""
        self._switch(deed.target, deed.what)

    def _switch(self, machine: str, what: str) -> None:
        known = self.record.cuts.setdefault(machine, [])
        outage = Outage(what, machine, time.time())
        if what in ("off", "unplug"):
            known.append(outage)
        order: dict[str, Any] = {"machine": machine}
        order |= {"power": what} if what in ("on", "off") else {"unplug": what == "unplug"}
        ends = time.monotonic() + PATIENCE_SECONDS
        while time.monotonic() < ends:
            try:
                control.ask(self.stack.directory / "agent", order, timeout=40)
                break
            except (AstraeusError, OSError, ValueError):
                time.sleep(0.1)
        else:
            self.record.wrong.append(f"{machine}: the agent did not obey {what} within {PATIENCE_SECONDS:.0f} s")
        if what in ("on", "plug"):
            for one in known:
                if one.what == {"on": "off", "plug": "unplug"}[what] and one.ended is None:
                    one.ended = time.time()

    def fault(self, deed: Deed) -> None:
        """Do something to the control plane, and wait until it has recovered unless the deed is hasty."""
        outage = Outage(deed.what, deed.target, time.time())
        self.record.outages.append(outage)
        {
            "kill": self._kill,
            "kill all": self._kill_all,
            "pause": self._pause,
            "sleep": self._pause,
            "everything": self._everything,
            "double": self._double,
            "shim": self._shim,
            "nursery": self._nursery,
            "ledger": self._ledger,
        }[deed.what](deed)
        if not deed.hasty:
            self._recovered()
        outage.ended = time.time() + (RECOVERY_SECONDS if deed.hasty else 0.0)

    def _parts(self, only: str = "") -> list[psutil.Process]:
        """The live processes of parts that are certainly this stack's."""
        found = []
        for name, pid in self.stack.facts["pids"].items():
            with suppress(psutil.Error):
                if pid and (not only or name == only):
                    process = psutil.Process(pid)
                    if any(str(self.stack.directory) in word for word in process.environ().values()):
                        found.append(process)
        return found

    def _kill(self, deed: Deed) -> None:
        for process in self._parts(deed.target):
            self.record.kills += 1
            process.kill()

    def _kill_all(self, deed: Deed) -> None:
        self._kill(Deed(deed.at, deed.what))

    def _shim(self, deed: Deed) -> None:
        """One worker's keeper is killed: the worker dies with it, which is a failure of its attempt."""
        found = list(self._shims())
        if found:
            uid, attempt, process = found[int(float(deed.target) * len(found))]
            self.record.shims.add((uid, attempt))
            self.record.kills += 1
            # Its worker may have ended since it was found.
            with suppress(psutil.NoSuchProcess):
                process.kill()

    def _shims(self) -> Iterator[tuple[str, int, psutil.Process]]:
        """Run, attempt and process of every live shim, in the order of their directories."""
        for path in sorted((self.stack.directory / "agent").glob("machines/*/workers/*/*/*/started")):
            with suppress(OSError, ValueError, psutil.Error):
                process = psutil.Process(int(path.read_text().split()[0]))
                if process.cwd() == str(path.parent):
                    yield path.parts[-4], int(path.parts[-3]), process

    def _nursery(self, _: Deed) -> None:
        """The process from which shims are forked is killed; the shims stay."""
        for agent in self._parts("agent"):
            with suppress(psutil.Error):
                for child in agent.children():
                    if any(word.endswith("nursery.py") for word in child.cmdline()):
                        self.record.kills += 1
                        child.kill()

    def _pause(self, deed: Deed) -> None:
        parts = self._parts(deed.target)
        for process in parts:
            with suppress(psutil.Error):
                process.suspend()
        time.sleep(deed.seconds)
        for process in parts:
            with suppress(psutil.Error):
                process.resume()

    def _everything(self, deed: Deed) -> None:
        """The whole computer's control plane dies, and is started again later."""
        assert self.stack.process is not None
        parts = self._parts()
        self.stack.process.kill()
        for process in parts:
            self.record.kills += 1
            with suppress(psutil.Error):
                process.kill()
        self.record.kills += 1
        self._end_doubles()
        psutil.wait_procs(parts, 10)
        self.stack.process.wait()
        time.sleep(deed.seconds)
        self.stack.dev_json.unlink(missing_ok=True)
        self.stack.start()
        self.access = self.stack.facts

    def _double(self, deed: Deed) -> None:
        """A second worker process beside the first, killed later; a hasty one is suspended in between."""
        first = next(iter(self._parts("worker")), None)
        if first is None:
            return
        try:
            around = first.environ()
        except psutil.NoSuchProcess:
            return
        with (self.folder.parent / "second-worker.log").open("ab") as log:
            second = subprocess.Popen([sys.executable, "-m", "worker.main"], env=around, stdout=log, stderr=log)
        self.doubles.append(second)
        time.sleep(deed.seconds)
        if deed.hasty:
            second.send_signal(signal.SIGSTOP)
            time.sleep(20.0)
            second.send_signal(signal.SIGCONT)
            time.sleep(3.0)
        self._end_doubles()
        self.record.kills += 1

    def _end_doubles(self) -> None:
        for process in self.doubles:
            process.kill()
            process.wait()
        self.doubles.clear()

    def _ledger(self, deed: Deed) -> None:
        """The database server dies and is started again."""
        if self.postgres is not None:
            self.postgres.stop(immediately=True)
            self.record.kills += 1
            time.sleep(deed.seconds)
            self.postgres.start()

    def _recovered(self) -> None:
        ends = time.monotonic() + 40
        while time.monotonic() < ends:
            with suppress(httpx.HTTPError, OSError, ValueError, KeyError):
                pids = self.stack.facts["pids"].values()
                ready = httpx.get(f"{self.access['console']}/readyz", timeout=2).status_code == 200
                if ready and all(pid and os.path.exists(f"/proc/{pid}") for pid in pids):
                    return
            time.sleep(0.1)
        self.record.wrong.append("the control plane was not ready 40 s after a fault")
