"""The snapshot kept in memory is at any time the one that reading everything would give."""

import asyncio
import itertools
import logging
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import delete, func, insert, select, update
from support.fleet import FakeAgent, GangScene, Statements, ref, report
from support.scene import CLUSTER, WHOLE, grant, wait

from astraeus.ledger import claims, gangs, keeper, leases, machines, shares
from astraeus.ledger.core import Ledger
from astraeus.ledger.keeper import SnapshotKeeper
from astraeus.ledger.runs import RunRow
from astraeus.ledger.snapshot import load_snapshot
from astraeus.ledger.tables import change, cluster, machine
from astraeus.model.errors import AstraeusError, NotFound, StaleTerm
from astraeus.model.machine import MachineFacts, Nic
from astraeus.placement.planner import plan
from astraeus.placement.types import Grant, Plan, Snapshot

numbers = itertools.count()
few = st.integers(0, 5)
steps = st.one_of(
    st.tuples(st.just("submit"), st.tuples(st.integers(1, 3), few, st.booleans())),
    st.tuples(st.just("pass"), st.none()),
    st.tuples(st.just("again"), few),
    st.tuples(st.just("widen"), few),
    st.tuples(st.just("order"), st.tuples(few, st.sampled_from(["hold", "release", "cancel", "preempt", "delete"]))),
    st.tuples(st.just("begin"), few),
    st.tuples(st.just("report"), st.tuples(few, st.sampled_from(["arrived", "running", "exited", "failed"]))),
    st.tuples(st.just("open"), few),
    st.tuples(st.just("close"), st.tuples(few, st.sampled_from(["Pending", "Cancelled"]))),
    st.tuples(st.just("operator"), st.tuples(few, st.sampled_from(["cordon", "drain", "return_machine"]))),
    st.tuples(st.just("facts"), st.tuples(few, st.integers(0, 3))),
    st.tuples(st.just("lose"), few),
    st.tuples(st.just("forget"), st.none()),
    st.tuples(st.just("allot"), st.tuples(st.none() | st.integers(0, 20), st.none() | st.just(2.0))),
    st.tuples(st.just("half_life"), st.integers(60, 100)),
)


class History:
    """Whatever may happen to a cluster, with a keeper that looks at it now and then."""

    def __init__(self, scene: GangScene) -> None:
        self.scene = scene
        self.names = [f"n{next(numbers)}-{i}" for i in range(4)]
        self.agent = FakeAgent(scene.ledger, self.names)
        self.runs: list[tuple[RunRow, int]] = []

    async def learn(self, which: int, rails: int) -> None:
        name = self.names[which % len(self.names)]
        ports = [Nic(device=f"mlx5_{i}", rail=i, gbps=400) for i in range(rails)]
        self.agent.facts = {
            name: MachineFacts(
                name=name,
                boot_id="boot",
                address=f"{name}.test",
                gpus=8,
                gpu_model="H100",
                cpu_cores=96,
                memory_bytes=2**40,
                labels={"topology.astraeus.io/leaf": f"leaf-{rails}"},
                nics=ports,
            )
        }
        await self.agent.sync()

    async def act(self, kind: str, what: Any) -> None:
        if kind == "submit":
            size, priority, limited = what
            resources = {"gpu_requests": {"count": 8 * size}, "machines": size}
            task = {"requested_resources": resources} | ({"time_limit_seconds": 60} if limited else {})
            row = await self.scene.submit(f"r{next(numbers)}", priority=priority, task=task)
            await self.scene.enter(row, patience=float(priority) * 100)
            self.runs.append((row, 1))
        elif kind == "pass":
            async with self.scene.ledger.reading() as tx:
                picture = await load_snapshot(tx, CLUSTER)
            await self.scene.commit(plan(picture, tx.now))
        elif kind == "facts":
            await self.learn(*what)
        elif kind == "operator":
            async with self.scene.ledger.transaction() as tx:
                await getattr(machines, what[1])(tx, CLUSTER, self.names[what[0] % len(self.names)], "grace")
        elif kind == "allot":
            async with self.scene.ledger.transaction() as tx:
                quota, share = what
                await shares.allot(tx, self.scene.workspace.id, CLUSTER, gpu_quota=quota, share=share)
        elif kind == "half_life":
            async with self.scene.ledger.transaction() as tx:
                await shares.set_half_life(tx, CLUSTER, what)
        elif kind == "lose":
            await self.lose(self.names[what % len(self.names)])
        elif kind == "forget":
            newest = select(func.max(change.c.seq)).scalar_subquery()
            await self.scene.write(delete(change).where(change.c.seq < newest))
        elif self.runs:
            which, more = what if isinstance(what, tuple) else (what, None)
            await self.act_on(kind, which % len(self.runs), more)

    async def lose(self, name: str) -> None:
        await self.scene.silent(600, name)
        async with self.scene.ledger.transaction() as tx:
            await leases.declare_lost(tx, CLUSTER, [name], "grace")

    async def act_on(self, kind: str, which: int, more: Any) -> None:
        row, attempt = self.runs[which]
        if kind == "order":
            await self.scene.order(row, more)
        elif kind == "report":
            held = [one for one in (await self.scene.snapshot()).holdings if one.run_uid == row.uid]
            await self.agent.sync(*(report(row, i, one.machine, more, 0) for i, one in enumerate(held)))
        elif kind == "close":
            await self.scene.release(row, attempt, state=more)
        elif kind == "again":
            await self.scene.enter(row, attempt + 1)
            self.runs[which] = row, attempt + 1
        else:
            async with self.scene.ledger.transaction() as tx:
                action = {"widen": claims.widen, "begin": gangs.start, "open": gangs.open_gates}[kind]
                await action(tx, ref(row, attempt))


async def both(ledger: Ledger, kept: SnapshotKeeper) -> tuple[Snapshot, Snapshot]:
    async with ledger.reading() as tx:
        return await kept.current(tx), await load_snapshot(tx, CLUSTER)


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(life=st.lists(st.tuples(steps, st.booleans()), max_size=16))
async def test_it_equals_a_fresh_snapshot_after_any_history(ledger: Ledger, life: list[Any]) -> None:
    history = History(await GangScene.start(ledger, machines=0))
    await history.learn(0, 2)
    await history.learn(1, 2)
    kept = SnapshotKeeper(CLUSTER)
    forgotten = 0
    for (kind, what), looks in life:
        try:
            await history.act(kind, what)
        except AstraeusError:
            continue
        forgotten += kind == "forget"
        if looks:
            mine, fresh = await both(ledger, kept)
            assert mine == fresh
    mine, fresh = await both(ledger, kept)
    assert mine == fresh
    assert kept.loads <= 1 + forgotten


async def test_it_equals_a_fresh_snapshot_while_others_write(ledger: Ledger) -> None:
    scene = await GangScene.start(ledger, machines=4)
    kept = SnapshotKeeper(CLUSTER)
    looks = 0
    placed: list[Grant] = []

    async def live(writer: int) -> None:
        for number in range(6):
            row = await scene.waiting(f"w{writer}-{number}")
            ask = next(ask for ask in (await scene.snapshot()).asks if ask.run_uid == row.uid)
            with suppress(StaleTerm):
                placed.extend(await scene.commit(Plan(grants=(grant(ask, [(f"m-{writer}", WHOLE)]),))))
            await scene.start_workers(row)
            await scene.release(row, state="Succeeded" if number % 2 else "Pending")

    writing = asyncio.gather(*(live(writer) for writer in range(4)))
    while not writing.done() or not looks:
        mine, fresh = await both(ledger, kept)
        assert mine == fresh
        looks += 1
    await writing
    mine, fresh = await both(ledger, kept)
    assert mine == fresh
    assert kept.loads == 1
    assert placed


async def test_reasons_that_a_pass_wrote_are_read_by_nobody_before_the_next(ledger: Ledger) -> None:
    scene = await GangScene.start(ledger, machines=1)
    for name in ("a", "b", "c"):
        await scene.waiting(name)
    kept = SnapshotKeeper(CLUSTER)
    before, _ = await both(ledger, kept)
    await scene.commit(Plan(waits=tuple(wait(ask, "Needs 9 machines") for ask in before.asks)))
    statements = Statements(ledger)
    async with ledger.reading() as tx:
        assert await kept.current(tx) == before
    assert len(statements.take()) == 2


async def test_on_both_databases_only_what_changed_is_read(ledger: Ledger) -> None:
    scene = await GangScene.start(ledger, machines=6)
    await scene.placed("old", [("m-0", WHOLE)])
    kept = SnapshotKeeper(CLUSTER)
    before, _ = await both(ledger, kept)
    statements = Statements(ledger)
    async with ledger.reading() as tx:
        assert await kept.current(tx) is before
    assert len(statements.take()) == 2, "the transaction's first, and one that finds nothing new"
    row = await scene.placed("new", [("m-1", WHOLE), ("m-2", WHOLE)])
    mine, fresh = await both(ledger, kept)
    assert mine == fresh
    assert mine.machines is before.machines, "machines that are what they were stay the same object"
    await scene.release(row)
    mine, fresh = await both(ledger, kept)
    assert mine == fresh == before
    assert kept.loads == 1


async def test_an_older_reader_gets_its_own_time(ledger: Ledger) -> None:
    scene = await GangScene.start(ledger)
    kept = SnapshotKeeper(CLUSTER)
    async with ledger.reading() as old:
        empty = await load_snapshot(old, CLUSTER)
        await scene.waiting("a")
        mine, fresh = await both(ledger, kept)
        assert len(mine.asks) == 1
        assert mine == fresh
        assert await kept.current(old) == empty
    assert (await both(ledger, kept))[0] == mine


async def test_a_reader_that_fails_leaves_the_keeper_whole(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    scene = await GangScene.start(ledger)
    kept = SnapshotKeeper(CLUSTER)
    await both(ledger, kept)
    await scene.waiting("a")

    async def away(*_: Any) -> Any:
        raise ConnectionError("gone")

    with monkeypatch.context() as broken:
        broken.setattr(keeper, "read_claims", away)
        with pytest.raises(ConnectionError):
            await both(ledger, kept)
    mine, fresh = await both(ledger, kept)
    assert mine == fresh
    assert len(mine.asks) == 1


async def test_too_much_at_once_is_read_anew(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    scene = await GangScene.start(ledger)
    kept = SnapshotKeeper(CLUSTER)
    await both(ledger, kept)
    monkeypatch.setattr(keeper, "MANY", 1)
    await scene.waiting("a")
    mine, fresh = await both(ledger, kept)
    assert mine == fresh
    assert kept.loads == 2


async def test_now_and_then_it_is_checked(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    scene = await GangScene.start(ledger)
    kept = SnapshotKeeper(CLUSTER)
    await both(ledger, kept)
    monkeypatch.setattr(keeper, "CHECKED_SECONDS", 0.0)
    with caplog.at_level(logging.ERROR):
        await both(ledger, kept)
        assert not caplog.records
        await scene.write(update(machine).where(machine.c.name == "m-0").values(cordoned=True))
        mine, fresh = await both(ledger, kept)
    assert mine == fresh
    assert [entry.message for entry in caplog.records] == [
        f"the snapshot kept of {CLUSTER} had gone wrong; it was read anew"
    ]


async def test_other_clusters_and_factors(ledger: Ledger) -> None:
    scene = await GangScene.start(ledger)
    kept = SnapshotKeeper(CLUSTER)
    before, _ = await both(ledger, kept)
    async with ledger.transaction() as tx:
        tx.announce("machine", f"{CLUSTER}-2/m-0")
        tx.announce("cluster", f"{CLUSTER}-2")
    assert (await both(ledger, kept))[0] is not None
    await scene.write(update(cluster).values(factors={"leaf": 0.5}))
    mine, fresh = await both(ledger, kept)
    assert mine == fresh != before
    await scene.write(insert(cluster).values(name="empty"))
    async with ledger.reading() as tx:
        assert (await SnapshotKeeper("empty").current(tx)).machines == ()
        with pytest.raises(NotFound):
            await SnapshotKeeper("nowhere").current(tx)
