"""Agents of a test: what they have live, what they acted on, and what they report."""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import event, select, update
from support.scene import CLUSTER, Scene

from astraeus.ledger import gangs, reports
from astraeus.ledger.core import Ledger, Tx
from astraeus.ledger.desired import desired
from astraeus.ledger.runs import RunRow
from astraeus.ledger.tables import claim, machine, worker
from astraeus.model.agent import DesiredWorker, MachineReport, SyncRequest, WorkerReport
from astraeus.model.machine import MachineFacts
from astraeus.model.messages import AttemptRef, Situation

WHOLE = 0xFF


class FakeAgent:
    """One agent for some machines. `live` holds the keys of its processes, by machine."""

    def __init__(self, ledger: Ledger, machines: Sequence[str], session: str = "s", boot_id: str = "boot") -> None:
        self.ledger = ledger
        self.session = session
        self.boot_id = boot_id
        self.seen: str | None = None
        self.live: dict[str, set[str]] = {name: set() for name in machines}
        self.facts: dict[str, MachineFacts] = {}
        self.workers: list[DesiredWorker] = []
        self.need_facts: list[str] = []

    async def sync(self, *told: WorkerReport) -> Tx:
        """Report, without acting on anything new; answers the transaction."""
        request = SyncRequest(
            session=self.session,
            machines=[
                MachineReport(name=name, boot_id=self.boot_id, live=sorted(live), facts=self.facts.get(name))
                for name, live in self.live.items()
            ],
            workers=list(told),
            seen=self.seen,
        )
        async with self.ledger.transaction() as tx:
            self.need_facts = await reports.sync(tx, CLUSTER, request)
        return tx

    async def read(self) -> None:
        """Act on the desired state as it is now."""
        async with self.ledger.reading() as tx:
            self.seen, self.workers = await desired(tx, CLUSTER, list(self.live))


class GangScene(Scene):
    """A scene with gangs under way."""

    async def gang(self, name: str, machines: Sequence[str], **parts: Any) -> RunRow:
        """A placed run, its workers asked for; one worker on the whole of each machine."""
        row = await self.placed(name, [(machine, WHOLE) for machine in machines], **parts)
        await self.start_workers(row)
        return row

    async def running(self, name: str, machines: Sequence[str]) -> tuple[RunRow, FakeAgent]:
        """A gang whose gates are open, and the agent of its machines, which has read that."""
        row = await self.gang(name, machines)
        agent = FakeAgent(self.ledger, machines)
        await agent.read()
        for rank, place in enumerate(machines):
            agent.live[place].add(f"{row.uid}/1/{rank}")
        await agent.sync(*(report(row, rank, place, "arrived") for rank, place in enumerate(machines)))
        await self.open_gates(row)
        await agent.read()
        await agent.sync(*(report(row, rank, place, "running") for rank, place in enumerate(machines)))
        return row, agent

    async def start_workers(self, row: RunRow) -> Tx:
        async with self.ledger.transaction() as tx:
            await gangs.start(tx, ref(row))
        return tx

    async def open_gates(self, row: RunRow, *budget: Any) -> bool:
        async with self.ledger.transaction() as tx:
            return await gangs.open_gates(tx, ref(row), *budget)

    async def stop(self, row: RunRow, cause: str | None = "cancelled", who: str = "ada") -> Tx:
        async with self.ledger.transaction() as tx:
            await gangs.stop(tx, ref(row), cause, who, None)
        return tx

    async def situation(self, row: RunRow) -> Situation:
        async with self.ledger.reading() as tx:
            return await gangs.situation(tx, ref(row))

    async def workers(self, row: RunRow) -> list[Any]:
        return await self.rows(select(worker).where(worker.c.run_uid == row.uid).order_by(worker.c.rank))

    async def kinds(self, row: RunRow) -> list[str]:
        """The kinds of messages that the run was sent, after its placing."""
        return [message.kind for message in await self.messages(row) if message.kind != "placed"]

    async def silent(self, seconds: float, *names: str) -> None:
        """Let machines have been silent for so long."""
        async with self.ledger.transaction() as tx:
            await tx.conn.execute(
                update(machine).where(machine.c.name.in_(names)).values(heard_at=tx.now - seconds, session="s")
            )

    async def states(self) -> dict[str, str]:
        """The state of each machine."""
        return {row.name: row.state for row in await self.rows(select(machine))}

    async def release_quietly(self, row: RunRow) -> None:
        """Take a claim away without closing its rows, as no function does."""
        await self.write(update(claim).where(claim.c.run_uid == row.uid).values(state="Released"))


def ref(row: RunRow, attempt: int = 1) -> AttemptRef:
    """An attempt of the run."""
    return AttemptRef(run_uid=row.uid, attempt=attempt)


def report(row: RunRow, rank: int, place: str, state: str, code: int | None = None, **more: Any) -> WorkerReport:
    """What an agent says of one worker."""
    words: dict[str, Any] = {"run_uid": row.uid, "attempt": 1, "rank": rank, "machine": place, "state": state}
    return WorkerReport.model_validate(words | {"exit_code": code} | more)


class Statements:
    """Counts the statements that a ledger executes."""

    def __init__(self, ledger: Ledger) -> None:
        self.said: list[str] = []
        event.listen(ledger.engine.sync_engine, "before_cursor_execute", self._note)

    def _note(self, *args: Any) -> None:
        self.said.append(str(args[2]))

    def take(self) -> list[str]:
        """Those since the last call."""
        said, self.said = self.said, []
        return said
