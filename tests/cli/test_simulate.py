"""`astra simulate`."""

import builtins
import json
from pathlib import Path
from typing import Any

import pytest

TRACE = "submit_s,gpus,duration_s\n0,8,60\n5,64,120\n"
FLEET = str(Path(__file__).parents[2] / "deploy" / "fleets" / "two-fabrics.yaml")


def test_a_trace_on_a_fleet(astra: Any, home: Path) -> None:
    (home / "t.csv").write_text(TRACE)
    result = astra("simulate", "t.csv", "--fleet", FLEET)
    assert result.exit_code == 0, result.output
    assert "Jobs:        2 finished, 0 never placed" in result.output
    assert "of 128 GPUs while jobs came" in result.output
    assert result.output.splitlines()[-1].split() == ["9-64", "1", "0", "s", "0", "s", "0", "s"]


def test_generated_jobs_for_programs(astra: Any) -> None:
    arguments = ("simulate", "--generate", "30", "--load", "0.9", "--seed", "4", "--failures", "6.5", "--json")
    figures = json.loads(astra(*arguments).output)
    assert figures["finished"] + figures["too_large"] == 30
    assert figures == json.loads(astra(*arguments).output)


def test_it_is_drawn(astra: Any, home: Path) -> None:
    pytest.importorskip("matplotlib")
    assert astra("simulate", "--generate", "20", "--png", "a.png").exit_code == 0
    assert (home / "a.png").read_bytes().startswith(b"\x89PNG")


def test_without_the_extra_it_says_what_to_install(astra: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *rest: Any) -> Any:
        if name.startswith("matplotlib"):
            raise ImportError(name)
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without)
    result = astra("simulate", "--generate", "5", "--png", "a.png")
    assert result.exit_code == 1
    assert "astraeus-orchestrator[sim]" in result.output


@pytest.mark.parametrize("arguments", [(), ("t.csv", "--generate", "5"), ("--generate", "5", "--keep-within", "moon")])
def test_wrong_use_is_said(astra: Any, home: Path, arguments: tuple[str, ...]) -> None:
    (home / "t.csv").write_text(TRACE)
    assert astra("simulate", *arguments).exit_code == 2
