"""The recipe's command lines, word for word."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from cli.fake_api import TOKEN, FakeApi, run_document


def lines(result: Any) -> list[str]:
    return result.output.splitlines()


def test_run_of_a_template_prints_where_it_went(astra: Any, api: FakeApi) -> None:
    api.on("POST /templates/resnet-64gpu:run", run_document("resnet-64gpu-run1"), 201)
    result = astra("astraeus", "run", "--template", "resnet-64gpu", "--name", "resnet-64gpu-run1")
    page = f"{api.origin}/o/acme/w/vision/runs/lab-a/resnet-64gpu-run1"
    assert lines(result) == [f"resnet-64gpu-run1 submitted to lab-a: {page}"]
    assert result.exit_code == 0
    assert api.requests[0]["body"] == {"name": "resnet-64gpu-run1"}
    assert api.requests[0]["key"]


def test_runs_is_the_recipes_table(astra: Any, api: FakeApi) -> None:
    api.items("GET /runs", [run_document("resnet-64gpu", "Starting", "Starting together: 6 of 8 ready")])
    expected = [
        "NAME          CLUSTER  STATE     REASON",
        "resnet-64gpu  lab-a    Starting  Starting together: 6 of 8 ready",
    ]
    assert lines(astra("astraeus", "runs")) == expected
    assert lines(astra("runs")) == expected


def test_runs_fits_80_columns_before_the_reason_runs_on(astra: Any, api: FakeApi) -> None:
    reason = "Preempted by higher-priority work (eval-release); waiting to run again, " * 4
    api.items("GET /runs", [run_document("resnet-64gpu", "Pending", reason.strip())])
    line = lines(astra("astraeus", "runs"))[1]
    assert line.endswith(reason.strip())
    assert line.index("Preempted") < 40


def test_delete_waits_until_the_run_is_gone(astra: Any, api: FakeApi) -> None:
    seen: list[str] = []

    def look(_: Any) -> Any:
        seen.append("look")
        return (200, run_document("resnet-64gpu", "Stopping")) if len(seen) < 3 else (404, {"detail": "gone"})

    api.on("GET /runs/resnet-64gpu", look)
    api.on("DELETE /runs/resnet-64gpu", None, 202)
    result = astra("astraeus", "delete", "resnet-64gpu")
    assert (result.exit_code, result.output) == (0, "resnet-64gpu deleted\n")
    assert len(seen) == 3


def test_delete_does_not_wait_for_another_run_that_took_the_name(astra: Any, api: FakeApi) -> None:
    answers = iter([run_document("r"), {**run_document("r"), "metadata": {"name": "r", "uid": "another"}}])
    api.on("GET /runs/r", lambda _: (200, next(answers)))
    api.on("DELETE /runs/r", None, 202)
    assert astra("delete", "r").exit_code == 0


def shell(api: FakeApi, home: Path, command: str) -> subprocess.CompletedProcess[bytes]:
    environment = {
        **os.environ,
        "ASTRALYX_API": api.base,
        "ASTRALYX_TOKEN": TOKEN,
        "PYTHONPATH": str(Path(__file__).parents[2]),
    }
    script = f'set -o pipefail; astra() {{ "{sys.executable}" -m astraeus.cli.main "$@"; }}; {command}'
    return subprocess.run(["bash", "-c", script], capture_output=True, env=environment, cwd=home, timeout=60)


def test_logs_through_tail(api: FakeApi, home: Path) -> None:
    text = b"".join(b"step %d\n" % i for i in range(50_000)) + b"resuming at step 18400\nh\xc3alf\xff\x00\nlast\n"
    api.on("GET /runs/resnet-64gpu/logs/resnet-64gpu-0", text)
    done = shell(api, home, "astra astraeus logs resnet-64gpu-0 | tail -n 3")
    assert done.stdout == b"resuming at step 18400\nh\xc3alf\xff\x00\nlast\n"
    assert (done.returncode, done.stderr) == (0, b"")


def test_logs_into_a_reader_that_leaves_are_quiet(api: FakeApi, home: Path) -> None:
    api.on("GET /runs/r/logs/r-0", b"line\n" * 400_000)
    done = shell(api, home, "astra logs r-0 | head -n 1")
    assert (done.stdout, done.stderr) == (b"line\n", b"")


def test_a_table_into_a_reader_that_leaves_is_quiet(api: FakeApi, home: Path) -> None:
    api.items("GET /runs", [run_document(f"run-{i}", reason="x" * 200) for i in range(5000)])
    done = shell(api, home, "astra runs | head -n 1")
    assert done.stdout.startswith(b"NAME")
    assert done.stderr == b""


def test_submit_from_a_file_as_jq_prepared_it(astra: Any, api: FakeApi, home: Path) -> None:
    (home / "spec.json").write_text(json.dumps({"metadata": {"name": "a"}, "spec": {"priority": 1}}))
    api.on("POST /runs", run_document("a"), 201)
    result = astra("run", "-f", "spec.json", "--set", "spec.priority=5", "--set", "spec.env.STEPS=ten", "-l", "a/b=c")
    assert result.output.startswith("a submitted to lab-a: http://")
    assert api.requests[0]["body"] == {
        "metadata": {"name": "a", "labels": {"a/b": "c"}},
        "spec": {"priority": 5, "env": {"STEPS": "ten"}},
    }
