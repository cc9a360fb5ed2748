"""Passes reported from the field stay as they were decided: each `reports/NAME.json` and its `NAME.plan.json`.

The first is the snapshot.json of `astra bundle --snapshot`, the second what `astra plan --json` says of it.
"""

from pathlib import Path

import pytest

from astraeus.placement.jsonform import read_input, read_plan
from astraeus.placement.planner import plan

REPORTS = sorted(path for path in (Path(__file__).parent / "reports").glob("*.json") if ".plan" not in path.name)


@pytest.mark.parametrize("report", REPORTS, ids=lambda path: path.stem)
def test_the_plan_is_what_it_was(report: Path) -> None:
    given = read_input(report.read_bytes())
    assert plan(given.snapshot, given.now) == read_plan(report.with_suffix(".plan.json").read_bytes())
