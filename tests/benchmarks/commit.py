"""Decision and commit of one 8-machine gang on 10,000 machines, ledger included: what `scheduling_pass` does.

A pass brings the kept snapshot up to date under the term that its process holds, plans, and commits. Before each one a
gang enters and after it an older one is released, which is not counted; the share of busy machines stays near 85 %.
"""

import asyncio
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sqlalchemy import insert, text

from astraeus.ledger import claims, commit, runs, tenancy
from astraeus.ledger.core import Ledger
from astraeus.ledger.keeper import SnapshotKeeper
from astraeus.ledger.migrate import upgrade
from astraeus.ledger.runs import RunRow
from astraeus.ledger.snapshot import load_snapshot
from astraeus.ledger.tables import machine, nic
from astraeus.model.faults import parse_submission
from astraeus.model.machine import FABRIC, LEAF, SPINE
from astraeus.model.messages import AttemptRef
from astraeus.placement.planner import Planner

sys.path.insert(0, str(Path(__file__).parents[1]))
from support.postgres import postgres_server

CLUSTER = "bench"
MACHINES, LEAF_MACHINES, SPINE_LEAVES, RAILS = 10_000, 32, 16, 8
GANG, BUSY, GANGS = 8, 0.85, 100
BATCH = 500
Row = dict[str, Any]
Stamp = tuple[float, float]


def stamp() -> Stamp:
    """The clock, and the processor time of this process."""
    return time.perf_counter(), time.process_time()


@dataclass
class Times:
    """Milliseconds of each part of every pass, by the clock and of this process's processor time."""

    parts: dict[str, list[tuple[float, float]]] = field(default_factory=dict)

    def add(self, name: str, since: Stamp) -> Stamp:
        """Note the time since `since`; answers the present."""
        now = stamp()
        self.parts.setdefault(name, []).append(((now[0] - since[0]) * 1000, (now[1] - since[1]) * 1000))
        return now

    def median(self, name: str, kind: int = 0) -> float:
        """The median of a part, in milliseconds: by the clock (0) or of the processor (1)."""
        return round(statistics.median(pair[kind] for pair in self.parts[name]), 1)


class Bench:
    """A ledger with a cluster of 10,000 machines."""

    def __init__(self, ledger: Ledger, workspace: tenancy.Workspace) -> None:
        self.ledger, self.workspace = ledger, workspace
        self.keeper = SnapshotKeeper(CLUSTER)
        self.planner = Planner()
        self.term = 0
        self.times = Times()
        self.live: list[RunRow] = []
        self.count = 0

    @classmethod
    async def start(cls, ledger: Ledger) -> "Bench":
        """The cluster, filled."""
        await upgrade(ledger)
        async with ledger.transaction() as tx:
            await tenancy.ensure_cluster(tx, CLUSTER)
            workspace = await tenancy.ensure_workspace(tx, "acme", "bench", CLUSTER)
            rows = [_machine(i, tx.now) for i in range(MACHINES)]
            for i in range(0, MACHINES, BATCH):
                await tx.conn.execute(insert(machine), rows[i : i + BATCH])
                ports = [port for row in rows[i : i + BATCH] for port in _ports(row["name"])]
                await tx.conn.execute(insert(nic), ports)
            bench = cls(ledger, workspace)
            bench.term = await claims.take_pass_term(tx, CLUSTER)
        while len(bench.live) * GANG < BUSY * MACHINES:
            for _ in range(min(GANGS, -(-int(BUSY * MACHINES) // GANG) - len(bench.live))):
                await bench.enter()
            await bench.decide()
        if ledger.dialect == "postgresql":
            async with ledger.transaction() as tx:
                await tx.conn.execute(text("ANALYZE"))
        bench.times = Times()
        return bench

    async def enter(self) -> None:
        """One more gang waits."""
        self.count += 1
        resources = {"gpu_requests": {"count": 8 * GANG}, "machines": GANG, "topology": {"keep_within": "leaf"}}
        raw = {
            "metadata": {"name": f"gang-{self.count}"},
            "spec": {"task_template": {"command": "true", "requested_resources": resources}},
        }
        async with self.ledger.transaction() as tx:
            row, _ = await runs.submit(tx, self.workspace, CLUSTER, parse_submission(raw), raw, "ada", None)
            await claims.enter(tx, row.uid, 1, CLUSTER, 0)
        self.live.append(row)

    async def decide(self) -> int:
        """One pass, timed in its parts."""
        began = now = stamp()
        async with self.ledger.reading() as tx:
            picture = await self.keeper.current(tx)
        now = self.times.add("snapshot", now)
        decided = self.planner.plan(picture, tx.now)
        now = self.times.add("plan", now)
        async with self.ledger.transaction() as tx:
            granted = await commit.commit_plan(tx, CLUSTER, self.term, decided)
        self.times.add("commit", now)
        self.times.add("all", began)
        return len(granted)

    async def release(self) -> None:
        """The oldest gang ends."""
        row = self.live.pop(0)
        async with self.ledger.transaction() as tx:
            ref = AttemptRef(run_uid=row.uid, attempt=1)
            ended = {"cause": "exited", "detail": "done", "charged": False, "reason": "Succeeded", "budget_left": None}
            await claims.release(tx, ref, state="Succeeded", **ended)

    async def measure(self) -> None:
        """So many gangs, one after the other, and the whole snapshot read anew beside them."""
        for i in range(GANGS):
            await self.enter()
            assert await self.decide() == 1
            await self.release()
            if i % 25 == 0:
                began = stamp()
                async with self.ledger.reading() as tx:
                    await load_snapshot(tx, CLUSTER)
                self.times.add("whole", began)


def _machine(i: int, now: float) -> Row:
    leaf = i // LEAF_MACHINES
    labels = {LEAF: f"leaf-{leaf}", SPINE: f"spine-{leaf // SPINE_LEAVES}", FABRIC: "fabric-0"}
    known = {
        "name": f"m-{i:05d}",
        "boot_id": "boot",
        "address": f"m-{i:05d}.test",
        "gpus": 8,
        "cpu_cores": 192.0,
        "memory_bytes": 2**41,
    }
    row = {"cluster": CLUSTER, "state": "Ready", "state_since": now, "session": "s", "heard_at": now}
    return {**row, **known, "facts": {**known, "gpu_model": "H100", "labels": labels}}


def _ports(name: str) -> list[Row]:
    port = {"cluster": CLUSTER, "machine": name, "port": 1, "gbps": 400.0, "link": "infiniband", "up": True}
    return [{**port, "device": f"mlx5_{rail}", "rail": rail} for rail in range(RAILS)]


@asynccontextmanager
async def opened(url: str) -> AsyncIterator[Ledger]:
    """A ledger, closed afterwards."""
    ledger = Ledger(url)
    try:
        yield ledger
    finally:
        await ledger.close()


async def _run(url: str) -> Times:
    async with opened(url) as ledger:
        bench = await Bench.start(ledger)
        await bench.measure()
        return bench.times


def _rows(times: Times, suffix: str) -> Iterator[Row]:
    parts = ", ".join(f"{name} {times.median(name, 1)}" for name in ("snapshot", "plan", "commit"))
    note = f"processor time {times.median('all', 1)}: {parts}"
    yield {"name": f"commit_ms_p50_{suffix}", "value": times.median("all"), "unit": "ms", "note": note}
    yield {"name": f"snapshot_whole_ms_p50_{suffix}", "value": times.median("whole"), "unit": "ms"}


def measure() -> Iterator[Row]:
    """Both databases, each in a directory that is gone afterwards."""
    folder = Path(tempfile.mkdtemp(prefix="astraeus-bench-"))
    try:
        yield from _rows(asyncio.run(_run(f"sqlite+aiosqlite:///{folder / 'ledger.db'}")), "sqlite")
    finally:
        shutil.rmtree(folder)
    with postgres_server() as server:
        yield from _rows(asyncio.run(_run(server.create("bench"))), "postgresql")


if __name__ == "__main__":
    for found in measure():
        print(found)
