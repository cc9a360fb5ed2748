"""The client for programs: typed answers, bounded retries, streams."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cli.fake_api import TOKEN, FakeApi, run_document, serving

from astraeus.client import ApiError, Client
from astraeus.client.api import Api
from astraeus.client.connection import RETRY_PAUSES, Connection, is_loopback
from astraeus.model.spec import Submission

SUBMISSION = {"metadata": {"name": "a"}, "spec": {"task_template": {"command": "true"}}}


@pytest.fixture
def api() -> Iterator[FakeApi]:
    with serving() as fake:
        yield fake


@pytest.fixture
def client(api: FakeApi) -> Iterator[Client]:
    with Client(api.base, TOKEN, timeout=5) as client:
        yield client


@pytest.fixture
def pauses() -> list[float]:
    return []


@pytest.fixture
def calls(api: FakeApi, pauses: list[float]) -> Iterator[Api]:
    with Connection(api.base, TOKEN, timeout=5, pause=pauses.append) as connection:
        yield Api(connection)


def test_answers_are_the_products_own_values(client: Client, api: FakeApi) -> None:
    api.on("POST /runs", run_document("a", "Starting", "Starting together: 6 of 8 ready"), 201)
    api.items("GET /runs", [run_document("a"), run_document("b")])
    run = client.submit(SUBMISSION)
    assert (run.state, run.reason, run.restarts.left) == ("Starting", "Starting together: 6 of 8 ready", 10)
    assert [run.metadata["name"] for run in client.runs()] == ["a", "b"]


def test_a_submission_of_the_model_is_sent_whole(client: Client, api: FakeApi) -> None:
    api.on("POST /runs", run_document("a"), 201)
    submission = Submission.model_validate(SUBMISSION)
    client.submit(submission)
    assert Submission.model_validate(api.requests[0]["body"]) == submission


def test_a_key_of_the_caller_is_kept(client: Client, api: FakeApi) -> None:
    api.on("POST /runs", run_document("a"), 201)
    client.submit(SUBMISSION, idempotency_key="mine")
    assert api.requests[0]["key"] == "mine"


def test_what_is_refused_has_code_detail_and_faults(client: Client, api: FakeApi) -> None:
    api.refuse("POST /runs", 422, "bad-spec", "All of it.", [{"pointer": "/spec", "message": "is missing; add it"}])
    with pytest.raises(ApiError) as caught:
        client.submit({})
    error = caught.value
    assert (error.status, error.code, error.detail, error.away) == (422, "bad-spec", "All of it.", False)
    assert [(fault.pointer, fault.message) for fault in error.faults] == [("/spec", "is missing; add it")]


def test_waiting_for_the_end(client: Client, api: FakeApi) -> None:
    states = iter(["Pending", "Running", "Succeeded"])
    api.on("GET /runs/a", lambda _: (200, run_document("a", next(states))))
    api.on("GET /runs/uid-a", lambda _: (200, run_document("a", next(states))))
    assert client.wait("a", every=0.01).state == "Succeeded"


def test_waiting_no_longer_than_asked(client: Client, api: FakeApi) -> None:
    api.on("GET /runs/a", run_document("a", "Running", "Running on one leaf group"))
    with pytest.raises(TimeoutError, match="still Running: Running on one leaf group"):
        client.wait("a", timeout=0, every=0.01)


def test_what_is_not_given_is_found_as_the_cli_finds_it(
    api: FakeApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ASTRAEUS_DIR", str(tmp_path))
    monkeypatch.setenv("ASTRALYX_API", api.base)
    monkeypatch.setenv("ASTRALYX_TOKEN", TOKEN)
    api.items("GET /runs", [])
    with Client() as client:
        assert list(client.runs()) == []


def test_reads_are_tried_again_a_bounded_number_of_times(calls: Api, api: FakeApi, pauses: list[float]) -> None:
    api.refuse("GET /runs/a", 503, "away", "The ledger does not answer.")
    with pytest.raises(ApiError) as caught:
        calls.run("a")
    assert caught.value.away
    assert len(api.requests) == len(RETRY_PAUSES) + 1
    assert pauses == list(RETRY_PAUSES)


def test_a_read_whose_answer_was_lost_is_tried_again(calls: Api, api: FakeApi) -> None:
    api.on("GET /runs/a", run_document("a"))
    api.drop_next = 2
    assert calls.run("a")["metadata"]["name"] == "a"
    assert len(api.requests) == 3


@pytest.mark.parametrize("order", ["preempt", "restart"])
def test_an_order_that_may_have_been_taken_is_not_given_twice(calls: Api, api: FakeApi, order: str) -> None:
    api.drop_next = 1
    with pytest.raises(ApiError, match="cannot be reached"):
        calls.order("a", order)
    assert len(api.requests) == 1


def test_deleting_is_not_repeated_since_another_run_may_have_the_name_by_then(calls: Api, api: FakeApi) -> None:
    api.drop_next = 1
    with pytest.raises(ApiError):
        calls.delete_run("a")
    assert len(api.requests) == 1


def test_refusals_are_not_tried_again(calls: Api, api: FakeApi) -> None:
    for status in (400, 401, 403, 404, 409, 422, 500):
        api.requests.clear()
        api.refuse("GET /runs/a", status, "x", "x")
        with pytest.raises(ApiError):
            calls.run("a")
        assert len(api.requests) == 1


def test_logs_are_bytes_cut_anywhere(client: Client, api: FakeApi) -> None:
    text = "é".encode() * 100_000 + b"\xff\x00\r\n"
    api.on("GET /runs/my-run/logs/my-run-0", text)
    with client.logs("My-Run-0", attempt=2, tail=5, follow=True) as chunks:
        assert b"".join(chunks) == text
    assert api.requests[0]["query"] == {"attempt": ["2"], "tail": ["5"], "follow": ["true"]}


def test_a_refused_log_is_an_error_with_its_words(client: Client, api: FakeApi) -> None:
    api.refuse("GET /runs/a/logs/a-9", 404, "not-found", "There is no worker a-9.")
    with pytest.raises(ApiError, match=r"There is no worker a-9\."), client.logs("a-9"):
        pass


def test_an_answer_that_is_no_problem_document(client: Client, api: FakeApi) -> None:
    api.on("GET /runs/a", "plain", 418)
    with pytest.raises(ApiError) as caught:
        client.run("a")
    assert (caught.value.status, caught.value.code) == (418, "http-418")


@pytest.mark.parametrize(
    ("url", "loopback"),
    [
        ("http://127.0.0.1:8480/api", True),
        ("http://localhost/api", True),
        ("http://[::1]:80/", True),
        ("https://astraeus.example/api", False),
        ("http://127.0.0.1.example", False),
        ("nonsense", False),
    ],
)
def test_loopback_addresses_use_no_proxy(url: str, loopback: bool) -> None:
    assert is_loopback(url) is loopback


def test_every_path_of_a_name_is_one_step(calls: Api, api: FakeApi) -> None:
    api.on("DELETE /secrets/A?B", None, 204)
    calls.delete_secret("A?B")
    for call in (calls.run, calls.delete_secret):
        with pytest.raises(ApiError, match=r"'a b/\.\.' is not a name"):
            call("a b/..")
    assert [request["path"] for request in api.requests] == ["/secrets/A?B"]


def test_what_the_package_exports() -> None:
    import astraeus.client

    with pytest.raises(AttributeError):
        _ = astraeus.client.nothing  # type: ignore[attr-defined]


def test_unusable_pages_end(calls: Api, api: FakeApi) -> None:
    seen: list[Any] = []

    def page(request: Any) -> Any:
        seen.append(request)
        return 200, {"items": [{"n": len(seen)}], "next_cursor": "again" if len(seen) < 3 else None}

    api.on("GET /events", page)
    assert [event["n"] for event in calls.events()] == [1, 2, 3]
    assert seen[1]["query"]["cursor"] == ["again"]


@pytest.mark.parametrize("ids", [range(0), range(7, 8), range(1, 100_000), range(50_000, 1_000_000, 7)])
def test_the_newest_event_is_found_in_few_pages(calls: Api, api: FakeApi, ids: range) -> None:
    def page(request: Any) -> Any:
        limit, cursor = (int(request["query"][key][0]) for key in ("limit", "cursor"))
        first = max(0, -(-(cursor + 1 - ids.start) // ids.step))
        items = [{"id": i} for i in ids[first : first + limit]]
        return 200, {"items": items, "next_cursor": str(items[-1]["id"]) if len(ids) > first + limit else None}

    api.on("GET /events", page)
    assert calls.newest_event() == (ids[-1] if ids else 0)
    assert len(api.requests) < 30
