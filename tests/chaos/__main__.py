"""Kills and cuts a real stack at random from a seed while many gangs run, and checks from outside that none is hurt.

`python -m tests.chaos --seed 7 --minutes 3 [--postgresql]`; a seed always gives the same schedule. Writes
build/chaos.json and ends with 1 when anything was violated.
"""

import argparse
import asyncio
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import psutil
from temporalio.client import Client

from tests.chaos import picture
from tests.chaos.doer import Doer
from tests.chaos.judge import Judge
from tests.chaos.observer import Observer, processes
from tests.chaos.picture import Picture
from tests.chaos.schedule import Schedule, schedule
from tests.support.postgres import PostgresServer, postgres_server
from tests.support.stack import DevStack

REPORT = Path(__file__).parents[2] / "build" / "chaos.json"
CONVERGENCE_SECONDS = 300.0
DATABASE = "chaos"
VISIBILITY_SECONDS = 20.0
OPEN_RUNS = "WorkflowType = 'RunWorkflow' AND ExecutionStatus = 'Running'"


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--seed", type=int, default=None, help="default: a new one, which is printed")
    parser.add_argument("--minutes", type=float, default=3.0, help="how long gangs are submitted and parts killed")
    parser.add_argument("--postgresql", action="store_true", help="the ledger on a real PostgreSQL server")
    parser.add_argument("--show", action="store_true", help="print the schedule and do nothing")
    parser.add_argument("--keep", action="store_true", help="keep the stack's directory")
    parser.add_argument("--report", type=Path, default=REPORT, help="default: build/chaos.json")
    return parser.parse_args()


@contextmanager
def ledger(home: Path, postgresql: bool) -> Iterator[tuple[str, PostgresServer | None]]:
    """The ledger's URL, and its server if it has one."""
    if not postgresql:
        yield f"sqlite+aiosqlite:///{home / 'stack' / 'ledger.db'}", None
        return
    with postgres_server() as server:
        url = server.create(DATABASE)
        server.keep_commits(DATABASE)
        yield url, server


def show(plan: Schedule) -> None:
    """The schedule as a list in the order of time."""
    deeds = [(one.at, str(one)) for part in (plan.jobs, plan.orders, plan.faults, plan.cuts) for one in part]
    for at, words in sorted(deeds):
        print(f"{at:7.1f} {words}")


def converge(observer: Observer, url: str, names: int) -> Picture:
    """Wait until every run is final and nothing is held, at most the bound; answers the last picture."""
    ends = time.monotonic() + CONVERGENCE_SECONDS
    while True:
        now = picture.take(url)
        waiting = [row for row in now.runs if not row["final"]]
        held = [row for row in now.claims if row["state"] != "Released"]
        away = [row for row in now.machines if row["state"] != "Ready"]
        settled = not (waiting or held or away or now.reservations or now.unsent) and len(now.runs) >= names
        if settled and all(row["gone"] for row in now.workers):
            return now
        if time.monotonic() > ends:
            words = "; ".join(f"{row['name']}: {row['state']}, {row['reason']}" for row in waiting[:10])
            observer.say("no convergence", f"within {CONVERGENCE_SECONDS:.0f} s: {len(waiting)} runs open: {words}")
            return now
        time.sleep(0.5)


def left_over(stack: DevStack) -> Iterator[str]:
    """Processes and mounts that outlived their runs."""
    for process in processes(stack.directory):
        yield f"a process is left: {process}"
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        if str(stack.directory) in line:
            yield f"a mount is left: {line}"


async def open_workflows(address: str) -> list[str]:
    """Runs' workflows that go on although every run is final; visibility may lag, so it is looked for a while."""
    client = await Client.connect(address)
    ends = time.monotonic() + VISIBILITY_SECONDS
    while True:
        found = [one.id async for one in client.list_workflows(OPEN_RUNS)]
        if not found or time.monotonic() > ends:
            return [f"a workflow is left: {id}" for id in found]
        await asyncio.sleep(0.5)


def left_after_stop(stack: DevStack) -> Iterator[str]:
    """What the stopped stack left; it is ended here."""
    left = stack.processes()
    for process in left:
        with_words = " ".join(process.cmdline()[:6])
        yield f"after the stop a process is left: {process.pid} {with_words}"
        process.kill()
    psutil.wait_procs(left, 5)


def chaos(plan: Schedule, home: Path, postgresql: bool) -> tuple[dict[str, int], list[str], dict[str, int]]:
    """Carry out a schedule; answers the counts, the violations, and how often was looked."""
    folder = home / "members"
    folder.mkdir()
    with ExitStack() as resources:
        url, server = resources.enter_context(ledger(home, postgresql))
        stack = DevStack(home / "stack", environment={"ASTRAEUS_LEDGER_URL": url} if postgresql else None)
        stack.start()
        doer = Doer(stack, plan, folder, server)
        observer = Observer(doer, url)
        try:
            observer.start()
            doer.run()
            now = converge(observer, url, len(doer.record.uids))
            observer.stop()
            found = [*observer.violations.values(), *Judge(plan, doer.record, now, folder).violations()]
            found += left_over(stack)
            found += asyncio.run(open_workflows(stack.facts["temporal"]))
        finally:
            stack.stop(signal.SIGTERM)
            leaks = list(left_after_stop(stack))
    preempted = [row for row in now.claims if row["cause"] == "preempted"]
    counts = {
        "kills": doer.record.kills,
        "runs": len(doer.record.uids),
        "preemptions": len(preempted),
        "preemptions_charged": sum(bool(row["charged"]) for row in preempted),
        "machines_lost": sum(row["cause"] == "machine_lost" for row in now.claims),
        "failures": sum(row["cause"] == "exited" for row in now.claims),
    }
    return counts, found + leaks, observer.looks


def main() -> int:
    """Entry point; answers the exit code."""
    options = arguments()
    seed = random.SystemRandom().randrange(1_000_000) if options.seed is None else options.seed
    plan = schedule(seed, options.minutes * 60, options.postgresql)
    if options.show:
        show(plan)
        return 0
    again = f"--seed {seed} --minutes {options.minutes:g}" + (" --postgresql" if options.postgresql else "")
    print(f"chaos {again}: {len(plan.jobs)} runs, {len(plan.faults)} faults, {len(plan.cuts) // 2} cuts", flush=True)
    home = Path(tempfile.mkdtemp(prefix="astraeus-chaos-"))
    # Members run whatever the mode of the folder's parents is, but find only what they may enter.
    os.chmod(home, 0o755)
    counts, violations, looks = chaos(plan, home, options.postgresql)
    for violation in violations:
        print(f"VIOLATION {violation}", flush=True)
    report = {"seed": seed, **counts, "violations": len(violations)}
    options.report.parent.mkdir(parents=True, exist_ok=True)
    options.report.write_text(json.dumps(report, indent=2) + "\n")
    print(f"{json.dumps(report)}, looked {looks}", flush=True)
    if violations or options.keep:
        print(f"what happened is in {home}; once more: python -m tests.chaos {again}", flush=True)
    else:
        shutil.rmtree(home, ignore_errors=True)
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main())
