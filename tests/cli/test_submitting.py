"""Submitting, planning and waiting."""

import json
from pathlib import Path
from typing import Any

import pytest
from cli.fake_api import FakeApi, run_document

from astraeus.cli import output


@pytest.fixture(autouse=True)
def hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("astraeus.cli.submit.POLL_SECONDS", 0.01)
    monkeypatch.setattr("astraeus.cli.patience.PAUSE_SECONDS", 0.01)


def life(api: FakeApi, *steps: tuple[str, str]) -> None:
    rest = list(steps)

    def look(_: Any) -> Any:
        state, reason = rest.pop(0) if len(rest) > 1 else rest[0]
        return 200, run_document("a", state, reason)

    api.on("POST /runs", run_document("a"), 201)
    api.on("GET /runs/uid-a", look)


def test_waiting_tells_each_change_once_and_ends_with_0(astra: Any, api: FakeApi) -> None:
    life(
        api,
        ("Pending", "Waiting for the scheduler"),
        ("Starting", "Starting together: 6 of 8 ready"),
        ("Starting", "Starting together: 6 of 8 ready"),
        ("Running", "Running on one leaf group"),
        ("Succeeded", "All workers exited with code 0"),
    )
    result = astra("run", "-f", "-", "--wait", input="{}")
    assert result.exit_code == 0
    assert result.output.splitlines()[1:] == [
        "Pending: Waiting for the scheduler",
        "Starting: Starting together: 6 of 8 ready",
        "Running: Running on one leaf group",
        "a Succeeded: All workers exited with code 0",
    ]


@pytest.mark.parametrize("state", ["Failed", "Cancelled"])
def test_waiting_for_a_run_that_does_not_succeed_ends_with_1(astra: Any, api: FakeApi, state: str) -> None:
    life(api, (state, "a-0 exited with code 1"))
    result = astra("run", "-f", "-", "--wait", input="{}")
    assert result.exit_code == 1
    assert result.output.splitlines()[-1] == f"a {state}: a-0 exited with code 1"


def test_waiting_outlives_an_absence_of_the_server(astra: Any, api: FakeApi) -> None:
    answers = iter([(503, {"code": "away", "detail": "The ledger does not answer."})] * 5)
    api.on("POST /runs", run_document("a"), 201)
    api.on("GET /runs/uid-a", lambda _: next(answers, (200, run_document("a", "Succeeded", "done"))))
    assert astra("run", "-f", "-", "--wait", input="{}").exit_code == 0


def test_waiting_with_json_prints_the_run_at_its_end_only(astra: Any, api: FakeApi) -> None:
    life(api, ("Running", "Running on one leaf group"), ("Failed", "a-0 exited with code 1"))
    result = astra("run", "-f", "-", "--wait", "--json", input="{}")
    assert (result.exit_code, json.loads(result.output)["state"]) == (1, "Failed")


def test_one_submission_however_often_the_connection_breaks(astra: Any, api: FakeApi) -> None:
    api.on("POST /runs", run_document("a"), 201)
    api.drop_next = 2
    assert astra("run", "-f", "-", input="{}").exit_code == 0
    assert len(api.requests) == 3
    assert len({request["key"] for request in api.requests}) == 1


def test_each_submission_has_a_key_of_its_own(astra: Any, api: FakeApi) -> None:
    api.on("POST /runs", run_document("a"), 201)
    astra("run", "-f", "-", input="{}")
    astra("run", "-f", "-", input="{}")
    assert len({request["key"] for request in api.requests}) == 2


def test_a_template_is_run_with_labels_and_changes(astra: Any, api: FakeApi) -> None:
    api.on("POST /templates/t:run", run_document("a"), 201)
    astra("run", "--template", "t", "--name", "a", "-l", "k=v", "--set", "spec.priority=5", "--set", "spec.x=on")
    assert api.requests[0]["body"] == {
        "name": "a",
        "labels": {"k": "v"},
        "set": {"spec.priority": 5, "spec.x": "on"},
    }


def test_every_fault_of_a_specification_on_a_line_of_its_own(astra: Any, api: FakeApi) -> None:
    faults = [
        {"pointer": "/spec/priority", "message": "is 5000; use at most 1000"},
        {"pointer": "", "message": "must be an object"},
    ]
    api.refuse("POST /runs", 422, "bad-spec", "…", faults)
    result = astra("run", "-f", "-", input="{}")
    assert result.exit_code == 1
    assert result.stderr.splitlines() == [
        "astra: refused:",
        "  /spec/priority is 5000; use at most 1000",
        "  the body must be an object",
    ]
    assert result.stdout == ""


PLAN = {
    "cluster": "lab-a",
    "fits": True,
    "rung": "LEAF",
    "network": {
        "network": "leaf:leaf-r0-7-g0",
        "words": "one leaf group",
        "estimate": {"busbw_gbps": 368.4, "words": "one leaf switch", "basis": "8 × 400 Gb/s rails, × 0.92"},
    },
    "machines": ["m-0", "m-1"],
    "victims": [],
    "reason": None,
    "blockers": [],
}


def test_a_plan_is_told_and_nothing_is_submitted(astra: Any, api: FakeApi) -> None:
    api.on("POST /runs:plan", PLAN)
    result = astra("run", "-f", "-", "--plan", input="{}")
    assert result.output.splitlines() == [
        "Cluster:  lab-a",
        "Would:    start now",
        "Network:  leaf:leaf-r0-7-g0 (one leaf group)",
        "Expected: 368.4 GB/s all-reduce (8 × 400 Gb/s rails, × 0.92)",
        "Machines: m-0, m-1",
    ]
    assert [request["path"] for request in api.requests] == ["/runs:plan"]


def test_a_plan_that_does_not_fit_names_every_blocker(astra: Any, api: FakeApi) -> None:
    api.on("POST /runs:plan", {"cluster": "lab-a", "fits": False, "reason": "Needs 8", "blockers": ["one", "two"]})
    result = astra("run", "-f", "-", "--plan", input="{}")
    assert result.output.splitlines() == [
        "Cluster:  lab-a",
        "Would:    wait",
        "Reason:   Needs 8",
        "Blockers: one",
        "          two",
    ]


def test_a_plan_tells_whom_it_would_preempt_and_when_it_would_start(astra: Any, api: FakeApi) -> None:
    start = {"expected_start": "2026-01-02T03:04:05Z", "expected_words": "once what is being stopped is gone"}
    answer = {"cluster": "lab-a", "fits": False, "reason": "Waiting for run-0 to make room", "position": 1}
    api.on("POST /runs:plan", answer | start | {"victims": [f"victim-{i}" for i in range(12)], "blockers": []})
    result = astra("run", "-f", "-", "--plan", input="{}")
    assert result.output.splitlines() == [
        "Cluster:  lab-a",
        "Would:    preempt, then start",
        "Preempt:  victim-0, victim-1, victim-2, victim-3, victim-4, victim-5,",
        "          victim-6, victim-7, victim-8, victim-9, victim-10, victim-11",
        f"Start:    {output.clock(start['expected_start'])}, once what is being stopped is gone",
        "Position: 1 in the queue",
        "Reason:   Waiting for run-0 to make room",
    ]
    assert max(map(len, result.output.splitlines())) <= 80


def test_a_templates_plan_is_of_the_template_with_the_changes(astra: Any, api: FakeApi) -> None:
    api.on("GET /templates/t", {"name": "t", "body": {"metadata": {"name": "t"}, "spec": {"priority": 0}}})
    api.on("POST /runs:plan", PLAN)
    result = astra("run", "--template", "t", "--set", "spec.priority=7", "--plan", "--json")
    assert json.loads(result.output) == PLAN
    assert api.requests[1]["body"] == {"metadata": {"name": "t"}, "spec": {"priority": 7}}


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("--template", "t"),
        ("--template", "t", "-f", "x"),
        ("-f", "missing.json"),
        ("-f", "broken.json"),
        ("-f", "latin.json"),
        ("-f", "."),
        ("-f", "good.json", "--set", "no-value"),
        ("-f", "good.json", "--set", "a.b.c=1"),
        ("-f", "good.json", "--label", "novalue"),
        ("--no-such-option",),
    ],
)
def test_usage_errors_end_with_2_and_submit_nothing(
    astra: Any, api: FakeApi, home: Path, arguments: tuple[str, ...]
) -> None:
    (home / "broken.json").write_text('{"a": }')
    (home / "latin.json").write_bytes(b'{"a": "\xe9"}')
    (home / "good.json").write_text('{"a": 5}')
    result = astra("run", *arguments)
    assert result.exit_code == 2
    assert result.stderr
    assert not api.requests


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b'{"a": "caf\xe9"}', "is not UTF-8 text"),
        (b'{"a": NaN}', "has a number that is not finite, or is too long"),
        (b'{"a": -Infinity}', "has a number that is not finite, or is too long"),
        (b'{"a": 1e999}', "has a number that is not finite, or is too long"),
        (b'{"a": ' + b"9" * 5000 + b"}", "has a number that is not finite, or is too long"),
    ],
    ids=["latin", "nan", "infinity", "large", "long"],
)
def test_what_no_specification_holds_is_told_alike_of_a_file_and_of_the_input(
    astra: Any, api: FakeApi, home: Path, content: bytes, said: str
) -> None:
    (home / "bad.json").write_bytes(content)
    for file, where in (("bad.json", "bad.json"), ("-", "the standard input")):
        result = astra("run", "-f", file, input=content)
        assert (result.exit_code, result.stderr) == (2, f"astra: {where} {said}\n")
    assert not api.requests


def test_broken_json_is_told_with_its_place(astra: Any, home: Path) -> None:
    (home / "broken.json").write_text('{"a":\n }')
    assert "not JSON: Expecting value at line 2, column 2" in astra("run", "-f", "broken.json").stderr
