"""Error counters are judged by what they counted lately, whatever they stood at before."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.fabrics import A, B, everything, inventory, truth, with_counters

from astraeus.topology.counting import JUDGED_SECONDS, WINDOW_SECONDS, Growth, Reading, growth, kept, suspicious
from astraeus.topology.derive import Derived, derive
from astraeus.topology.identity import Known
from astraeus.topology.scan import Scan

PORT = 0x10, 4
SYMBOLS = "SymbolErrorCounter"


def readings(*values: tuple[float, dict[str, int]]) -> tuple[Reading, ...]:
    return tuple(Reading(at, {PORT: found} if found else {}) for at, found in values)


def grown(name: str, *values: tuple[float, int]) -> Growth | None:
    return growth(readings(*((at, {name: value} if value else {}) for at, value in values)), PORT).get(name)


def bad(name: str, *values: tuple[float, int]) -> bool:
    found = grown(name, *values)
    return found is not None and suspicious(name, found)


def test_one_reading_tells_no_rate_and_is_not_passed_over() -> None:
    assert grown(SYMBOLS, (0, 4711)) == Growth(4711, None, 0)
    assert bad(SYMBOLS, (0, 4711))
    assert bad(SYMBOLS, (0, 4711), (JUDGED_SECONDS - 1, 4711))


def test_what_was_counted_between_two_scans_is_known_however_near_they_are() -> None:
    assert grown(SYMBOLS, (0, 0), (20, 4711)) == Growth(4711, 4711, 20)
    assert grown(SYMBOLS, (0, 100), (20, 4711)) == Growth(4711, 4611, 20)
    assert not bad(SYMBOLS, (0, 0), (20, 5))


def test_what_no_longer_grows_is_no_fault() -> None:
    assert not bad(SYMBOLS, (0, 4711), (600, 4711))
    assert not bad("LinkDownedCounter", (0, 3), (600, 3))


@pytest.mark.parametrize(
    ("name", "grew", "seconds", "is_bad"),
    [
        (SYMBOLS, 120, 3600, False),
        (SYMBOLS, 121, 3600, True),
        (SYMBOLS, 121, 600, True),
        (SYMBOLS, 60, 600, False),
        (SYMBOLS, 2880, 86400, False),
        (SYMBOLS, 2881, 86400, True),
        ("LinkErrorRecoveryCounter", 250, 3600, False),
        ("LinkDownedCounter", 1, 86400, True),
        ("LocalLinkIntegrityErrors", 1, 3600, True),
        ("ExcessiveBufferOverrunErrors", 1, 3600, True),
        ("PortRcvErrors", 100, 3600, False),
        ("PortRcvErrors", 200, 3600, True),
    ],
)
def test_limits(name: str, grew: int, seconds: float, is_bad: bool) -> None:
    assert bad(name, (0, 3), (seconds, 3 + grew)) == is_bad


def test_a_counter_that_was_cleared_counts_from_nothing() -> None:
    assert grown(SYMBOLS, (0, 4711), (1800, 30), (3600, 50)) == Growth(50, 50, 3600)
    assert grown(SYMBOLS, (0, 4711), (1800, 0), (3600, 50)) == Growth(50, 50, 3600)


def test_a_port_that_was_not_read_once_has_not_counted_everything_anew() -> None:
    assert grown(SYMBOLS, (0, 4711), (1800, 0), (3600, 4720)) == Growth(4720, 9, 3600)


def test_a_counter_at_its_end_tells_nothing_until_it_is_cleared() -> None:
    full = grown(SYMBOLS, (0, 0xFFFF), (3600, 0xFFFF))
    assert full == Growth(0xFFFF, None, 3600, full=True)
    assert bad("LinkDownedCounter", (0, 0xFF), (3600, 0xFF))
    assert bad(SYMBOLS, (0, 65000), (3600, 0xFFFF))
    assert not bad(SYMBOLS, (0, 0x10000), (3600, 0x10000))


TIMES = st.lists(st.floats(0, 1e6), min_size=1, max_size=40, unique=True).map(sorted)


@given(TIMES)
def test_enough_is_kept_for_the_window_and_no_more(times: list[float]) -> None:
    found: tuple[Reading, ...] = ()
    for at in times:
        found = kept(found, Reading(at, {}))
        assert found[-1].at == at
        assert len(found) <= WINDOW_SECONDS / JUDGED_SECONDS + 2
        if any(earlier <= at - WINDOW_SECONDS - JUDGED_SECONDS for earlier in times):
            assert found[0].at <= at - WINDOW_SECONDS + JUDGED_SECONDS
    assert [one.at for one in found] == sorted(one.at for one in found)


def again(before: Derived, found: Scan, at: float) -> Derived:
    known: list[Known] = [one.known for one in before.fabrics]
    return derive(found, inventory(B), known, at=at)


def counted(found: Derived) -> dict[str, str]:
    return {one.place: one.message for one in found.findings if one.kind in ("errors", "congested")}


def test_findings_follow_the_rate() -> None:
    errors = truth(B)["faults"][7]
    place = f"{errors['leaf']} port {errors['leaf_port']}"
    first = derive(with_counters(B), inventory(B), at=0)
    assert len(counted(first)) == 2
    assert counted(again(first, with_counters(B), 60)) == counted(first)
    assert counted(again(first, with_counters(B), 3600)) == {}
    more = with_counters(B)
    (end,) = [end for end, found in more.counters.items() if SYMBOLS in found]
    more.counters[end] = {name: value + 500 for name, value in more.counters[end].items()}
    told = again(first, more, 3600)
    assert list(counted(told)) == [place]
    assert f"{SYMBOLS} 500 in 60 minutes, more than 120 an hour" in counted(told)[place]
    (one,) = [one for one in told.findings if one.kind == "errors"]
    assert one.detail["grew"][SYMBOLS] == 500
    assert counted(again(told, more, 7300)) == {}


def test_a_scan_without_counters_keeps_what_was_read() -> None:
    first = derive(with_counters(B), inventory(B), at=0)
    second = again(first, everything(B), 3600)
    assert counted(second) == {}
    assert second.fabrics[0].known.readings == first.fabrics[0].known.readings
    assert derive(everything(A), inventory(A)).fabrics[0].known.readings == ()
