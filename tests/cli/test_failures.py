"""How a call can fail: the exit code, one sentence on the error stream, nothing on the other."""

import json
import socket
from pathlib import Path
from typing import Any

import pytest
from cli.fake_api import TOKEN, FakeApi

BYTE = "\udcff"
"""How an argument holds the byte ff."""


@pytest.mark.parametrize(
    ("status", "code"), [(400, 1), (401, 4), (403, 4), (404, 3), (409, 1), (413, 1), (422, 1), (500, 1), (503, 5)]
)
def test_exit_codes_of_refusals(astra: Any, api: FakeApi, status: int, code: int) -> None:
    api.refuse("GET /runs/a", status, "some-code", "The sentence.")
    result = astra("get", "a")
    assert (result.exit_code, result.stdout, result.stderr) == (code, "", "astra: The sentence.\n")


def test_a_server_that_is_away_ends_with_5(astra: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        monkeypatch.setenv("ASTRALYX_API", f"http://127.0.0.1:{taken.getsockname()[1]}/api/o/a/w/b")
        result = astra("runs")
    assert result.exit_code == 5
    assert "cannot be reached" in result.stderr


def test_a_wrong_token_ends_with_4(astra: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ASTRALYX_TOKEN", "ast_1_bad")
    result = astra("runs")
    assert result.exit_code == 4
    assert "unknown, expired or revoked" in result.stderr


def test_an_address_that_is_no_api_is_told(astra: Any, api: FakeApi) -> None:
    api.on("GET /runs", b"<html>hello</html>")
    result = astra("runs")
    assert result.exit_code == 1
    assert "is not an Astraeus API" in result.stderr


def test_without_an_address_the_ways_to_give_one_are_told(
    astra: Any, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("ASTRALYX_API")
    monkeypatch.delenv("ASTRALYX_TOKEN")
    result = astra("runs")
    assert result.exit_code == 2
    assert "astra login" in result.stderr
    assert "ASTRALYX_API" in result.stderr


def test_a_sentence_of_the_server_cannot_drive_the_terminal(astra: Any, api: FakeApi) -> None:
    api.refuse("GET /runs/a", 409, "conflict", "bad \x1b[2J\x07 name\nastra: all is well")
    assert astra("get", "a").stderr == "astra: bad \\x1b[2J\\x07 name\\nastra: all is well\n"


@pytest.mark.parametrize("command", ["cancel", "delete", "attempts", "explain", "events", "preempt"])
def test_a_run_that_is_not_there_ends_with_3(astra: Any, command: str) -> None:
    assert astra(command, "nobody").exit_code == 3


def test_logs_of_a_name_that_is_no_worker(astra: Any, api: FakeApi) -> None:
    result = astra("logs", "resnet")
    assert result.exit_code == 3
    assert "workers are RUN-RANK, such as resnet-0" in result.stderr
    assert not api.requests


@pytest.mark.parametrize(
    "arguments",
    [
        ("get", BYTE),
        ("cancel", "a", "--why", BYTE),
        ("runs", "--name", BYTE),
        ("logs", f"{BYTE}-0"),
        ("secrets", "delete", BYTE),
        ("tokens", "revoke", BYTE),
        ("run", "-t", "a", "-n", "a", "--set", f"spec.x={BYTE}"),
    ],
)
def test_a_byte_that_is_no_text_ends_with_2(astra: Any, api: FakeApi, arguments: tuple[str, ...]) -> None:
    result = astra(*arguments)
    assert (result.exit_code, result.stderr) == (2, "astra: what was given is not UTF-8 text\n")
    assert not api.requests


def test_a_name_too_long_for_an_address_ends_with_2(astra: Any, api: FakeApi) -> None:
    result = astra("get", "a" * 70_000)
    assert (result.exit_code, result.stderr) == (2, "astra: what was given cannot be sent: URL too long\n")


def test_a_token_that_is_no_token_ends_with_2_and_is_not_shown(
    astra: Any, api: FakeApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert astra("--token-file", "-", "runs", input=b"\xff").exit_code == 2
    for token in ("caf\u00e9", "two\nlines"):
        monkeypatch.setenv("ASTRALYX_TOKEN", token)
        result = astra("runs")
        assert (result.exit_code, result.stderr) == (2, "astra: the token has characters in it that no token has\n")
    assert not api.requests


def test_names_are_quoted_into_paths_so_that_none_reaches_another(astra: Any, api: FakeApi) -> None:
    astra("cancel", "a..b?x#y%2f")
    assert [(request["path"], request["query"]) for request in api.requests] == [("/runs/a..b?x#y%2f:cancel", {})]


@pytest.mark.parametrize("name", ["r1/attempts", "a/../b", "..", ".", ""])
def test_what_would_lead_elsewhere_is_no_name(astra: Any, api: FakeApi, name: str) -> None:
    for command in (("get",), ("attempts",), ("cancel",), ("templates", "show"), ("secrets", "delete")):
        result = astra(*command, name)
        assert result.exit_code == 3
        assert result.stderr == f"astra: {name!r} is not a name\n"
    assert not api.requests


def test_no_command_shows_the_help_and_ends_with_2(astra: Any) -> None:
    result = astra()
    assert result.exit_code == 2
    assert "Usage" in result.output
    assert astra("--help").exit_code == 0


def test_an_unknown_command_ends_with_2(astra: Any) -> None:
    assert astra("rums").exit_code == 2


class TestConfiguration:
    def write_dev(self, home: Path, api: str, token: str, console: str) -> None:
        (home / "dev").mkdir()
        (home / "dev" / "dev.json").write_text(json.dumps({"api": api, "token": token, "console": console}))

    def test_login_stores_what_later_calls_use(
        self, astra: Any, api: FakeApi, home: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.delenv("ASTRALYX_API")
        monkeypatch.delenv("ASTRALYX_TOKEN")
        api.items("GET /clusters", [])
        api.items("GET /runs", [])
        assert astra("login", api.base + "/", input=TOKEN + "\n").exit_code == 0
        stored = home / "config" / "astra" / "config.toml"
        assert stored.stat().st_mode & 0o777 == 0o600
        assert astra("runs").exit_code == 0

    def test_login_with_a_wrong_token_stores_nothing(self, astra: Any, api: FakeApi, home: Path) -> None:
        assert astra("login", api.base, input="ast_1_bad\n").exit_code == 4
        assert not (home / "config").exists()

    def test_a_local_stack_is_found_by_its_file(
        self, astra: Any, api: FakeApi, home: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.delenv("ASTRALYX_API")
        monkeypatch.delenv("ASTRALYX_TOKEN")
        self.write_dev(home, api.base, TOKEN, "http://console.test")
        api.on("POST /runs", {"metadata": {"name": "a"}, "cluster": "lab-a"}, 201)
        result = astra("run", "-f", "-", input="{}")
        assert result.output == "a submitted to lab-a: http://console.test/o/acme/w/vision/runs/lab-a/a\n"

    def test_a_stored_token_never_goes_to_another_address(
        self, astra: Any, api: FakeApi, home: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.delenv("ASTRALYX_TOKEN")
        self.write_dev(home, "http://127.0.0.1:1/api/o/a/w/b", "ast_1_other", "http://127.0.0.1:1")
        result = astra("runs")
        assert result.exit_code == 2
        assert "no token for" in result.stderr
        assert not api.requests

    def test_flags_come_first_also_after_the_middle_word(
        self, astra: Any, api: FakeApi, home: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("ASTRALYX_API", "http://127.0.0.1:1/api/o/a/w/b")
        (home / "token").write_text(TOKEN + "\n")
        api.items("GET /runs", [])
        assert astra("--api", api.base, "--token-file", "token", "runs").exit_code == 0
        assert astra("--api", api.base, "astraeus", "--token-file", "token", "runs").exit_code == 0
        assert astra("--api", api.base, "--token-file", "-", "runs", input=TOKEN).exit_code == 0
