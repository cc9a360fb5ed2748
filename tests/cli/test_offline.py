"""`astra plan`: a pass repeated offline, over the fleet as it is or as it might be."""

import json
import tarfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from cli.fake_api import FakeApi
from placement.test_changed import fleet

from astraeus.cli import output
from astraeus.placement import jsonform
from astraeus.placement.planner import plan

NOW = 1000.0


@pytest.fixture
def file(home: Path) -> str:
    (home / "s.json").write_bytes(jsonform.write_input(fleet(), NOW))
    return "s.json"


def test_the_plan_is_repeated_and_printed(astra: Any, file: str) -> None:
    result = astra("plan", "--snapshot", file)
    assert result.exit_code == 0, result.output
    lines = result.output.splitlines()
    assert lines[0] == "lab: 6 machines, 0 start, 1 wait, 0 make room"
    reason = plan(fleet(), NOW).waits[0].reason
    assert lines[2].split(None, 3) == ["wide", "waits", "unknown", f"1. {reason}"]
    again = jsonform.read_plan(astra("plan", "--snapshot", file, "--json").output)
    assert again == plan(fleet(), NOW)


def test_what_if_the_fleet_were_another(astra: Any, file: str) -> None:
    grown = astra("plan", "--snapshot", file, "--with-machines", "4").output
    assert "10 machines (+4), 1 start, 0 wait" in grown
    assert "wide  starts" in grown
    assert "added-00000, added-00001, added-00002, added-00003" in grown
    less = astra("plan", "--snapshot", file, "--without", "leaf-b", "--without", "a-0").output
    assert "3 machines (-3)" in less
    assert "Ended with what was taken out: run-1, run-2" in less
    unknown = astra("plan", "--snapshot", file, "--without", "leaf-z")
    assert unknown.exit_code == 3


def test_what_if_tells_how_starts_would_move(astra: Any, home: Path) -> None:
    limited = replace(fleet(), holdings=tuple(replace(held, ends_at=NOW + 600) for held in fleet().holdings))
    (home / "l.json").write_bytes(jsonform.write_input(limited, NOW))
    ends = output.clock("1970-01-01T00:26:40Z")
    assert f"  {ends}  1. " in astra("plan", "--snapshot", "l.json").output
    assert json.loads(astra("plan", "--snapshot", "l.json", "--json").output)["waits"][0]["starts_by"] == NOW + 600
    less = astra("plan", "--snapshot", "l.json", "--without", "leaf-b", "--without", "a-0")
    assert f"wide  waits  unknown (was {ends})  1. " in less.output


def test_without_a_file_the_api_is_asked(astra: Any, api: FakeApi) -> None:
    api.on("GET /snapshot", json.loads(jsonform.write_input(fleet(), NOW)))
    assert astra("plan").output.startswith("lab: 6 machines")


def test_a_bundle_holds_the_snapshot_as_it_is(astra: Any, api: FakeApi, home: Path) -> None:
    api.on("GET /snapshot", json.loads(jsonform.write_input(fleet(), NOW)))
    assert astra("bundle", "-o", "b.tar.gz", "--snapshot").exit_code == 0
    assert astra("plan", "--snapshot", "b.tar.gz").output.startswith("lab: 6 machines")
    assert astra("bundle", "-o", "c.tar.gz").exit_code == 0
    result = astra("plan", "--snapshot", "c.tar.gz")
    assert result.exit_code == 2
    assert "astra bundle --snapshot" in result.output
    with tarfile.open(home / "c.tar.gz") as archive:
        assert "astra-bundle/snapshot.json" not in archive.getnames()


@pytest.mark.parametrize("content", [None, b"{}", b"\x1f\x8bno"])
def test_what_cannot_be_read_is_said(astra: Any, home: Path, content: bytes | None) -> None:
    if content is not None:
        (home / "x").write_bytes(content)
    result = astra("plan", "--snapshot", "x")
    assert result.exit_code in (1, 2)
    assert result.output.startswith("astra: ")
    assert len(result.output.splitlines()) == 1
