"""No GPU is ever held twice, whoever writes: random lives one after the other, and contradicting writers at once."""

import asyncio
import random
import shutil
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from sqlalchemy import update
from support.scene import Scene, grant

from astraeus.ledger.core import Ledger
from astraeus.ledger.runs import RunRow
from astraeus.ledger.tables import machine
from astraeus.model.errors import Conflict, StaleTerm
from astraeus.model.run import FINAL
from astraeus.placement.types import Ask, Eviction, Grant, Plan, Reserved, Snapshot

MACHINES = 3
ATTEMPTS = 3
PLACE = st.tuples(st.sampled_from([f"m-{i}" for i in range(MACHINES)]), st.integers(0, 255))
GANG = st.lists(PLACE, min_size=1, max_size=3)
NEXT = st.sampled_from(["Pending", "Succeeded", "Failed", "Cancelled"])
ORDERS = ("cancel", "delete", "preempt", "hold", "release", "restart")


class Lives(RuleBasedStateMachine):
    """Runs that are submitted, placed by plans of any age, ordered about and released, in any order."""

    template: Path

    @initialize()
    def begin(self) -> None:
        self.runner = asyncio.Runner()
        self.folder = tempfile.TemporaryDirectory()
        path = Path(self.folder.name) / "ledger.db"
        shutil.copyfile(self.template, path)
        self.ledger = Ledger(f"sqlite+aiosqlite:///{path}")
        self.scene: Scene = self.runner.run(Scene.start(self.ledger, machines=MACHINES))
        self.rows: list[RunRow] = []
        self.plans: list[tuple[int, Plan]] = []
        self.finals: dict[str, RunRow] = {}
        self.attempts: dict[str, int] = {}

    def teardown(self) -> None:
        self.runner.run(self.ledger.close())
        self.runner.close()
        self.folder.cleanup()

    def attempted(self, work: Any) -> Any:
        """What a call answered, or the refusal that says what to do."""

        async def call() -> Any:
            try:
                return await work
            except (Conflict, StaleTerm) as error:
                return error

        return self.runner.run(call())

    @rule(entered=st.booleans())
    def submit(self, entered: bool) -> None:
        row = self.runner.run(self.scene.submit(f"r{len(self.rows)}"))
        self.rows.append(row)
        if entered:
            self.runner.run(self.scene.enter(row))

    @precondition(lambda self: self.rows)
    @rule(data=st.data(), attempt=st.integers(1, 4))
    def enter(self, data: st.DataObject, attempt: int) -> None:
        self.attempted(self.scene.enter(data.draw(st.sampled_from(self.rows)), attempt))

    @rule(data=st.data())
    def think(self, data: st.DataObject) -> None:
        """A plan, right or wrong, that may be committed at any time later."""
        term = self.runner.run(self.scene.term())
        snapshot = self.runner.run(self.scene.snapshot())
        grants = tuple(grant(ask, data.draw(GANG)) for ask in snapshot.asks[:3])
        evictions = tuple(
            Eviction(held.claim, held.run_uid, held.attempt, ask.claim, ask.run_name)
            for held in snapshot.holdings[:1]
            for ask in snapshot.asks[-1:]
        )
        reserved = tuple(Reserved(ask.claim, "m-0", 1) for ask in snapshot.asks[-1:])
        self.plans.append((term, Plan(grants=grants, evictions=evictions, reserved=reserved)))

    @precondition(lambda self: self.plans)
    @rule(data=st.data(), fresh=st.booleans())
    def commit(self, data: st.DataObject, fresh: bool) -> None:
        term, plan = data.draw(st.sampled_from(self.plans[-3:]))
        result = self.attempted(self.scene.commit(plan, None if fresh else term))
        if not fresh and term != self.plans[-1][0]:
            assert isinstance(result, StaleTerm)

    @precondition(lambda self: self.rows)
    @rule(data=st.data(), attempt=st.integers(1, 4), state=NEXT)
    def release(self, data: st.DataObject, attempt: int, state: str) -> None:
        self.attempted(self.scene.release(data.draw(st.sampled_from(self.rows)), attempt, state))

    @precondition(lambda self: self.rows)
    @rule(data=st.data(), kind=st.sampled_from(ORDERS))
    def order(self, data: st.DataObject, kind: str) -> None:
        self.attempted(self.scene.order(data.draw(st.sampled_from(self.rows)), kind))

    @rule(name=st.sampled_from([f"m-{i}" for i in range(MACHINES)]), cordoned=st.booleans())
    def cordon(self, name: str, cordoned: bool) -> None:
        self.runner.run(self.scene.write(update(machine).where(machine.c.name == name).values(cordoned=cordoned)))

    @invariant()
    def the_ledger_adds_up(self) -> None:
        if hasattr(self, "scene"):
            self.runner.run(self.scene.check())
            for row in self.rows:
                self.only_forward(self.runner.run(self.scene.run(row)))

    def only_forward(self, now: RunRow) -> None:
        """Final states stay, attempts grow."""
        if now.uid in self.finals:
            assert (now.state, now.reason) == (self.finals[now.uid].state, self.finals[now.uid].reason)
        if now.state in FINAL:
            self.finals.setdefault(now.uid, now)
        assert now.attempt >= self.attempts.get(now.uid, 0)
        self.attempts[now.uid] = now.attempt


def test_any_life_leaves_the_ledger_right(sqlite_template: Path) -> None:
    machine_of_lives = type("LivesHere", (Lives,), {"template": sqlite_template})
    run_state_machine_as_test(
        machine_of_lives,
        settings=settings(
            max_examples=12, stateful_step_count=25, deadline=None, suppress_health_check=list(HealthCheck)
        ),
    )


def guess(rng: random.Random, snapshot: Snapshot) -> Plan:
    """A plan that fits the snapshot it was made on; by the time it is committed others may have written."""
    free = {m.name: 255 for m in snapshot.machines}
    for held in snapshot.holdings:
        free[held.machine] &= ~held.gpu_mask
    grants: list[Grant] = []
    for ask in rng.sample(snapshot.asks, min(3, len(snapshot.asks))):
        gang = gang_for(rng, ask, free)
        if gang is not None:
            grants.append(gang)
    return Plan(grants=tuple(grants))


def gang_for(rng: random.Random, ask: Ask, free: dict[str, int]) -> Grant | None:
    names = [name for name, mask in sorted(free.items()) if mask]
    if not names:
        return None
    places = []
    for name in rng.sample(names, rng.randint(1, len(names))):
        mask = free[name] & rng.randint(1, 255)
        if mask:
            places.append((name, mask))
            free[name] &= ~mask
    return grant(ask, places) if places else None


class World:
    """Lets planners and runs wait for one another's writes instead of asking the ledger over and over."""

    def __init__(self) -> None:
        self.over = False
        self.next = asyncio.Event()

    def tell(self) -> None:
        self.next.set()
        self.next = asyncio.Event()

    def end(self) -> None:
        self.over = True
        self.tell()


async def planner(scene: Scene, rng: random.Random, world: World) -> None:
    """Passes that overlap with other planners', while anything waits."""
    while not world.over:
        change = world.next
        term = await scene.term()
        snapshot = await scene.snapshot()
        if not snapshot.asks:
            await change.wait()
            continue
        try:
            await scene.commit(guess(rng, snapshot), None if rng.random() < 0.5 else term)
        except StaleTerm:
            continue
        world.tell()


async def life(scene: Scene, rng: random.Random, name: str, world: World) -> None:
    """A run that is placed once at least, and then enters, is ordered about and ends, several times."""
    row = await scene.submit(name)
    await scene.enter(row)
    world.tell()
    change = world.next
    while (await scene.run(row)).state != "Starting":
        await change.wait()
        change = world.next
    for attempt in range(1, ATTEMPTS + 1):
        await scene.enter(row, attempt)
        world.tell()
        for _ in range(rng.randint(0, 3)):
            await scene.run(row)
        await scene.order(row, rng.choice(("preempt", "restart", "hold", "release")))
        state = "Pending" if attempt < ATTEMPTS else "Succeeded"
        ends = await asyncio.gather(*(scene.release(row, attempt, state) for _ in range(2)))
        assert sorted(ends) == [False, True]
        world.tell()


async def watch(scene: Scene, world: World) -> int:
    """Look after every few writes; answers how often."""
    looks = 0
    while not world.over:
        change = world.next
        await scene.check()
        looks += 1
        await change.wait()
    return looks


@pytest.fixture
async def ledgers(ledger_url: str) -> AsyncIterator[list[Ledger]]:
    """Two processes' worth of connections."""
    pair = [Ledger(ledger_url, pool_size=12), Ledger(ledger_url, pool_size=12)]
    yield pair
    for one in pair:
        await one.close()


@pytest.mark.parametrize("seed", range(2))
async def test_contradicting_writers_never_grant_a_gpu_twice(ledgers: list[Ledger], seed: int) -> None:
    """Planners and runs of two processes, all at once."""
    scene = await Scene.start(ledgers[0], machines=MACHINES)
    scenes = [scene, Scene(ledgers[1], scene.workspace)]
    world = World()
    others = [planner(scenes[i], random.Random(f"p{seed}{i}"), world) for i in range(2)]
    planning, watching = asyncio.gather(*others), asyncio.create_task(watch(scenes[1], world))
    try:
        await asyncio.gather(*(life(scenes[i % 2], random.Random(f"l{seed}{i}"), f"r{i}", world) for i in range(5)))
    finally:
        world.end()
        await planning
        assert await watching > 0
    await scene.check()
