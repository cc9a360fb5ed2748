"""Queues over time: runs come, are placed, evicted, lose machines, end and go, in any order, one pass after another."""

from collections import Counter, defaultdict
from dataclasses import replace

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from placement.drawing import applied, ask, draw

from astraeus.placement.planner import plan
from astraeus.placement.types import Ask, Holding, Plan, Snapshot

FLEET = """
fabric f
leaf l0
  a0 ....
  a1 ....
leaf l1
  b0 ....
  b1 ....
"""
NAMES = ("a0", "a1", "b0", "b1")


class Lives(RuleBasedStateMachine):
    """A cluster's life as the ledger would carry it out, with nothing but the planner deciding."""

    def __init__(self) -> None:
        super().__init__()
        self.world: Snapshot = draw(FLEET)
        self.now = 0.0
        self.claims = 0
        self.asked: dict[int, Ask] = {}
        self.evicted: set[int] = set()
        self.evictions: Counter[str] = Counter()

    def enter(self, wanted: Ask) -> None:
        self.asked[wanted.claim] = wanted
        self.world = replace(self.world, asks=(*self.world.asks, wanted))

    def again(self, claim: int) -> None:
        """The run of an attempt that ended asks anew, in its old place."""
        self.claims += 1
        old = self.asked[claim]
        self.enter(replace(old, claim=self.claims, attempt=old.attempt + 1))

    def free(self, claims: set[int]) -> None:
        self.world = replace(self.world, holdings=tuple(h for h in self.world.holdings if h.claim not in claims))

    @property
    def held(self) -> dict[int, list[Holding]]:
        found: dict[int, list[Holding]] = defaultdict(list)
        for holding in self.world.holdings:
            found[holding.claim].append(holding)
        return found

    @property
    def stopping(self) -> list[int]:
        return sorted({h.claim for h in self.world.holdings if h.stopping})

    @rule(machines=st.integers(1, 4), each=st.sampled_from((1, 2, 4)), priority=st.integers(0, 3))
    def submit(self, machines: int, each: int, priority: int) -> None:
        self.claims += 1
        self.now += 1
        name = f"r{self.claims}"
        values = {"machines": machines, "gpus": machines * each, "priority": priority, "at": self.now}
        self.enter(ask(name, self.claims, **values))

    @rule()
    def a_pass(self) -> None:
        self.look()

    def look(self) -> Plan:
        """One pass, committed."""
        self.now += 1
        decided = plan(self.world, self.now)
        held = {claim: members[0] for claim, members in self.held.items()}
        for grant in decided.grants:
            wanted = self.asked[grant.claim].resources
            assert len(grant.members) == len({member.machine for member in grant.members}) == wanted.machines
        for eviction in decided.evictions:
            victim, preemptor = held[eviction.claim], self.asked[eviction.for_claim]
            assert victim.priority < preemptor.priority
            assert eviction.claim not in self.evicted, "told to stop twice"
            self.evicted.add(eviction.claim)
            self.evictions[victim.run_uid] += 1
        self.world = applied(self.world, decided)
        return decided

    @precondition(lambda self: self.stopping)
    @rule(data=st.data())
    def victim_stops(self, data: st.DataObject) -> None:
        claim = data.draw(st.sampled_from(self.stopping))
        self.free({claim})
        self.again(claim)

    @precondition(lambda self: self.world.holdings)
    @rule(data=st.data())
    def run_ends(self, data: st.DataObject) -> None:
        self.free({data.draw(st.sampled_from(sorted(self.held)))})

    @precondition(lambda self: self.world.asks)
    @rule(data=st.data())
    def preemptor_goes_away(self, data: st.DataObject) -> None:
        gone = data.draw(st.sampled_from(self.world.asks)).claim
        self.world = replace(
            self.world,
            asks=tuple(one for one in self.world.asks if one.claim != gone),
            reserved=tuple(row for row in self.world.reserved if row.claim != gone),
        )

    @rule(name=st.sampled_from(NAMES))
    def machine_is_lost_or_back(self, name: str) -> None:
        was = next(machine for machine in self.world.machines if machine.name == name)
        now = replace(was, refusal=None if was.refusal else "down")
        self.world = replace(
            self.world, machines=tuple(now if machine is was else machine for machine in self.world.machines)
        )
        if now.refusal:
            for claim in {h.claim for h in self.world.holdings if h.machine == name}:
                self.free({claim})
                self.again(claim)

    @invariant()
    def no_gpu_is_held_twice(self) -> None:
        held: dict[str, int] = defaultdict(int)
        for holding in self.world.holdings:
            assert not held[holding.machine] & holding.gpu_mask
            held[holding.machine] |= holding.gpu_mask

    @invariant()
    def gangs_are_whole(self) -> None:
        for claim, members in self.held.items():
            assert len(members) == self.asked[claim].resources.machines

    def teardown(self) -> None:
        """Left alone it settles, without evicting in circles; and when all that runs has ended, all that fits runs."""
        before = Counter(self.evictions)
        most = 2 * (len(self.held) + len(self.world.asks)) + 4
        for _ in range(most):
            decided = self.look()
            for claim in self.stopping:
                self.free({claim})
                self.again(claim)
            if not decided.grants and not decided.evictions and not self.stopping:
                break
        else:
            raise AssertionError(f"not settled after {most} passes")
        assert all(count - before[uid] <= 3 for uid, count in self.evictions.items()), "evicted in circles"
        up = sum(not machine.refusal for machine in self.world.machines)
        for _ in range(len(self.world.asks) + 1):
            self.free(set(self.held))
            self.look()
        self.free(set(self.held))
        assert all((one.resources.machines or 0) > up for one in self.world.asks)


TestLives = Lives.TestCase
TestLives.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
