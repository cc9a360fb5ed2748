"""Every scenario under scenarios/: a drawn fleet, what is asked of it, and what must come of it."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from placement.drawing import applied, ask, draw, picture, settled

from astraeus.placement.planner import plan
from astraeus.placement.types import HALF_LIFE_SECONDS, Allotment, Plan, Snapshot

FILES = sorted((Path(__file__).parent / "scenarios").glob("*.yaml"))
SCENARIOS = [
    pytest.param(scenario, id=f"{path.stem}: {scenario['title']}")
    for path in FILES
    for scenario in yaml.safe_load(path.read_text(encoding="utf-8"))
]


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_scenario(scenario: dict[str, Any]) -> None:
    snapshot = draw(scenario["fleet"], scenario.get("runs"))
    asks = [ask(name, i + 1, **values) for i, (name, values) in enumerate(scenario["asks"].items())]
    snapshot = Snapshot(
        snapshot.cluster,
        snapshot.machines,
        snapshot.holdings,
        tuple(asks),
        factors=scenario.get("factors", {}),
        allotments={name: Allotment(**due) for name, due in scenario.get("allotments", {}).items()},
        half_life_seconds=scenario.get("half_life", HALF_LIFE_SECONDS),
    )
    now = float(scenario.get("now", 0))
    decided = plan(snapshot, now)
    names = {found.claim: found.run_name for found in asks}
    _check_grants(scenario.get("grants", {}), decided, names)
    _check_waits(scenario.get("waits", {}), decided, names)
    evicted = sorted(
        f"{eviction.run_uid.removeprefix('uid-')} for {eviction.for_run}" for eviction in decided.evictions
    )
    assert evicted == sorted(scenario.get("evicts", []))
    if "next_change_at" in scenario:
        assert decided.next_change_at == scenario["next_change_at"]
    after = settled(snapshot, decided, now)
    if "after" in scenario:
        assert picture(after) == dict(line.split() for line in scenario["after"].splitlines())
    if "then" in scenario:
        freed = applied(snapshot, decided, victims_gone=True)
        then = plan(freed, now)
        _check_grants(scenario["then"], then, names)
        assert not then.evictions


def _check_grants(expected: dict[str, Any], decided: Plan, names: dict[int, str]) -> None:
    assert sorted(expected) == sorted(names[grant.claim] for grant in decided.grants)
    for grant in decided.grants:
        wanted = expected[names[grant.claim]]
        estimate = grant.place.estimate
        got = {
            "rung": int(grant.rung),
            "network": grant.place.network,
            "words": grant.place.words,
            "busbw": None if estimate is None else estimate.busbw_gbps,
            "basis": None if estimate is None else estimate.basis,
            "machines": " ".join(member.machine for member in grant.members),
            "masks": [member.gpu_mask for member in grant.members],
            "hcas": [len(member.hcas) for member in grant.members],
            "gpus": [member.gpu_mask.bit_count() for member in grant.members],
        }
        assert {key: got[key] for key in wanted} == wanted


def _check_waits(expected: dict[str, str], decided: Plan, names: dict[int, str]) -> None:
    assert [wait.position for wait in decided.waits] == list(range(1, len(decided.waits) + 1))
    got = {names[wait.claim]: wait.reason for wait in decided.waits}
    assert got == expected
