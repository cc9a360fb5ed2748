"""Random lives of a gang: whatever happens in whatever order, it ends one way and everything is said once."""

import itertools
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.fleet import FakeAgent, GangScene, report
from support.scene import CLUSTER

from astraeus.ledger import gangs
from astraeus.ledger.core import Ledger
from astraeus.ledger.runs import RunRow

SIZE = 3
STATES = ("preparing", "arrived", "running", "exited", "failed")
numbers = itertools.count()
ranks = st.integers(0, SIZE - 1)
told = st.tuples(ranks, st.sampled_from(STATES), st.sampled_from([0, 0, 1]))
steps = st.one_of(
    st.tuples(st.just("sync"), st.lists(told, max_size=SIZE)),
    st.tuples(st.just("stop"), st.sampled_from(["cancelled", "preempted", None])),
    st.tuples(st.just("live"), st.tuples(ranks, st.booleans())),
    st.tuples(st.just("read"), st.none()),
    st.tuples(st.just("open"), st.none()),
    st.tuples(st.just("lose"), ranks),
)


class Life:
    """One gang on machines of its own, and what is remembered of it."""

    def __init__(self, scene: GangScene, places: list[str], row: RunRow) -> None:
        self.scene, self.places, self.row = scene, places, row
        self.agent = FakeAgent(scene.ledger, places)
        self.end: Any = None

    @classmethod
    async def begin(cls, ledger: Ledger) -> "Life":
        scene = await GangScene.start(ledger, machines=0)
        name = f"g{next(numbers)}"
        places = [f"{name}-m{i}" for i in range(SIZE)]
        await scene.add_machines(places)
        return cls(scene, places, await scene.gang(name, places))

    async def act(self, kind: str, what: Any) -> None:
        if kind == "sync":
            await self.agent.sync(*(report(self.row, rank, self.places[rank], *rest) for rank, *rest in what))
        elif kind == "stop":
            await self.scene.stop(self.row, what)
        elif kind == "live":
            live, key = self.agent.live[self.places[what[0]]], f"{self.row.uid}/1/{what[0]}"
            (live.add if what[1] else live.discard)(key)
        elif kind == "read":
            await self.agent.read()
        elif kind == "open":
            await self.scene.open_gates(self.row)
        else:
            async with self.scene.ledger.transaction() as tx:
                await gangs.lose(tx, CLUSTER, [self.places[what]])

    async def check(self, before: list[Any], kind: str) -> None:
        situation, after = await self.scene.situation(self.row), await self.scene.workers(self.row)
        ends = (situation.failure, situation.succeeded or None, situation.intent)
        assert sum(end is not None for end in ends) <= 1
        assert self.end in (None, ends) or self.is_the_loss_behind(ends, kind), "an end that was decided changed"
        self.end = ends if any(ends) else None
        for old, new in zip(before, after, strict=True):
            assert STATES.index(new.observed) >= STATES.index(old.observed) if old.observed in STATES else True
            assert new.gone or not old.gone
            if new.gone and not old.gone and kind == "sync":
                live = self.agent.live[new.machine]
                assert f"{new.run_uid}/1/{new.rank}" not in live, "gone while a process may live"
                assert new.desired == "stop" or new.observed in ("exited", "failed")
        kinds = await self.scene.kinds(self.row)
        assert len(kinds) == len(set(kinds)), "something was said twice"
        over = situation.failure is not None or situation.intent is not None
        assert ("gone" in kinds) == (over and situation.gone)
        assert ("ended" in kinds) == situation.succeeded
        assert ({"failed", "machine_lost"} & set(kinds) != set()) == (situation.failure is not None)

    def is_the_loss_behind(self, ends: Any, kind: str) -> bool:
        """Whether a lost machine took the place of a peer's failure in its silence, which happens once."""
        failed, lost = self.end[0], ends[0]
        return kind == "lose" and bool(failed and lost) and "lost its machine" in lost and "lost" not in failed


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(life=st.lists(steps, max_size=12))
async def test_a_gang_ends_one_way_and_says_everything_once(sqlite_ledger: Ledger, life: list[Any]) -> None:
    one = await Life.begin(sqlite_ledger)
    for kind, what in life:
        before = await one.scene.workers(one.row)
        await one.act(kind, what)
        await one.check(before, kind)
