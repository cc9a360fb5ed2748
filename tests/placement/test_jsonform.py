"""A pass that is written down and read again is the same pass."""

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from placement.fleets import allotments, snapshots

from astraeus.model.errors import Invalid
from astraeus.model.spec import Resources
from astraeus.placement import jsonform
from astraeus.placement.planner import plan
from astraeus.placement.types import Ask, Snapshot

many = settings(max_examples=80, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))


@many
@given(snapshots(), st.floats(0, 2e9), st.just({}) | allotments())
def test_an_input_comes_back_equal_and_gives_the_same_plan(snapshot: Snapshot, now: float, due: Any) -> None:
    snapshot = replace(snapshot, allotments=due, half_life_seconds=100.0)
    text = jsonform.write_input(snapshot, now)
    again = jsonform.read_input(text)
    assert again == jsonform.Input(snapshot, now)
    # What other programs' JSON does to it: decoded and encoded, as the client does.
    assert jsonform.read_input(json.dumps(json.loads(text))) == again
    assert plan(again.snapshot, again.now) == plan(snapshot, now)


@many
@given(snapshots())
def test_a_plan_comes_back_equal(snapshot: Snapshot) -> None:
    decided = plan(snapshot, 0.0)
    assert jsonform.read_plan(jsonform.write_plan(decided)) == decided


def test_times_without_end_come_back() -> None:
    ask = Ask(1, "u", "r", "a/w", 1, Resources(), 0, 0.0, float("inf"), frozenset({"m-1"}))
    snapshot = Snapshot("c", (), asks=(ask,))
    assert jsonform.read_input(jsonform.write_input(snapshot, 0.0)).snapshot == snapshot


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[]", "the file"),
        ("", "the file"),
        ('{"now": 1}', "snapshot"),
        ('{"format": "astraeus-snapshot/9", "now": 1, "snapshot": {"cluster": "c", "machines": []}}', "format"),
    ],
)
def test_what_is_no_snapshot_is_said(text: str, said: str) -> None:
    with pytest.raises(Invalid, match=f"no snapshot of the form {jsonform.FORMAT}: {said}"):
        jsonform.read_input(text)
