"""A small world in a ledger: a cluster, a workspace, machines, runs; and the rules that always hold in it."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import insert, select

from astraeus.ledger import claims, commit, orders, runs, tenancy
from astraeus.ledger.core import Ledger
from astraeus.ledger.runs import RunRow
from astraeus.ledger.snapshot import load_snapshot
from astraeus.ledger.tables import allocation, claim, event, machine, nic, outbox, run
from astraeus.model.faults import parse_submission
from astraeus.model.messages import AttemptRef
from astraeus.model.network import NetworkPlace, Rung
from astraeus.placement.types import Ask, Grant, Member, Plan, Snapshot, Wait

CLUSTER = "lab-a"
LEAF_PLACE = NetworkPlace(network="leaf:leaf-0", words="one leaf group")
WHOLE = 0xFF


def body(name: str, labels: dict[str, str] | None = None, task: dict[str, Any] | None = None, **spec: Any) -> Any:
    """A submission as a user writes it."""
    return {
        "metadata": {"name": name, "labels": labels or {}},
        "spec": {**spec, "task_template": {"command": "true", **(task or {})}},
    }


def grant(ask: Ask, places: Sequence[tuple[str, int]]) -> Grant:
    """A gang of one worker for each `(machine, mask)`."""
    members = tuple(Member(rank, name, mask, 1.5, 1024, ("mlx5_0:1",)) for rank, (name, mask) in enumerate(places))
    return Grant(ask.claim, ask.run_uid, ask.attempt, Rung.LEAF, LEAF_PLACE, members)


def wait(ask: Ask, reason: str) -> Wait:
    """Why a claim waits."""
    return Wait(ask.claim, ask.run_uid, reason)


@dataclass
class Scene:
    """The world of a test."""

    ledger: Ledger
    workspace: tenancy.Workspace

    @classmethod
    async def start(cls, ledger: Ledger, machines: int = 2, **changes: Any) -> "Scene":
        """A workspace acme/vision on a cluster of machines m-0, m-1, … with 8 GPUs each."""
        async with ledger.transaction() as tx:
            await tenancy.ensure_cluster(tx, CLUSTER)
            workspace = await tenancy.ensure_workspace(tx, "acme", "vision", CLUSTER)
        scene = cls(ledger, workspace)
        if machines:
            await scene.add_machines([f"m-{i}" for i in range(machines)], **changes)
        return scene

    async def add_machines(self, names: Iterable[str], **changes: Any) -> None:
        """Machines that are Ready, with one InfiniBand port each."""
        async with self.ledger.transaction() as tx:
            rows = [machine_row(name, tx.now, **changes) for name in names]
            await tx.conn.execute(insert(machine), rows)
            port = {"cluster": CLUSTER, "device": "mlx5_0", "port": 1, "rail": 0, "gbps": 400.0, "link": "infiniband"}
            await tx.conn.execute(insert(nic), [{**port, "machine": row["name"], "up": True} for row in rows])

    async def submit(self, name: str, key: str | None = None, **parts: Any) -> RunRow:
        """Submit a run."""
        raw = body(name, **parts)
        async with self.ledger.transaction() as tx:
            row, _ = await runs.submit(tx, self.workspace, CLUSTER, parse_submission(raw), raw, "ada", key)
        return row

    async def enter(self, row: RunRow, attempt: int = 1, patience: float = 0, headline: str | None = None) -> bool:
        """Enter a claim; whether it is granted already."""
        async with self.ledger.transaction() as tx:
            return await claims.enter(tx, row.uid, attempt, CLUSTER, patience, ["m-9"], headline)

    async def waiting(self, name: str, **parts: Any) -> RunRow:
        """A run whose first claim waits."""
        row = await self.submit(name, **parts)
        await self.enter(row)
        return row

    async def placed(self, name: str, places: Sequence[tuple[str, int]], **parts: Any) -> RunRow:
        """A run whose first claim was granted these places."""
        row = await self.waiting(name, **parts)
        ask = next(ask for ask in (await self.snapshot()).asks if ask.run_uid == row.uid)
        assert await self.commit(Plan(grants=(grant(ask, places),)))
        return row

    async def snapshot(self) -> Snapshot:
        """What a pass sees."""
        async with self.ledger.reading() as tx:
            return await load_snapshot(tx, CLUSTER)

    async def term(self) -> int:
        """A new term."""
        async with self.ledger.transaction() as tx:
            return await claims.take_pass_term(tx, CLUSTER)

    async def commit(self, plan: Plan, term: int | None = None) -> list[Grant]:
        """Commit a plan, in a term of its own unless one is given."""
        term = await self.term() if term is None else term
        async with self.ledger.transaction() as tx:
            return await commit.commit_plan(tx, CLUSTER, term, plan)

    async def release(self, row: RunRow, attempt: int = 1, state: str = "Pending", **changes: Any) -> bool:
        """End an attempt."""
        ending: dict[str, Any] = {
            "cause": "exited",
            "detail": f"{row.name}-0 exited with code 1",
            "charged": True,
            "reason": f"Gang restart: {row.name}-0 exited with code 1",
            "budget_left": 9,
        }
        async with self.ledger.transaction() as tx:
            ref = AttemptRef(run_uid=row.uid, attempt=attempt)
            return await claims.release(tx, ref, state=state, **(ending | changes))

    async def order(self, row: RunRow, kind: str, why: str | None = None) -> list[int]:
        """Give an order; answers the ids of the messages written."""
        async with self.ledger.transaction() as tx:
            await orders.order(tx, row, kind, "grace", why)
        return tx.outbox

    async def run(self, row: RunRow) -> RunRow:
        """The run as it is now."""
        async with self.ledger.reading() as tx:
            found = await runs.by_uid(tx, row.uid)
        assert found is not None
        return found

    async def claim(self, row: RunRow, attempt: int = 1) -> Any:
        """The row of an attempt's claim."""
        query = select(claim).where(claim.c.run_uid == row.uid, claim.c.attempt == attempt)
        return (await self.rows(query))[0]

    async def used(self) -> dict[str, int]:
        """The used GPUs of each machine that has any."""
        return {row.name: row.used_gpus for row in await self.rows(select(machine)) if row.used_gpus}

    async def messages(self, row: RunRow) -> list[Any]:
        """The run's messages, in order."""
        return await self.rows(select(outbox).where(outbox.c.run_uid == row.uid).order_by(outbox.c.id))

    async def events(self, row: RunRow) -> list[tuple[str, str, str]]:
        """Kind, actor and message of the run's events, in order."""
        found = await self.rows(select(event).where(event.c.run_uid == row.uid).order_by(event.c.id))
        return [(row.kind, row.actor, row.message) for row in found]

    async def rows(self, query: Any) -> list[Any]:
        """The rows of a query."""
        async with self.ledger.reading() as tx:
            return list(await tx.conn.execute(query))

    async def write(self, statement: Any) -> None:
        """Write past the functions under test."""
        async with self.ledger.transaction() as tx:
            await tx.conn.execute(statement)

    async def check(self) -> None:
        """No GPU is held twice, machines know exactly what is held, and only granted claims hold, all or none."""
        async with self.ledger.reading() as tx:
            machines = (await tx.conn.execute(select(machine))).all()
            held = (await tx.conn.execute(select(allocation).where(allocation.c.live))).all()
            open_claims = (await tx.conn.execute(select(claim).where(claim.c.state != "Released"))).all()
            final = {row.uid for row in await tx.conn.execute(select(run).where(run.c.final))}
        union: dict[str, int] = defaultdict(int)
        cpu: dict[str, float] = defaultdict(float)
        members: dict[int, int] = defaultdict(int)
        for row in held:
            assert union[row.machine] & row.gpu_mask == 0, f"a GPU of {row.machine} is held twice"
            union[row.machine] |= row.gpu_mask
            cpu[row.machine] += row.cpu_cores
            members[row.claim] += 1
        assert {row.name: row.used_gpus for row in machines} == {row.name: union[row.name] for row in machines}
        assert all(abs(row.used_cpu - cpu[row.name]) < 1e-6 for row in machines)
        granted = {row.id: row for row in open_claims if row.state == "Granted"}
        assert members.keys() <= granted.keys()
        for id, row in granted.items():
            assert members[id] == row.size or (members[id] == 0 and (row.intent or row.failure))
        assert len({row.run_uid for row in open_claims}) == len(open_claims), "a run has two live claims"
        assert not final & {row.run_uid for row in open_claims if row.state == "Granted"}


def machine_row(name: str, now: float, **changes: Any) -> dict[str, Any]:
    """A machine as it is stored."""
    labels = {"topology.astraeus.io/leaf": "leaf-0", "zone": "a"}
    facts = {
        "name": name,
        "boot_id": "boot",
        "address": f"{name}.test",
        "gpu_model": "H100",
        "gpus": 8,
        "cpu_cores": 96.0,
        "memory_bytes": 2**40,
        "labels": labels,
    }
    known = {key: facts[key] for key in ("name", "boot_id", "address", "gpus", "cpu_cores", "memory_bytes")}
    row = {"cluster": CLUSTER, "state": "Ready", "state_since": now, "facts": facts, "session": "s", "heard_at": now}
    return {**row, **known, **changes}
