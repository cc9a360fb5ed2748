"""The rules of placement as properties over random fleets, loads and queues; a property's name is its rule."""

import random
from collections import Counter, defaultdict
from dataclasses import replace

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from placement.drawing import CLAIM_OF_LETTER, applied
from placement.fleets import snapshots
from placement.reference import allowed_rungs, fits_on, machine_fits, shapes_of

from astraeus.model.network import Rung
from astraeus.placement.ladder import LEVELS
from astraeus.placement.planner import in_order, plan
from astraeus.placement.types import Ask, Grant, Plan, Snapshot

many = settings(
    max_examples=150,
    deadline=None,
    phases=(Phase.explicit, Phase.generate, Phase.shrink),
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


def asked(snapshot: Snapshot) -> dict[int, Ask]:
    return {ask.claim: ask for ask in snapshot.asks}


@many
@given(snapshots())
def test_whole_gang_or_none(snapshot: Snapshot) -> None:
    decided = plan(snapshot, 0.0)
    for grant in decided.grants:
        ask = asked(snapshot)[grant.claim]
        count = ask.resources.gpu_requests.count
        sizes = {member.gpu_mask.bit_count() for member in grant.members}
        assert len(sizes) == 1
        assert sum(member.gpu_mask.bit_count() for member in grant.members) == count
        assert (len(grant.members), sizes.pop()) in shapes_of(ask)
        assert [member.rank for member in grant.members] == list(range(len(grant.members)))
        assert len({member.machine for member in grant.members}) == len(grant.members)
    answered = [grant.claim for grant in decided.grants] + [wait.claim for wait in decided.waits]
    assert sorted(answered) == sorted(asked(snapshot))


@many
@given(snapshots())
def test_nothing_is_granted_twice(snapshot: Snapshot) -> None:
    decided = plan(snapshot, 0.0)
    after = applied(snapshot, replace(decided, evictions=()))
    used: dict[str, int] = defaultdict(int)
    cpu: Counter[str] = Counter()
    for holding in after.holdings:
        assert not used[holding.machine] & holding.gpu_mask
        used[holding.machine] |= holding.gpu_mask
        cpu[holding.machine] += holding.cpu_cores  # type: ignore[assignment]
    machines = {machine.name: machine for machine in snapshot.machines}
    for grant in decided.grants:
        ask = asked(snapshot)[grant.claim]
        for member in grant.members:
            machine = machines[member.machine]
            assert machine.refusal is None
            assert not member.gpu_mask & machine.broken
            assert member.gpu_mask < 1 << machine.gpus
            assert not (ask.resources.gpu_requests.healthy_only and member.gpu_mask & machine.doubtful)
            assert cpu[member.machine] <= machine.cpu_cores + 1e-6


@many
@given(snapshots())
def test_never_across_fabrics_with_rdma_promised(snapshot: Snapshot) -> None:
    machines = {machine.name: machine for machine in snapshot.machines}
    for grant in plan(snapshot, 0.0).grants:
        members = [machines[member.machine] for member in grant.members]
        if grant.rung in (Rung.LEAF, Rung.FABRIC_RACK, Rung.FABRIC):
            assert len({machine.fabric for machine in members}) == 1
        if grant.rung in (Rung.ROCE_LEAF, Rung.ROCE):
            assert len({machine.roce for machine in members}) == 1
        if Rung.LEAF <= grant.rung <= Rung.ROCE:
            assert all(member.hcas for member in grant.members)
            assert len({member.hcas for member in grant.members}) == 1, "rails are the same on every member"
        if grant.rung >= Rung.ETHERNET_RACK:
            assert not any(member.hcas for member in grant.members)


@many
@given(snapshots())
def test_slow_and_dark_ports_are_never_given(snapshot: Snapshot) -> None:
    machines = {machine.name: machine for machine in snapshot.machines}
    for grant in plan(snapshot, 0.0).grants:
        least = asked(snapshot)[grant.claim].resources.network.min_gbps
        for member in grant.members:
            ports = {nic.hca: nic for nic in machines[member.machine].ports}
            assert all(ports[hca].up and ports[hca].gbps >= least for hca in member.hcas)


@many
@given(snapshots(waiting=1, patient=False))
def test_tightest_rung_that_fits(snapshot: Snapshot) -> None:
    (ask,) = snapshot.asks
    ask = replace(ask, avoid=frozenset())
    snapshot = replace(snapshot, asks=(ask,))
    possible = [rung for rung in allowed_rungs(ask) if fits_on(rung, ask, snapshot)]
    grants = plan(snapshot, 0.0).grants
    assert [grant.rung for grant in grants] == possible[:1]


@many
@given(snapshots(patient=False))
def test_no_claim_waits_while_its_fit_is_free_and_nothing_ahead_is_owed_the_room(snapshot: Snapshot) -> None:
    decided = plan(snapshot, 0.0)
    after = applied(snapshot, decided)
    waiting = in_order(after.asks)
    owed = {row.claim for row in decided.reserved}
    if waiting and waiting[0].claim not in owed:
        assert not any(fits_on(rung, waiting[0], after) for rung in allowed_rungs(waiting[0]))
    if not owed:
        for ask in waiting:
            assert not any(fits_on(rung, ask, after) for rung in allowed_rungs(ask))


@many
@given(snapshots())
def test_same_snapshot_same_plan(snapshot: Snapshot) -> None:
    assert plan(snapshot, 0.0) == plan(replace(snapshot, machines=(*snapshot.machines,)), 0.0)


@many
@given(snapshots(), st.randoms(use_true_random=False))
def test_order_of_the_snapshot_changes_nothing(snapshot: Snapshot, dice: random.Random) -> None:
    shuffled = replace(
        snapshot,
        machines=tuple(dice.sample(snapshot.machines, len(snapshot.machines))),
        asks=tuple(dice.sample(snapshot.asks, len(snapshot.asks))),
        holdings=tuple(dice.sample(snapshot.holdings, len(snapshot.holdings))),
    )
    assert _essence(plan(shuffled, 0.0)) == _essence(plan(snapshot, 0.0))


def _essence(decided: Plan) -> tuple[object, ...]:
    waits = [(wait.claim, wait.position) for wait in decided.waits]
    return decided.grants, waits, set(decided.evictions), set(decided.reserved), decided.next_change_at


@many
@given(snapshots(patient=False))
def test_five_more_passes_change_nothing(snapshot: Snapshot) -> None:
    decided = plan(snapshot, 0.0)
    after = applied(snapshot, decided)
    for _ in range(5):
        again = plan(after, 0.0)
        assert not again.grants
        assert not again.evictions
        after = applied(after, again)


@many
@given(snapshots())
def test_victims_are_whole_lower_preemptible_runs_and_only_where_nothing_is_free(snapshot: Snapshot) -> None:
    decided = plan(snapshot, 0.0)
    held = {holding.claim: holding for holding in snapshot.holdings}
    assert len({eviction.claim for eviction in decided.evictions}) == len(decided.evictions)
    for eviction in decided.evictions:
        victim, ask = held[eviction.claim], asked(snapshot)[eviction.for_claim]
        assert victim.preemptible
        assert not victim.stopping
        assert victim.priority < ask.priority
        assert any(row.claim == eviction.for_claim for row in decided.reserved)
        assert eviction.for_claim not in {grant.claim for grant in decided.grants}


@many
@given(snapshots(waiting=1, patient=False))
def test_every_victim_is_needed(snapshot: Snapshot) -> None:
    (ask,) = snapshot.asks
    decided = plan(snapshot, 0.0)
    evicted = {eviction.claim for eviction in decided.evictions}
    for spared in evicted:
        gone = evicted - {spared}
        left = replace(
            snapshot,
            holdings=tuple(h for h in snapshot.holdings if h.claim not in gone and not h.stopping),
        )
        rows = {row.machine: row.gpu_mask for row in decided.reserved}
        fits = [machine for machine in left.machines if machine.name in rows and machine_fits(machine, ask, left)]
        assert len(fits) < len(rows)


@many
@given(snapshots(patient=False))
def test_a_preemptor_is_placed_once_its_victims_are_gone(snapshot: Snapshot) -> None:
    decided = plan(snapshot, 0.0)
    preemptors = {eviction.for_claim for eviction in decided.evictions}
    then = plan(applied(snapshot, decided, victims_gone=True), 0.0)
    assert preemptors <= {grant.claim for grant in then.grants}


@many
@given(snapshots(patient=False))
def test_kept_room_is_given_to_nobody_else(snapshot: Snapshot) -> None:
    decided = plan(snapshot, 0.0)
    first = {wait.claim for wait in decided.waits if wait.reason.startswith("Waiting for")}
    kept: dict[str, int] = defaultdict(int)
    for row in decided.reserved:
        if row.claim in first:
            assert not kept[row.machine] & row.gpu_mask
            kept[row.machine] |= row.gpu_mask
    for grant in decided.grants:
        for member in grant.members:
            assert not kept[member.machine] & member.gpu_mask


@many
@given(snapshots())
def test_ranks_are_ordered_by_spine_leaf_and_machine(snapshot: Snapshot) -> None:
    machines = {machine.name: machine for machine in snapshot.machines}

    def order(grant: Grant) -> list[tuple[str, str, str]]:
        return [(machines[m.machine].spine or "~", machines[m.machine].leaf or "~", m.machine) for m in grant.members]

    for grant in plan(snapshot, 0.0).grants:
        if Rung.LEAF <= grant.rung <= Rung.FABRIC:
            assert order(grant) == sorted(order(grant))


@many
@given(snapshots())
def test_every_waiting_claim_is_told_why_in_order(snapshot: Snapshot) -> None:
    decided = plan(snapshot, 0.0)
    queue = [ask.claim for ask in in_order(snapshot.asks)]
    waiting = [wait.claim for wait in decided.waits]
    assert waiting == [claim for claim in queue if claim in set(waiting)]
    assert all(wait.reason and wait.blockers for wait in decided.waits)
    assert all(wait.claim < CLAIM_OF_LETTER for wait in decided.waits)


@many
@given(snapshots())
def test_the_plan_says_when_patience_ends(snapshot: Snapshot) -> None:
    decided = plan(snapshot, 0.0)
    waiting = {wait.claim for wait in decided.waits}
    ends = [ask.patience_until for ask in snapshot.asks if ask.claim in waiting and ask.patience_until > 0]
    assert decided.next_change_at == min(ends, default=None)
    later = plan(snapshot, 60.0)
    assert later.next_change_at is None


def test_every_rung_has_a_level() -> None:
    assert {level.rung for level in LEVELS} == set(Rung)
