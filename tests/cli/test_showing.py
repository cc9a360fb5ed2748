"""What people and programs are shown of runs."""

import json
from typing import Any

import pytest
from cli.fake_api import EVENT, FakeApi, run_document

from astraeus.cli import output

NETWORK = {
    "network": "leaf:leaf-r0-7-g0",
    "words": "one leaf group",
    "estimate": {"busbw_gbps": 368.4, "words": "one leaf switch", "basis": "8 × 400 Gb/s rails, × 0.92"},
}


pytestmark = pytest.mark.usefixtures("utc")


def test_get_shows_the_network_the_restarts_and_the_workers(astra: Any, api: FakeApi) -> None:
    worker = {"name": "a-0", "rank": 0, "attempt": 2, "state": "Running", "machine": "m-3", "gpus": [0, 1, 2, 5]}
    gone = {**worker, "name": "a-1", "state": "Exited", "exit_code": 1, "gpus": []}
    restarts = {"budget": 10, "left": 8, "next_earned_at": "2026-01-02T03:14:05Z"}
    run = run_document("a", "Running", "Running on one leaf group", network=NETWORK, attempt=2, restarts=restarts)
    api.on("GET /runs/a", {**run, "workers": [worker, gone]})
    assert astra("get", "a").output.splitlines() == [
        "Run:       a",
        "Cluster:   lab-a",
        "State:     Running",
        "Reason:    Running on one leaf group",
        "Network:   leaf:leaf-r0-7-g0 (one leaf group)",
        "Expected:  368.4 GB/s all-reduce (8 × 400 Gb/s rails, × 0.92)",
        "Attempt:   2",
        "Restarts:  8 of 10 left; one is earned back at 2026-01-02 03:14:05",
        "Submitted: 2026-01-02 03:04:05",
        "",
        "WORKER  STATE    MACHINE  GPUS   LEAF  ENDED",
        "a-0     Running  m-3      0-2,5  -",
        "a-1     Exited   m-3      -      -     code 1",
    ]


def test_runs_of_one_name_are_listed_by_uid(astra: Any, api: FakeApi) -> None:
    api.items("GET /runs", [run_document("a", "Failed", "a-0 exited with code 1")])
    assert astra("runs", "--name", "a").output.splitlines() == [
        "UID    SUBMITTED            STATE   REASON",
        "uid-a  2026-01-02 03:04:05  Failed  a-0 exited with code 1",
    ]
    assert api.requests[0]["query"]["name"] == ["a"]


def test_workers_that_start_one_by_one_are_shown_with_their_reasons(astra: Any, api: FakeApi) -> None:
    first = {"name": "a-0", "rank": 0, "attempt": 2, "state": "Running", "machine": "m-3", "gpus": [0], "reason": "Up"}
    second = {
        **first,
        "name": "a-1",
        "attempt": 1,
        "state": "Waiting",
        "machine": None,
        "gpus": [],
        "reason": "No room",
    }
    api.on("GET /runs/a", {**run_document("a"), "workers": [first, second]})
    assert astra("get", "a").output.splitlines()[-3:] == [
        "WORKER  STATE    ATTEMPT  MACHINE  GPUS  REASON",
        "a-0     Running  2        m-3      0     Up",
        "a-1     Waiting  1        -        -     No room",
    ]
    attempt = {"attempt": 1, "worker": "a-1", "placed_at": None, "ended_at": None, "cause": None, "charged": False}
    api.items("GET /runs/a/attempts", [attempt])
    assert astra("attempts", "a").output.splitlines()[-1].split()[:2] == ["a-1", "1"]


def test_json_is_the_apis_own(astra: Any, api: FakeApi) -> None:
    run = run_document("a", "Running", "läuft", network=NETWORK, of_a_later_version={"x": [1, None]})
    api.on("GET /runs/a", run)
    api.items("GET /runs", [run])
    assert json.loads(astra("get", "a", "--json").output) == run
    assert json.loads(astra("runs", "--json").output) == {"items": [run], "next_cursor": None}


def test_every_page_of_a_list_is_read(astra: Any, api: FakeApi) -> None:
    def page(request: Any) -> Any:
        start = int(request["query"].get("cursor", ["0"])[0])
        items = [run_document(f"r{i}") for i in range(start, start + 3)]
        return 200, {"items": items, "next_cursor": str(start + 3) if start < 6 else None}

    api.on("GET /runs", page)
    result = astra("runs", "--state", "Pending", "--state", "Running", "-l", "a=b", "--cluster", "lab-a")
    assert [line.split()[0] for line in result.output.splitlines()] == ["NAME", *(f"r{i}" for i in range(9))]
    query = api.requests[0]["query"]
    assert (query["state"], query["label"], query["cluster"]) == (["Pending", "Running"], ["a=b"], ["lab-a"])


def test_control_characters_reach_the_terminal_written_out(astra: Any, api: FakeApi) -> None:
    api.items("GET /runs", [run_document("a", "Failed", "x\x1b[31m\x9b\r\n\u202egnp.exe\x00é漢")])
    line = astra("runs").output.splitlines()[1]
    assert line.endswith("x\\x1b[31m\\x9b\\r\\n\\u202egnp.exe\\x00é漢")
    assert "\\u001b" in astra("runs", "--json").output


def test_wide_characters_keep_columns_aligned() -> None:
    lines = output.table_lines(("A", "B"), [("漢字", "x"), ("e\u0301", "y"), ("abcd", "z")])
    assert [output.width(line[: line.index(mark)]) for line, mark in zip(lines[1:], "xyz", strict=True)] == [6, 6, 6]


def test_no_colour_into_a_pipe(astra: Any, api: FakeApi) -> None:
    api.items("GET /runs", [run_document("a", "Failed")])
    assert "\x1b" not in astra("runs").output


def test_colours_on_a_terminal_do_not_move_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(output, "coloured", lambda: True)
    lines = output.table_lines(("STATE", "REASON"), [("Failed", "x"), ("Running", "Failed")])
    assert lines[1] == "\x1b[31mFailed\x1b[0m   x"
    assert lines[2].startswith("\x1b[32mRunning\x1b[0m  ")


def test_attempts(astra: Any, api: FakeApi) -> None:
    first = {
        "attempt": 1,
        "network": NETWORK,
        "machines": [],
        "entered_at": "2026-01-02T03:04:05Z",
        "placed_at": "2026-01-02T03:04:06Z",
        "ended_at": "2026-01-02T03:05:06Z",
        "cause": "machine_lost",
        "detail": "a-5 lost its machine",
        "charged": True,
    }
    api.items("GET /runs/a/attempts", [first, {"attempt": 2, "entered_at": "2026-01-02T03:06:06Z"}])
    lines = astra("attempts", "a").output.splitlines()
    assert lines[0].split() == ["ATTEMPT", "NETWORK", "PLACED", "ENDED", "CAUSE", "CHARGED", "DETAIL"]
    assert lines[1].endswith("machine_lost  yes      a-5 lost its machine")
    assert lines[2].split() == ["2", "-", "-", "-", "-", "-"]


def test_events_of_a_run_and_of_the_workspace(astra: Any, api: FakeApi) -> None:
    api.items("GET /events", [EVENT, {**EVENT, "run": None}])
    api.items("GET /runs/a/events", [EVENT])
    assert astra("events").output.splitlines() == [
        "AT                   RUN  ACTOR  EVENT",
        "2026-01-02 03:04:05  a    ann    submitted",
        "2026-01-02 03:04:05  -    ann    submitted",
    ]
    assert len(astra("events", "a").output.splitlines()) == 2


def test_events_as_they_happen(astra: Any, api: FakeApi) -> None:
    stream = ": following\n\n" + "".join(
        f"id: {i}\nevent: submitted\ndata: {json.dumps({**EVENT, 'run': run, 'run_uid': f'uid-{run}'})}\n\n"
        for i, run in enumerate("ab")
    )
    page = 200, {"items": [], "next_cursor": None}
    api.on("GET /runs/b", run_document("b"))
    api.on("GET /events", lambda request: stream.encode() if "follow" in request["query"] else page)
    assert astra("events", "b", "-f").output.splitlines() == ["2026-01-02 03:04:05  b  ann  submitted"]


def test_orders_say_what_happens_and_carry_the_reason(astra: Any, api: FakeApi) -> None:
    for order in ("cancel", "preempt", "restart", "hold", "release"):
        api.on(f"POST /runs/a:{order}", run_document("a"), 202)
        why = () if order == "release" else ("--why", "maintenance")
        assert astra(order, "a", *why).output.startswith("a is ")
    assert [request["body"] for request in api.requests] == [{"why": "maintenance"}] * 4 + [None]


def test_explain_names_every_blocker(astra: Any, api: FakeApi) -> None:
    answer = {
        "name": "a",
        "cluster": "lab-a",
        "state": "Pending",
        "reason": "Needs 8 machines",
        "position": 2,
        "blockers": ["sm-0 has 5", "sm-1 has 3"],
        "unblock": [],
        "expected_start": "unknown",
    }
    api.on("GET /runs/a/explain", answer)
    assert astra("explain", "a").output.splitlines() == [
        "Run:      a on lab-a",
        "State:    Pending",
        "Reason:   Needs 8 machines",
        "Position: 2 in the queue",
        "Blockers: sm-0 has 5",
        "          sm-1 has 3",
        "Start:    unknown",
    ]
    words = {"expected_words": "unknown: no time limit brings it room", "victims": ["low"]}
    api.on("GET /runs/a/explain", answer | words)
    assert astra("explain", "a").output.splitlines()[-2:] == [
        "Preempt:  low",
        "Start:    unknown: no time limit brings it room",
    ]
    words = {"expected_start": "2026-01-02T03:04:05Z", "expected_words": "in 26 h at the latest, by time limits"}
    api.on("GET /runs/a/explain", answer | words)
    assert astra("explain", "a").output.splitlines()[-1].endswith(":05, in 26 h at the latest, by time limits")
