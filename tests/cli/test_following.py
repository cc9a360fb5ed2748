"""Following what goes on, through restarts of the server."""

import json
from collections.abc import Iterable
from typing import Any

import pytest
from cli.fake_api import Broken, FakeApi, run_document

EVENT = {"at": None, "kind": "x", "run": "a", "actor": "ann", "message": "said"}


@pytest.fixture(autouse=True)
def hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("patience.PAUSE_SECONDS", "runs.WATCH_SECONDS"):
        monkeypatch.setattr(f"astraeus.cli.{name}", 0.01)


def stream(*ids: int, **more: str) -> bytes:
    events = [{**EVENT, "id": i, "message": f"said {i}", **more} for i in ids]
    return "".join(f"id: {event['id']}\ndata: {json.dumps(event)}\n\n" for event in events).encode()


def history(api: FakeApi, ids: Iterable[int], streams: list[bytes]) -> list[str | None]:
    """Events that were before, then the streams, one for each connection; what each went on after."""
    cursors: list[str | None] = []
    answers = iter(streams)

    def answer(request: Any) -> Any:
        cursor = request["query"].get("cursor", [None])[0]
        if "follow" in request["query"]:
            cursors.append(cursor)
            return next(answers)
        return 200, {"items": [{"id": i} for i in ids if i > int(cursor or 0)], "next_cursor": None}

    api.on("GET /events", answer)
    return cursors


def test_a_log_goes_on_where_the_connection_broke(astra: Any, api: FakeApi) -> None:
    answers = iter([Broken(b"one\ntw"), Broken(b""), b"one\ntwo\nthree\n"])
    api.on("GET /runs/a", run_document("a", attempt=3, workers=[{"rank": 0, "attempt": 3, "machine": "m-1"}]))
    api.on("GET /runs/uid-a/logs/uid-a-0", lambda _: next(answers))
    result = astra("logs", "a-0", "-f")
    assert (result.exit_code, result.stdout) == (0, "one\ntwo\nthree\n")
    assert {request["query"]["attempt"][0] for request in api.requests[1:]} == {"3"}


@pytest.mark.parametrize(("attempt", "asked"), [(4, ["3"]), (1, None)])
def test_a_log_that_is_followed_while_its_run_waits_is_of_the_attempt_before(
    astra: Any, api: FakeApi, attempt: int, asked: list[str] | None
) -> None:
    api.on("GET /runs/a", run_document("a", attempt=attempt, workers=[]))
    api.on("GET /runs/uid-a/logs/uid-a-0", b"one\n")
    assert astra("logs", "a-0", "-f").stdout == "one\n"
    assert api.requests[-1]["query"].get("attempt") == asked


def test_a_log_that_is_followed_is_of_its_workers_own_attempt(astra: Any, api: FakeApi) -> None:
    workers = [{"rank": 0, "attempt": 5, "machine": "m-1"}, {"rank": 1, "attempt": 2, "machine": "m-2"}]
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
    cursors = history(api, range(1, 7), [Broken(stream(7, 8)), stream(9)])
    assert [line.split()[-1] for line in astra("events", "-f").stdout.splitlines()] == ["7", "8", "9"]
    assert cursors == ["6", "8"]


@pytest.mark.parametrize(("ids", "newest"), [((3, 5), "5"), ((), "0")])
def test_events_while_the_server_was_away_are_not_missed_though_none_came_before(
    astra: Any, api: FakeApi, ids: tuple[int, ...], newest: str
) -> None:
    cursors = history(api, ids, [Broken(b": following\n\n"), stream(9)])
    assert [line.split()[-1] for line in astra("events", "-f").stdout.splitlines()] == ["9"]
    assert cursors == [newest, newest]


def test_events_of_a_run_are_of_the_one_that_has_the_name(astra: Any, api: FakeApi) -> None:
    api.on("GET /runs/a", run_document("a"))
    history(api, (), [stream(1, run_uid="uid-before") + stream(2, run_uid="uid-a")])
    assert [line.split()[-1] for line in astra("events", "A", "-f").stdout.splitlines()] == ["2"]


def test_events_of_a_run_that_is_not_there_are_not_waited_for(astra: Any, api: FakeApi) -> None:
    history(api, (), [b""])
    api.refuse("GET /runs/nosuch", 404, "not-found", "There is no run 'nosuch'.")
    result = astra("events", "nosuch", "-f")
    assert (result.exit_code, result.stderr) == (3, "astra: There is no run 'nosuch'.\n")


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
