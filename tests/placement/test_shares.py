"""Quotas and fair shares: rules that hold whatever the fleet, the load and the queue."""

from collections import Counter
from dataclasses import replace
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from placement.drawing import applied, ask, draw
from placement.fleets import WORKSPACES, allotments, snapshots

from astraeus.placement.planner import plan, queue, uses
from astraeus.placement.shares import accrued, decayed
from astraeus.placement.types import Allotment, Ask, Holding, Snapshot

RULES = settings(
    max_examples=80,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example],
)
DICE = st.randoms(use_true_random=False)


def in_use(snapshot: Snapshot) -> Counter[str]:
    found: Counter[str] = Counter()
    for holding in snapshot.holdings:
        found[holding.workspace] += holding.gpu_mask.bit_count()
    return found


def gpus(one: Ask) -> int:
    return one.resources.gpu_requests.count


@RULES
@given(snapshots(waiting=10), allotments(), DICE)
def test_no_workspace_is_ever_over_its_quota(snapshot: Snapshot, due: Any, dice: Any) -> None:
    snapshot = replace(snapshot, allotments=due)
    for _ in range(4):
        before = in_use(snapshot)
        snapshot = applied(snapshot, plan(snapshot, 0.0), victims_gone=dice.random() < 0.5)
        after = in_use(snapshot)
        for name, what in due.items():
            if what.gpu_quota is not None:
                assert after[name] <= max(what.gpu_quota, before[name])


@RULES
@given(snapshots(waiting=8), allotments())
def test_a_run_over_quota_holds_nobody_back(snapshot: Snapshot, due: Any) -> None:
    snapshot = replace(snapshot, allotments=due)
    held = in_use(snapshot)
    quotas = {name: what.gpu_quota for name, what in due.items() if what.gpu_quota is not None}
    over = [
        one
        for one in snapshot.asks
        if gpus(one) and one.workspace in quotas and held[one.workspace] + gpus(one) > quotas[one.workspace]
    ]
    decided = plan(snapshot, 0.0)
    alone = plan(replace(snapshot, asks=tuple(one for one in snapshot.asks if one not in over)), 0.0)
    assert (decided.grants, decided.evictions) == (alone.grants, alone.evictions)
    assert decided.reserved == alone.reserved
    told = {wait.claim: wait for wait in decided.waits}
    assert all("quota" in told[one.claim].reason for one in over)
    assert all(told[wait.claim].blockers == wait.blockers for wait in alone.waits if not _shared(wait.reason))


def _shared(reason: str) -> bool:
    # Who asks changes the parts of the whole that are told.
    return "of its share" in reason


@RULES
@given(snapshots(waiting=8), st.sampled_from(WORKSPACES))
def test_without_shares_the_plan_is_as_before(snapshot: Snapshot, name: str) -> None:
    ample = replace(snapshot, allotments={name: Allotment(gpu_quota=1000, used=500.0)})
    assert plan(ample, 5.0) == plan(snapshot, 5.0)


@RULES
@given(
    st.lists(st.tuples(st.sampled_from(WORKSPACES), st.integers(0, 1), st.integers(0, 3)), min_size=1, max_size=12),
    st.fixed_dictionaries({name: st.tuples(st.integers(0, 3), st.sampled_from((1.0, 2.0))) for name in WORKSPACES}),
    st.integers(1, 6),
)
def test_with_equal_priority_the_workspace_that_used_less_of_its_share_goes_first(
    wanted: list[Any], stand: dict[str, Any], room: int
) -> None:
    fleet = "fabric f\nleaf l\n" + "".join(f"  a{i} ........\n" for i in range(room))
    asks = tuple(
        ask(f"q{i}", i, gpus=8, machines=1, workspace=name, priority=priority, at=float(at))
        for i, (name, priority, at) in enumerate(wanted)
    )
    due = {name: Allotment(share=share, used=used * 1000.0) for name, (used, share) in stand.items()}
    decided = plan(replace(draw(fleet), asks=asks, allotments=due), 0.0)

    def place(one: Ask) -> Any:
        used, share = stand[one.workspace]
        return -one.priority, used / share, one.submitted_at, one.claim

    assert [grant.claim for grant in decided.grants] == [one.claim for one in sorted(asks, key=place)[:room]]


@RULES
@given(snapshots(waiting=8), allotments(quotas=False))
def test_the_share_is_only_named_where_it_is_what_one_waits_for(snapshot: Snapshot, due: Any) -> None:
    """Whoever is told so was there before somebody who has got room, in this pass, by less use."""
    snapshot = replace(snapshot, allotments=due)
    decided = plan(snapshot, 0.0)
    asks = {one.claim: one for one in snapshot.asks}
    order = [one.claim for one in queue(snapshot, 0.0)]
    got = {grant.claim for grant in decided.grants} | {row.claim for row in decided.reserved}
    for wait in decided.waits:
        if _shared(wait.reason):
            me = asks[wait.claim]
            assert any(
                order.index(claim) < order.index(me.claim)
                and (asks[claim].submitted_at, claim) > (me.submitted_at, me.claim)
                and asks[claim].priority == me.priority
                for claim in got
            )


@RULES
@given(snapshots(waiting=8), allotments(), st.integers(0, 200))
def test_it_ends_and_says_the_same_again(snapshot: Snapshot, due: Any, now: int) -> None:
    snapshot = replace(snapshot, allotments=due, half_life_seconds=100.0)
    decided = plan(snapshot, float(now))
    assert decided == plan(snapshot, float(now))
    for _ in range(8):
        snapshot = applied(snapshot, decided, victims_gone=True)
        decided = plan(snapshot, float(now))
        if not decided.grants and not decided.evictions:
            return
    raise AssertionError("eight passes in a row decided something")


@RULES
@given(st.integers(1, 64), st.floats(0, 1e6), st.floats(0, 1e6), st.sampled_from((3600.0, 604800.0)))
def test_use_that_goes_on_counts_as_use_that_was_written_down(
    gpus: int, first: float, more: float, half_life: float
) -> None:
    whole = float(accrued(gpus, first + more, half_life))
    parts = decayed(float(accrued(gpus, first, half_life)), more, half_life) + float(accrued(gpus, more, half_life))
    assert abs(whole - parts) <= 1e-6 * max(1.0, whole)
    assert whole <= gpus * (first + more) + 1e-6


def test_what_the_workspaces_have_used() -> None:
    world = draw("leaf l\n  a0 aaaa....\n", {"a": {"workspace": "acme/ml", "started_at": 0.0}})
    world = replace(
        world, allotments={"acme/vision": Allotment(share=3, used=400.0, used_at=0.0)}, half_life_seconds=1e12
    )
    found = uses(world, 100.0)
    assert {
        name: (use.in_use, round(use.gpu_seconds), round(use.used, 6), use.share) for name, use in found.items()
    } == {
        "acme/ml": (4, 400, 0.5, 0.25),
        "acme/vision": (0, 400, 0.5, 0.75),
    }


def test_a_machine_that_is_not_there_still_counts() -> None:
    world = draw("leaf l\n  a0 ........\n")
    lost = Holding(9, "u", "r", "acme/vision", 1, "gone", 0xFF, 0, 0)
    world = replace(
        world,
        holdings=(lost,),
        asks=(ask("n", 1, gpus=8, machines=1),),
        allotments={"acme/vision": Allotment(gpu_quota=8)},
    )
    assert not plan(world, 0.0).grants
