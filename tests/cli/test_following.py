"""Following what goes on, through restarts of the server."""

import json
from typing import Any

import pytest
from cli.fake_api import Broken, FakeApi, run_document

EVENT = {"at": None, "kind": "x", "run": "a", "actor": "ann", "message": "said"}


@pytest.fixture(autouse=True)
def hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("patience.PAUSE_SECONDS", "runs.WATCH_SECONDS"):
        monkeypatch.setattr(f"astraeus.cli.{name}", 0.01)


def stream(*ids: int) -> bytes:
    return "".join(f"id: {i}\ndata: {json.dumps({**EVENT, 'id': i, 'message': f'said {i}'})}\n\n" for i in ids).encode()


def test_a_log_goes_on_where_the_connection_broke(astra: Any, api: FakeApi) -> None:
    answers = iter([Broken(b"one\ntw"), Broken(b""), b"one\ntwo\nthree\n"])
    api.on("GET /runs/a", run_document("a", attempt=3))
    api.on("GET /runs/uid-a/logs/uid-a-0", lambda _: next(answers))
    result = astra("logs", "a-0", "-f")
    assert (result.exit_code, result.stdout) == (0, "one\ntwo\nthree\n")
    assert {request["query"]["attempt"][0] for request in api.requests[1:]} == {"3"}


def test_a_log_that_is_followed_is_of_its_workers_own_attempt(astra: Any, api: FakeApi) -> None:
    workers = [{"rank": 0, "attempt": 5}, {"rank": 1, "attempt": 2}]
    api.on("GET /runs/a", run_document("a", attempt=5, workers=workers))
    api.on("GET /runs/uid-a/logs/uid-a-1", b"one\n")
    assert astra("logs", "a-1", "-f").stdout == "one\n"
    assert api.requests[-1]["query"]["attempt"] == ["2"]


def test_the_tail_of_a_log_says_where_lines_may_be_missing(astra: Any, api: FakeApi) -> None:
    answers = iter([Broken(b"one\n"), b"three\n"])
    api.on("GET /runs/a", run_document("a"))
    api.on("GET /runs/uid-a/logs/uid-a-0", lambda _: next(answers))
    result = astra("logs", "a-0", "-f", "--tail", "1")
    assert result.stdout == "one\nthree\n"
    assert "lines may be missing" in result.stderr
    assert [request["query"]["tail"] for request in api.requests[1:]] == [["1"], ["0"]]


def test_events_go_on_after_the_last_one_seen(astra: Any, api: FakeApi) -> None:
    answers = iter([Broken(stream(7, 8)), stream(9)])
    api.on("GET /events", lambda _: next(answers))
    assert [line.split()[-1] for line in astra("events", "-f").stdout.splitlines()] == ["7", "8", "9"]
    assert [request["query"].get("cursor") for request in api.requests] == [None, ["8"]]


def test_watching_shows_what_changes_and_outlives_the_server(astra: Any, api: FakeApi) -> None:
    def page(*runs: Any) -> Any:
        return 200, {"items": list(runs), "next_cursor": None}

    away = [(503, {"detail": "away"})] * 4
    first, second = run_document("a"), run_document("a", "Running", "Running on one leaf group")
    answers = iter([page(first), page(first), *away, page(first, run_document("b")), page(second), (403, {})])
    api.on("GET /runs", lambda _: next(answers))
    result = astra("runs", "-w")
    assert result.exit_code == 4
    assert result.stdout.splitlines() == [
        "NAME  CLUSTER  STATE  REASON",
        "a  lab-a  Pending  Waiting for the scheduler",
        "b  lab-a  Pending  Waiting for the scheduler",
        "a  lab-a  Running  Running on one leaf group",
    ]
