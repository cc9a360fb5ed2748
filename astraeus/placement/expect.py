"""When waiting claims will start: the planner's own passes, played on into the future by time limits alone.

Nothing new comes, nothing fails, and every run stays until its time limit; one without a limit stays for ever. What is
being stopped is gone at once, what is starting runs at once, and a run that is stopped for another asks anew for as
much as it held. So what is answered are the latest starts as far as time limits tell; most runs end earlier than that.
"""

import heapq
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from math import inf

from astraeus.model import words
from astraeus.model.spec import GpuRequests, PerGpu, Resources
from astraeus.placement.grant import held_by
from astraeus.placement.planner import Planner, queue
from astraeus.placement.shares import charged
from astraeus.placement.types import Ask, Holding, Plan, Snapshot

STEPS_MOST = 100
CLAIMS_MOST = 500
TOGETHER = 0.1
"""Where there are more ends than steps, ends within this share of the time until then are played as one step."""
TOGETHER_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Expected:
    """The latest start of waiting claims, by claim, in seconds since the epoch; a claim that is not there: unknown.

    Those `asked` about were looked at, the first of the queue, up to the time `until`. None: as far as anything ends by
    itself, so that nothing with a time limit makes room for a claim without a start.
    """

    starts: Mapping[int, float]
    asked: frozenset[int]
    until: float | None = None

    def words_of(self, claim: int, now: float) -> str:
        """When a claim starts as users read it."""
        if claim in self.starts:
            return words.starts_within(self.starts[claim] - now)
        if claim not in self.asked:
            return words.start_behind(len(self.asked))
        return words.START_UNKNOWN if self.until is None else words.starts_after(self.until - now)


def expected(
    snapshot: Snapshot, now: float, *, steps: int = STEPS_MOST, claims: int = CLAIMS_MOST, only: int | None = None
) -> Expected:
    """When claims start at the latest; with `only`, no further than until that claim has started.

    At most `steps` passes are made, and the first `claims` of the queue looked at. Where less than everything that may
    end can be played by itself, ends that lie close together are one step, at the last of them.
    """
    asks = tuple(queue(snapshot, now)[:claims])
    future = _Future(replace(snapshot, asks=asks), now)
    future.exact = len(future.held) + 2 * len(asks) <= steps
    until = future.play(steps, only)
    starts = {claim: at for claim, at in future.starts.items() if claim >= 0}
    return Expected(starts, frozenset(ask.claim for ask in asks), until)


@dataclass
class _Future:
    """A cluster to which nothing happens but what time limits and the planner bring about."""

    snapshot: Snapshot
    now: float
    exact: bool = True
    starts: dict[int, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._began, self._promised = self.now, inf
        self._planner = Planner(terse=True)
        self.waiting = {ask.claim: ask for ask in self.snapshot.asks}
        gangs: dict[int, list[Holding]] = defaultdict(list)
        for held in self.snapshot.holdings:
            gangs[held.claim].append(_running(held, self.now))
        # Those that end first stand last: what is behind the first change is all that the planner looks at again.
        order = sorted(gangs.values(), key=lambda gang: (-_end(gang), gang[0].claim))
        self.held = {gang[0].claim: tuple(gang) for gang in order}
        self._stopping = {gang[0].claim for gang in order if all(held.stopping for held in gang)}
        self._ends = [(_end(gang), gang[0].claim) for gang in order]
        self.snapshot = replace(self.snapshot, holdings=tuple(chain.from_iterable(order)))
        heapq.heapify(self._ends)

    def play(self, steps: int, only: int | None) -> float | None:
        """Go from pass to pass; answers the time at which it stopped though something was still to come."""
        for step in range(steps):
            decided = self._planner.plan(self.snapshot, self.now)
            if step == 0:
                told = [wait.starts_by for wait in decided.waits if wait.starts_by is not None]
                self._promised = min(told, default=inf)
            self._carry_out(decided)
            if not self.waiting or only in self.starts:
                return None
            if not self._stopping:
                then = self._next(decided)
                if then == inf:
                    return None
                self.now = then
            self._go_on(decided)
        return self.now

    def _carry_out(self, decided: Plan) -> None:
        for grant in decided.grants:
            gang = self.held[grant.claim] = held_by(grant, self.waiting.pop(grant.claim), self.now)
            heapq.heappush(self._ends, (_end(gang), grant.claim))
            self.starts.setdefault(grant.claim, self.now)
        for eviction in decided.evictions:
            self._stopping.add(eviction.claim)
            again = _asking_anew(self.held[eviction.claim])
            self.waiting[again.claim] = again

    def _next(self, decided: Plan) -> float:
        """When anything changes next; with more to come than can be played by itself, the last of what is close."""
        while self._ends and self._ends[0][1] not in self.held:
            heapq.heappop(self._ends)
        first = max(self.now, self._ends[0][0]) if self._ends else inf
        change = inf if decided.next_change_at is None else decided.next_change_at
        if self.exact or change <= first or first == inf:
            return min(first, change)
        slack = max(TOGETHER_SECONDS, TOGETHER * (first - self._began))
        close = min(first + slack, change, inf if first > self._promised else self._promised)
        return max(first, max(end for end, claim in self._ends if end <= close and claim in self.held))

    def _go_on(self, decided: Plan) -> None:
        """Let go what is stopped or has ended by now, and show the rest to the next pass."""
        gone = self._stopping
        self._stopping = set()
        while self._ends and self._ends[0][0] <= self.now:
            gone.add(heapq.heappop(self._ends)[1])
        ended = [held for claim in gone for held in self.held.pop(claim, ())]
        self.snapshot = replace(
            self.snapshot,
            allotments=charged(self.snapshot, ended, self.now),
            holdings=tuple(chain.from_iterable(self.held.values())),
            asks=tuple(self.waiting.values()),
            reserved=decided.reserved,
        )


def _running(held: Holding, now: float) -> Holding:
    """A member of a gang that is starting, as if it ran from now on."""
    if held.ends_at is not None or held.time_limit_seconds is None:
        return held
    return replace(held, ends_at=now + held.time_limit_seconds)


def _end(gang: Sequence[Holding]) -> float:
    return max(inf if held.ends_at is None else held.ends_at for held in gang)


def _asking_anew(gang: tuple[Holding, ...]) -> Ask:
    """The claim of a run that was stopped for another: for as much as it held, wherever that is found."""
    one, gpus = gang[0], gang[0].gpu_mask.bit_count()
    share = max(gpus, 1)
    return Ask(
        claim=-abs(one.claim),
        run_uid=one.run_uid,
        run_name=one.run_name,
        workspace=one.workspace,
        attempt=one.attempt + 1,
        resources=Resources(
            gpu_requests=GpuRequests(count=gpus * len(gang)),
            machines=len(gang),
            per_gpu=PerGpu(cpu_cores=one.cpu_cores / share, memory_bytes=one.memory_bytes // share),
        ),
        priority=one.priority,
        submitted_at=one.started_at,
        patience_until=0.0,
        time_limit_seconds=one.time_limit_seconds,
    )
