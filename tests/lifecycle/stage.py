"""Runs on a real ledger with real workflows and activities, on the time-skipping server; the test is the agent."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from support.fleet import report
from support.scene import CLUSTER, Scene
from temporalio.testing import WorkflowEnvironment

from activities.delivery import Courier
from activities.gang import Gang
from activities.placing import Placing
from activities.records import Records
from astraeus.executors.agent import AgentExecutor
from astraeus.ledger import claims, leases, reports, runs, views
from astraeus.ledger.core import Tx
from astraeus.ledger.desired import desired
from astraeus.ledger.runs import RunRow
from astraeus.model.agent import DesiredWorker, WorkerReport
from astraeus.model.run import AttemptView, RunView, WorkerView


@dataclass
class Stage:
    """The agent of all machines does what the ledger asks for; a worker ends only as `exits` says, by name."""

    scene: Scene
    env: WorkflowEnvironment
    courier: Courier
    exits: dict[str, list[int]] = field(default_factory=dict)
    told: dict[str, str] = field(default_factory=dict)

    @property
    def activities(self) -> list[Callable[..., Any]]:
        placing = Placing(self.scene.ledger, self.courier)
        gang = Gang(self.scene.ledger, self.courier, AgentExecutor(self.scene.ledger))
        records = Records(self.scene.ledger, self.courier)
        return [
            *(placing.enter_claim, placing.widen_claim, placing.scheduling_pass, placing.close_attempt),
            *(gang.start_workers, gang.open_gates, gang.stop_gang, gang.disown_undead, gang.gang_situation),
            records.note_run,
        ]

    async def submit(self, name: str, machines: int, gpus: int = 8, **spec: Any) -> RunRow:
        """A run with its first claims entered and its workflows started, as the API does."""
        row = await self.enter(name, machines, gpus, **spec)
        await self.start(row)
        return row

    async def enter(self, name: str, machines: int, gpus: int = 8, **spec: Any) -> RunRow:
        """A run of which no workflow knows yet."""
        wanted = {"machines": machines, "gpu_requests": {"count": machines * gpus}}
        row = await self.scene.submit(name, task={"requested_resources": wanted, **spec.pop("task", {})}, **spec)
        await self._write(lambda tx: claims.enter_first(tx, row, 0.0))
        return row

    async def start(self, row: RunRow) -> None:
        """Start its workflows."""
        async with self.scene.ledger.reading() as tx:
            unstarted = await runs.without_workflow(tx, uid=row.uid)
        for one in unstarted:
            await self.courier.start(one, self.scene.workspace)

    async def order(self, row: RunRow, kind: str, why: str | None = None) -> None:
        await self.courier.deliver(await self.scene.order(row, kind, why))

    async def lose(self, machine: str) -> None:
        """An operator knows that a machine is dead."""

        async def declare(tx: Tx) -> None:
            assert await leases.declare_lost(tx, CLUSTER, [machine], "ada")

        await self._write(declare)

    async def _write(self, work: Callable[[Tx], Awaitable[None]]) -> None:
        async with self.scene.ledger.transaction() as tx:
            await work(tx)
        await self.courier.after(tx)

    async def obey(self) -> None:
        """Bring every worker one step nearer to what is asked for."""
        async with self.scene.ledger.reading() as tx:
            _, wanted = await desired(tx, CLUSTER, [machine.name for machine in (await self.scene.snapshot()).machines])
        for worker in wanted:
            news = self._step(worker)
            if news is not None:
                self.told[worker.key] = news.state
                await self._write(lambda tx, news=news: reports.record(tx, CLUSTER, [news]))  # type: ignore[misc]

    def _step(self, worker: DesiredWorker) -> WorkerReport | None:
        told = self.told.get(worker.key)
        if told == "exited":
            return None
        if worker.desired == "stop":
            return self._say(worker, "exited", signal=15)
        if told is None:
            return self._say(worker, "arrived")
        if worker.desired == "run" and told == "arrived":
            return self._say(worker, "running")
        if told == "running" and self.exits.get(worker.name):
            return self._say(worker, "exited", code=self.exits[worker.name].pop(0))
        return None

    def _say(self, worker: DesiredWorker, state: str, code: int | None = None, **more: Any) -> WorkerReport:
        of = {"run_uid": worker.run_uid, "attempt": worker.attempt}
        return report(UNKNOWN, worker.rank, worker.machine, state, code, **of, **more)

    async def see(self, row: RunRow) -> RunView:
        async with self.scene.ledger.reading() as tx:
            found = await runs.by_uid(tx, row.uid)
            assert found is not None
            return (await views.run_views(tx, [found]))[0]

    async def attempts(self, row: RunRow) -> list[AttemptView]:
        async with self.scene.ledger.reading() as tx:
            return await views.attempt_views(tx, row.uid)

    async def until(self, row: RunRow, seen: Callable[[RunView], bool]) -> RunView:
        """The run once `seen` holds of it, with time skipped second by second."""
        for _ in range(300):
            await self.obey()
            view = await self.see(row)
            if seen(view):
                return view
            await self.env.sleep(1)
        raise AssertionError(f"{view.state}: {view.reason}; {[(one.name, one.reason) for one in view.workers]}")

    async def running(self, row: RunRow, number: int) -> RunView:
        """The run once so many of its workers run."""
        return await self.until(row, lambda view: len(running(view)) == number)

    async def ended(self, row: RunRow) -> RunView:
        return await self.until(row, lambda view: view.finished_at is not None)


def running(view: RunView) -> list[WorkerView]:
    """The workers that run."""
    return [one for one in view.workers if one.state == "Running"]


class _Unknown:
    uid = ""


UNKNOWN: Any = _Unknown()
