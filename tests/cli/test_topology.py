"""Scans and measurements from the command line."""

import base64
import gzip
import os
from pathlib import Path
from typing import Any

import pytest
from cli.fake_api import FakeApi

from astraeus.cli import scanning

DONE = {
    "id": "1",
    "state": "applied",
    "why": None,
    "fabrics": ["sm-0x1"],
    "machines": 16,
    "machines_changed": 16,
    "findings": {"opened": 2, "stayed": 1, "closed": 0},
    "runs": ["resnet"],
    "unread": 1,
    "problems": [{"source": "ibnetdiscover", "line": 7, "text": "what\x1b[2J"}],
}


def test_files_are_handed_over(astra: Any, api: FakeApi, tmp_path: Path) -> None:
    api.on("POST /topology/scan", DONE)
    (tmp_path / "net.txt").write_text("Switch")
    (tmp_path / "large.txt").write_bytes(b"x" * 100_000)
    (tmp_path / "any.gz").write_bytes(gzip.compress(b"y"))
    shown = astra("topology", "scan", "--ibnetdiscover", "net.txt", "--sminfo", "large.txt", "any.gz", "--cluster", "b")
    assert shown.exit_code == 0, shown.output
    (request,) = api.requests
    assert request["query"] == {"cluster": ["b"]}
    first, second, third = request["body"]["outputs"]
    assert gzip.decompress(base64.b64decode(first["gzip"])) == b"y"
    assert (first["tool"], second, third["tool"]) == (None, {"tool": "ibnetdiscover", "text": "Switch"}, "sminfo")
    assert len(base64.b64decode(third["gzip"])) < 1000
    assert "sm-0x1: 16 machines, 16 changed" in shown.output
    assert "Findings: 2 new, 1 as before, 0 closed" in shown.output
    assert "The network changed for resnet" in shown.output
    assert "ibnetdiscover line 7: what\\x1b[2J" in shown.output


def test_a_held_scan(astra: Any, api: FakeApi) -> None:
    api.on("POST /topology/scan", {**DONE, "state": "held", "why": "sm-0x1 lost 64 of 277 links (23%)"})
    shown = astra("topology", "scan", "--ibnetdiscover", "-", "--force", input="text")
    assert shown.output.splitlines()[0] == "The scan is held: sm-0x1 lost 64 of 277 links (23%)"
    assert api.requests[0]["body"] == {"outputs": [{"tool": "ibnetdiscover", "text": "text"}], "force": True}
    api.on("POST /topology/held:apply", DONE)
    api.on("POST /topology/held:discard", None, 204)
    api.on("DELETE /topology", None, 204)
    assert astra("topology", "apply").exit_code == 0
    assert "dropped" in astra("topology", "discard").output
    assert "forgotten" in astra("topology", "forget").output
    held = {"actor": "ada", "why": "too much"}
    api.on("GET /topology", {"clusters": [], "fabrics": [], "held": held})
    assert "A scan by ada is held: too much" in astra("topology").output


def test_without_files_the_tools_are_run_here(
    astra: Any, api: FakeApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    api.on("POST /topology/scan", DONE)
    tool = tmp_path / "ibnetdiscover"
    tool.write_text("#!/bin/sh\necho 'the network'\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.defpath}")
    monkeypatch.setattr(scanning, "COMMANDS", {"ibnetdiscover": ["ibnetdiscover"], "sminfo": ["no-such-tool"]})
    shown = astra("topology", "scan", "--json")
    assert api.requests[0]["body"]["outputs"] == [{"tool": "ibnetdiscover", "text": "the network\n"}]
    assert "sminfo cannot be run here" in shown.output
    tool.write_text("#!/bin/sh\necho 'no umad' >&2; exit 1\n")
    shown = astra("topology", "scan")
    assert (shown.exit_code, shown.output.splitlines()[-1]) == (1, "astra: no network was seen from here; no umad")
    assert len(api.requests) == 1


def test_again_and_again(astra: Any, api: FakeApi, monkeypatch: pytest.MonkeyPatch) -> None:
    """A scan that fails is followed by the next."""
    rounds: list[int] = []

    def once(*_: Any) -> None:
        rounds.append(1)
        if len(rounds) == 1:
            scanning._run_tools()
        if len(rounds) == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr(scanning, "COMMANDS", {"ibnetdiscover": ["no-such-tool"]})
    monkeypatch.setattr(scanning, "_scan_once", once)
    monkeypatch.setattr(scanning.time, "sleep", lambda seconds: None)
    assert astra("topology", "scan", "--every", "60").exit_code == 130
    assert len(rounds) == 3
    assert astra("topology", "scan", "--every", "60", "some-file").exit_code == 2


def test_measured(astra: Any, api: FakeApi) -> None:
    standing = {"rung": "leaf", "gpu_model": "h100", "value": 0.88, "measurements": 3}
    api.on("POST /topology/measured", standing, 201)
    api.items("GET /topology/measured", [standing])
    shown = astra(
        "topology", "measured", "add", "352", "--rung", "leaf", "--gpu-model", "H100", "--rails", "8", "--gbps", "400"
    )
    assert shown.output == "leaf on h100: 0.88, the median of 3 measurements\n"
    body = {"busbw_gbps": 352.0, "rung": "leaf", "gpu_model": "H100", "rails": 8, "gbps": 400.0}
    assert api.requests[0]["body"] == body
    astra("topology", "measured", "add", "352", "--run", "resnet")
    assert api.requests[1]["body"] == {"busbw_gbps": 352.0, "run": "resnet"}
    assert astra("topology", "measured", "list").output.splitlines()[1].split() == ["leaf", "h100", "0.88", "3"]


def test_export(astra: Any, api: FakeApi) -> None:
    api.on("GET /topology/export/slurm", b"SwitchName=a Nodes=n[1-2]\n")
    assert astra("topology", "export", "slurm").output == "SwitchName=a Nodes=n[1-2]\n"
    assert astra("topology", "export", "nomad").exit_code == 2
