"""Passes of one process over a cluster: each decides as one that starts anew would, under a term that only it holds."""

from dataclasses import replace
from typing import Any, cast

import pytest
from sqlalchemy import select, update
from support.scene import CLUSTER, Scene
from temporalio.testing import ActivityEnvironment

from activities import placing
from activities.delivery import Courier
from activities.placing import Placing
from astraeus.ledger.core import Ledger
from astraeus.ledger.tables import cluster, machine
from astraeus.model.errors import StaleTerm
from astraeus.placement.planner import Planner, plan
from astraeus.placement.types import Plan, Snapshot
from workflows.contracts import PassOrder, PassResult

WHOLE_MACHINE = {"requested_resources": {"gpu_requests": {"count": 8}, "machines": 1}}
HALF = {"requested_resources": {"gpu_requests": {"count": 4}, "machines": 1}}


class Deaf:
    """A courier that delivers nothing."""

    async def deliver(self, ids: list[int]) -> None:
        pass


class Cluster:
    """A cluster whose passes go through the activity of a worker process."""

    def __init__(self, scene: Scene) -> None:
        self.scene = scene
        self.placing = self.process()

    def process(self) -> Placing:
        return Placing(self.scene.ledger, cast(Courier, Deaf()))

    async def decide(self, process: Placing | None = None) -> PassResult:
        run: Any = ActivityEnvironment().run
        done: PassResult = await run((process or self.placing).scheduling_pass, PassOrder(cluster=CLUSTER))
        return done

    async def term(self) -> int:
        async with self.scene.ledger.reading() as tx:
            return int(await tx.conn.scalar(select(cluster.c.pass_term)) or 0)

    async def set(self, name: str, **values: Any) -> None:
        async with self.scene.ledger.transaction() as tx:
            await tx.conn.execute(update(machine).where(machine.c.name == name).values(**values))
            tx.announce("machine", f"{CLUSTER}/{name}")


@pytest.fixture
async def lab(sqlite_ledger: Ledger) -> Cluster:
    return Cluster(await Scene.start(sqlite_ledger, machines=3))


async def test_each_pass_decides_as_one_that_starts_anew(lab: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    decisions: list[Plan] = []

    class Compared(Planner):
        def plan(self, snapshot: Snapshot, now: float) -> Plan:
            decisions.append(super().plan(snapshot, now))
            assert decisions[-1] == plan(replace(snapshot, machines=(*snapshot.machines,)), now)
            return decisions[-1]

    monkeypatch.setattr(placing, "Planner", Compared)
    rows = [await lab.scene.waiting(f"a-{i}", task=HALF if i % 3 else WHOLE_MACHINE) for i in range(8)]
    assert (await lab.decide()).granted
    await lab.set("m-0", cordoned=True)
    await lab.scene.release(rows[0], state="Succeeded")
    await lab.decide()
    await lab.set("m-0", cordoned=False)
    late = await lab.scene.waiting("late", task=WHOLE_MACHINE)
    await lab.decide()
    for row in rows[1:4]:
        await lab.scene.release(row, state="Succeeded")
    await lab.decide()
    assert [len(decided.grants) for decided in decisions] == [4, 0, 2, 2]
    assert (await lab.scene.run(late)).state == "Pending"


async def test_a_process_takes_a_new_term_only_after_another_one(lab: Cluster) -> None:
    other = lab.process()
    terms = []
    for process in (None, None, other, other, None):
        await lab.decide(process)
        terms.append(await lab.term())
    assert terms == [1, 1, 2, 2, 3]


async def test_a_pass_during_which_another_process_decides_writes_nothing(
    lab: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = await lab.scene.waiting("a", task=WHOLE_MACHINE)
    await lab.decide()
    waiting = await lab.scene.waiting("b", task=WHOLE_MACHINE)
    committing = placing.commit.commit_plan

    async def overtaken(*args: Any) -> Any:
        raise StaleTerm("a later pass has begun")

    monkeypatch.setattr(placing.commit, "commit_plan", overtaken)
    with pytest.raises(StaleTerm):
        await lab.decide()
    assert (await lab.scene.run(waiting)).state == "Pending"
    monkeypatch.setattr(placing.commit, "commit_plan", committing)
    assert (await lab.decide()).granted == 1
    assert {(await lab.scene.run(one)).state for one in (row, waiting)} == {"Starting"}


async def test_a_pass_that_was_not_carried_out_whole_looks_at_everything_again(
    lab: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    await lab.decide()
    row = await lab.scene.waiting("a", task=WHOLE_MACHINE)
    planned = Planner.plan

    def of_another_attempt(self: Planner, snapshot: Snapshot, now: float) -> Plan:
        decided = planned(self, snapshot, now)
        return replace(decided, grants=tuple(replace(one, attempt=9) for one in decided.grants))

    monkeypatch.setattr(Planner, "plan", of_another_attempt)
    done = await lab.decide()
    assert (done.granted, done.next_change_seconds) == (0, 0.0)
    monkeypatch.setattr(Planner, "plan", planned)
    assert (await lab.decide()).granted == 1
    assert (await lab.scene.run(row)).state == "Starting"
