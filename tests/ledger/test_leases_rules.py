"""The rules of machine leases as properties of pure functions."""

from hypothesis import given
from hypothesis import strategies as st

from astraeus.ledger.leases import HELD_SHARE, Beat, Verdict, Watch, judge, silence
from astraeus.model.agent import HEARTBEAT_SECONDS, LOST_AFTER_SECONDS, MISSED_BEATS

NOW = 1_000_000.0
ages = st.floats(0, 100, allow_nan=False)
beats = st.lists(st.tuples(ages, st.one_of(st.none(), ages)), min_size=1, max_size=30).map(
    lambda pairs: [
        Beat(f"m-{i:02}", NOW - heard, None if down is None else NOW - down) for i, (heard, down) in enumerate(pairs)
    ]
)
watches = st.builds(
    lambda resumed, held: Watch(NOW - resumed, NOW - 1, None if held is None else NOW - held),
    ages,
    st.one_of(st.none(), ages),
)


@given(watch=watches, fleet=beats)
def test_nobody_is_lost_who_was_heard_in_time(watch: Watch, fleet: list[Beat]) -> None:
    heard = {beat.name: beat for beat in fleet}
    for name in judge(NOW, watch, fleet).lost:
        assert NOW - heard[name].heard_at > LOST_AFTER_SECONDS
        assert silence(NOW, watch, heard[name]) > MISSED_BEATS * HEARTBEAT_SECONDS
        assert NOW - watch.resumed_at > LOST_AFTER_SECONDS
        assert heard[name].down_since is None


@given(watch=watches, fleet=beats)
def test_never_more_than_a_fifth_at_once_but_always_one(watch: Watch, fleet: list[Beat]) -> None:
    verdict = judge(NOW, watch, fleet)
    assert len(verdict.lost) <= max(1, int(HELD_SHARE * len(fleet)))
    assert not (verdict.lost and verdict.held)


@given(watch=watches, fleet=beats)
def test_whoever_is_silent_is_lost_unless_held_or_given_a_fresh_period(watch: Watch, fleet: list[Beat]) -> None:
    verdict = judge(NOW, watch, fleet)
    overdue = {beat.name for beat in fleet if beat.down_since is None} & {
        beat.name for beat in fleet if silence(NOW, watch, beat) > LOST_AFTER_SECONDS
    }
    fresh = verdict.watch.resumed_at == NOW
    assert verdict.held or fresh or set(verdict.lost) == overdue


@given(fleet=beats, gap=st.floats(10.1, 10_000), resumed=ages)
def test_after_a_gap_of_the_watch_nobody_is_lost(fleet: list[Beat], gap: float, resumed: float) -> None:
    verdict = judge(NOW, Watch(NOW - gap - resumed, NOW - gap), fleet)
    assert verdict.lost == ()
    assert verdict.watch.resumed_at == NOW


@given(watch=watches, fleet=beats)
def test_a_hold_raises_one_alarm(watch: Watch, fleet: list[Beat]) -> None:
    first = judge(NOW, watch, fleet)
    second = judge(NOW, first.watch, fleet)
    assert not second.alarm
    assert not first.alarm or (first.held and second.watch.held_since == first.watch.held_since)


def outage(size: int, spread: float, seconds: int) -> list[Verdict]:
    """A whole cluster falls silent within `spread` seconds, and comes back one by one, watched each second."""
    watch, verdicts = Watch(NOW - 3600, NOW - 1), []
    for second in range(seconds + 30):
        now = NOW + second
        heard = [now if second >= seconds + i else NOW - spread * i / size for i in range(size)]
        verdicts.append(judge(now, watch, [Beat(f"m-{i}", at) for i, at in enumerate(heard)]))
        watch = verdicts[-1].watch
    return verdicts


@given(size=st.integers(2, 14), spread=st.floats(0, HEARTBEAT_SECONDS), seconds=st.integers(1, 60))
def test_an_outage_of_our_own_loses_no_machine_also_while_they_come_back(
    size: int, spread: float, seconds: int
) -> None:
    verdicts = outage(size, spread, seconds)
    assert [one.lost for one in verdicts] == [()] * len(verdicts)
    assert sum(one.alarm for one in verdicts) <= 1
    assert any(one.alarm for one in verdicts) or seconds < 18
