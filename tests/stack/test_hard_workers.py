"""Workers that misbehave, and runs that are deleted at every moment."""

import hashlib
from typing import Any

import psutil
import pytest
from stack.conftest import logs, shell, small
from support.stack import DevStack

HOLD = "trap 'exit 0' TERM; sleep 600 & wait"


@pytest.mark.parametrize(
    ("name", "spec", "words"),
    [
        ("no-command", small("no-command", ["no-such-command"], restart_budget=0), "could not start: no such command"),
        (
            "bad-mount",
            shell("bad-mount", "true", task={"configs": [{"mounts": ["/proc/x/y"], "value": ""}]}, restart_budget=0),
            "could not start",
        ),
        ("exits", shell("exits", "exit 3", restart_budget=0), "exits-0 exited with code 3: restart budget (0) spent"),
    ],
)
def test_a_worker_that_cannot_work_says_why(stack: DevStack, name: str, spec: dict[str, Any], words: str) -> None:
    stack.submit(spec)
    run = stack.reach(name, "Failed", "Succeeded")
    assert run["state"] == "Failed"
    assert words in run["reason"]


def test_a_failure_is_charged_and_the_gang_restarts_with_backoff(stack: DevStack) -> None:
    stack.submit(shell("flaky", "test $ASTRAEUS_ATTEMPT = 2 || exit 1", machines=2))
    run = stack.see("flaky", lambda run: "restarting in" in run["reason"], 30)
    assert run["state"] == "Pending"
    assert "exited with code 1; restarting in 10 s (9 of 10 restarts left)" in run["reason"]
    run = stack.reach("flaky", "Succeeded", "Failed")
    assert (run["state"], run["attempt"], run["restarts"]["left"]) == ("Succeeded", 2, 9)
    attempts = stack.api("GET", "/runs/flaky/attempts").json()["items"]
    assert [(a["cause"], a["charged"]) for a in attempts] == [("exited", True), ("succeeded", False)]


def test_a_hundred_megabytes_of_log_arrive_whole(stack: DevStack) -> None:
    stack.submit(shell("loud", "head -c 100000000 /dev/zero | tr '\\0' 'x'"))
    assert stack.reach("loud", "Succeeded", "Failed")["state"] == "Succeeded"
    told = logs(stack, "loud-0")
    assert len(told.rpartition(b"\n")[2] or told) >= 100_000_000 - 1
    assert hashlib.sha256(told[-100_000_000:]).digest() == hashlib.sha256(b"x" * 100_000_000).digest()


def test_half_a_character_is_passed_on_as_it_is(stack: DevStack) -> None:
    stack.submit(shell("half", "printf 'caf\\303'; sleep 1; printf '\\251 \\000\\377'"))
    assert stack.reach("half", "Succeeded")["state"] == "Succeeded"
    assert logs(stack, "half-0").endswith(b"caf\xc3\xa9 \x00\xff")


def test_following_a_log_ends_with_the_worker(stack: DevStack) -> None:
    stack.submit(shell("told", "for i in 1 2 3; do echo line $i; sleep 0.3; done"))
    stack.reach("told", "Running", "Succeeded")
    assert stack.astra("logs", "told-0", "-f").stdout.endswith("line 1\nline 2\nline 3\n")


def test_a_worker_that_ignores_sigterm_is_killed_after_its_grace(stack: DevStack) -> None:
    stack.submit(shell("deaf", "trap '' TERM; echo deaf; while :; do sleep 0.2; done", task={"stop_grace_seconds": 1}))
    stack.reach("deaf", "Running")
    stack.api("POST", "/runs/deaf:cancel")
    assert stack.reach("deaf", "Cancelled")["reason"] == "Cancelled by dev"


def test_children_that_outlive_their_parent_are_ended_with_it(stack: DevStack) -> None:
    stack.submit(shell("parent", "setsid sleep 5432.1 & sleep 5432.1 & disown -a; sleep 0.3"))
    assert stack.reach("parent", "Succeeded")["state"] == "Succeeded"
    assert not [p for p in psutil.process_iter(["cmdline"]) if "5432.1" in (p.info["cmdline"] or [])]


@pytest.mark.parametrize("moment", ["Pending", "Starting", "Running", "Stopping"])
def test_delete_works_at_every_moment(stack: DevStack, moment: str) -> None:
    name = f"deleted-{moment.lower()}"
    spec = shell(name, "trap '' TERM; while :; do sleep 0.1; done", machines=4, task={"stop_grace_seconds": 1})
    if moment == "Pending":
        spec["spec"]["task_template"]["requested_resources"]["machines"] = 2
        spec["spec"]["task_template"]["requested_resources"]["gpu_requests"]["count"] = 126
    stack.submit(spec)
    if moment in ("Running", "Stopping"):
        stack.reach(name, "Running")
    if moment == "Stopping":
        stack.api("POST", f"/runs/{name}:cancel")
        stack.reach(name, "Stopping", "Cancelled")
    assert stack.api("DELETE", f"/runs/{name}").status_code in (200, 202)
    stack.api("DELETE", f"/runs/{name}")
    stack.until(lambda: stack.api("GET", f"/runs/{name}").status_code == 404, 30, f"end of {name}")
    held = {run for machine in stack.api("GET", "/machines").json()["items"] for run in machine["runs"]}
    assert name not in held
    assert stack.submit(spec | {"metadata": {"name": name}})["metadata"]["name"] == name
    stack.api("DELETE", f"/runs/{name}")


def test_the_same_post_twice_with_one_key_is_one_run(stack: DevStack) -> None:
    spec, key = shell("keyed", HOLD), {"Idempotency-Key": "k-1"}
    first = stack.api("POST", "/runs", json=spec, headers=key)
    second = stack.api("POST", "/runs", json=spec, headers=key)
    assert first.json()["metadata"]["uid"] == second.json()["metadata"]["uid"]
    assert stack.api("POST", "/runs", json=spec).status_code == 409
    stack.api("DELETE", "/runs/keyed")


def test_a_time_limit_stops_the_run_for_good(stack: DevStack) -> None:
    stack.submit(shell("limited", HOLD, task={"time_limit_seconds": 2}))
    run = stack.reach("limited", "Failed", "Succeeded")
    assert (run["state"], run["reason"], run["attempt"]) == ("Failed", "Reached its time limit (2 s)", 1)
