"""Which leaf groups a gang crosses into, and which machines are kept for one that must wait."""

from collections import Counter
from itertools import accumulate

from hypothesis import given, settings
from hypothesis import strategies as st
from placement.drawing import applied, ask, draw

from astraeus.placement.planner import plan
from astraeus.placement.types import Snapshot

LEAF = 6
many = settings(max_examples=200, deadline=None, derandomize=True)
frees = st.lists(st.integers(0, LEAF), min_size=2, max_size=7)


def fleet(free: list[int], machines: int, runs: dict[str, dict[str, int | None]] | None = None) -> Snapshot:
    """Leaf groups of which so many machines are free, the rest held by a run each, and a gang of whole machines."""
    lines = ["fabric f", "spine s"]
    for leaf, count in enumerate(free):
        lines.append(f"leaf l{leaf}")
        lines += [f"m{leaf}-{i} {'.' * 8 if i < count else chr(ord('a') + leaf) * 8}" for i in range(LEAF)]
    snapshot = draw("\n".join(lines), runs)
    gang = ask("N", 1, gpus=8 * machines, machines=machines)
    return Snapshot(snapshot.cluster, snapshot.machines, snapshot.holdings, (gang,))


def leaves(names: list[str]) -> Counter[int]:
    return Counter(int(name[1]) for name in names)


@many
@given(frees, st.data())
def test_a_gang_crosses_into_the_fewest_leaf_groups_uses_up_remnants_and_is_even_over_them(
    free: list[int], data: st.DataObject
) -> None:
    if sum(free) <= max(free):
        return
    size = data.draw(st.integers(max(free) + 1, sum(free)))
    (grant,) = plan(fleet(free, size), 0.0).grants
    used = leaves([member.machine for member in grant.members])
    fewest = next(k for k, most in enumerate(accumulate(sorted(free, reverse=True)), 1) if most >= size)
    assert len(used) == fewest
    left_over = sum(free[leaf] for leaf in used) - size
    for leaf in used:
        for other in set(range(len(free))) - set(used):
            assert not free[leaf] > free[other] >= free[leaf] - left_over, "a smaller group would have done"
    assert all(count == free[leaf] or count >= max(used.values()) - 1 for leaf, count in used.items())


@many
@given(frees, st.data())
def test_what_is_kept_for_a_gang_is_free_in_time_and_in_the_fewest_leaf_groups(
    free: list[int], data: st.DataObject
) -> None:
    if sum(free) == LEAF * len(free):
        return
    size = data.draw(st.integers(max(2, sum(free) + 1), LEAF * len(free)))
    ends = data.draw(st.lists(st.sampled_from([10, 20, None]), min_size=len(free), max_size=len(free)))
    snapshot = fleet(free, size, {chr(ord("a") + leaf): {"ends_at": end} for leaf, end in enumerate(ends)})
    decided = plan(snapshot, 0.0)
    last = next((t for t in (10, 20) if sum(_ready(free, ends, t)) >= size), None)
    kept = leaves([row.machine for row in decided.reserved])
    assert sum(kept.values()) == size
    assert decided.waits[0].starts_by == last
    if last is None:
        ready = sum(int(row.machine[3:]) < _ready(free, ends, 20)[int(row.machine[1])] for row in decided.reserved)
        assert ready == sum(_ready(free, ends, 20)), "whatever is free or will be is kept"
    else:
        most = accumulate(sorted(_ready(free, ends, last), reverse=True))
        assert len(kept) == next(k for k, held in enumerate(most, 1) if held >= size)
    again = plan(applied(snapshot, decided), 0.0)
    assert set(again.reserved) == set(decided.reserved)


def _ready(free: list[int], ends: list[int | None], by: int) -> list[int]:
    """The machines of each leaf group that are free by a time."""
    return [LEAF if end is not None and end <= by else count for count, end in zip(free, ends, strict=True)]
