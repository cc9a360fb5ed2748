"""A short run of the harness, always from the same seeds, and what it promises of seeds."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from chaos.schedule import schedule

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("ledger", [(), ("--postgresql",)], ids=["sqlite", "postgresql"])
def test_two_minutes_of_kills_hurt_no_run(tmp_path: Path, ledger: tuple[str, ...]) -> None:
    report = tmp_path / "chaos.json"
    command = [sys.executable, "-m", "tests.chaos", "--seed", "11", "--minutes", "2", "--report", str(report), *ledger]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    told = json.loads(report.read_text())
    assert told["seed"] == 11
    assert told["violations"] == told["preemptions_charged"] == 0
    assert told["kills"] > 3
    assert told["runs"] > 10


def test_a_seed_gives_its_schedule_again_and_another_gives_another() -> None:
    assert schedule(7, 600, True) == schedule(7, 600, True)
    assert schedule(7, 600) != schedule(8, 600)


@pytest.mark.parametrize("seed", range(50))
def test_never_so_many_machines_are_away_that_every_declaration_is_held(seed: int) -> None:
    away: set[str] = set()
    for deed in schedule(seed, 1200).cuts:
        if deed.what in ("off", "unplug"):
            away.add(deed.target)
        else:
            away.discard(deed.target)
        assert len(away) <= 2
