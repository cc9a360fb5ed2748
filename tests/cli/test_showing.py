"""What people and programs are shown."""

import json
import tarfile
import time
from pathlib import Path
from typing import Any

import pytest
from cli.fake_api import TOKEN, FakeApi, run_document

from astraeus.cli import output

LEAF = "topology.astraeus.io/leaf"
NIC = {"device": "mlx5_0", "port": 1, "rail": 0, "gbps": 400, "link": "infiniband", "up": True}
MACHINE = {
    "name": "m-3",
    "cluster": "lab-a",
    "state": "Ready",
    "cordoned": True,
    "drain_reason": "bad fan",
    "drained_by": "olga",
    "gpu_model": "H100",
    "gpus": 8,
    "used_gpus": 4,
    "free_gpus": 4,
    "doubtful_gpus": [3],
    "broken_gpus": [],
    "cpu_cores": 96.0,
    "memory_bytes": 2**40,
    "labels": {LEAF: "leaf-r0-7-g0"},
    "nics": [NIC],
    "runs": ["resnet-64gpu"],
    "heard_seconds_ago": 1.2,
}
NETWORK = {
    "network": "leaf:leaf-r0-7-g0",
    "words": "one leaf group",
    "estimate": {"busbw_gbps": 368.4, "words": "one leaf switch", "basis": "8 × 400 Gb/s rails, × 0.92"},
}


@pytest.fixture(autouse=True)
def utc(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()


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


EVENT = {"id": 1, "at": "2026-01-02T03:04:05Z", "kind": "submitted", "run": "a", "actor": "ann", "message": "submitted"}


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
        f"id: {i}\nevent: submitted\ndata: {json.dumps({**EVENT, 'run': run})}\n\n" for i, run in enumerate("ab")
    )
    api.on("GET /events", stream.encode())
    assert astra("events", "b", "-f").output.splitlines() == ["2026-01-02 03:04:05  b  ann  submitted"]


def test_orders_say_what_happens_and_carry_the_reason(astra: Any, api: FakeApi) -> None:
    for order in ("cancel", "preempt", "restart", "hold", "release"):
        api.on(f"POST /runs/a:{order}", run_document("a"), 202)
        why = () if order == "release" else ("--why", "maintenance")
        assert astra(order, "a", *why).output.startswith("a is ")
    assert [request["body"] for request in api.requests] == [{"why": "maintenance"}] * 4 + [None]


def test_machines(astra: Any, api: FakeApi) -> None:
    api.items("GET /machines", [MACHINE, {**MACHINE, "name": "m-4", "drain_reason": None, "runs": []}])
    assert astra("machines", "list").output.splitlines() == [
        "NAME  CLUSTER  STATE           FREE  MODEL  LEAF          RUNS",
        "m-3   lab-a    Ready,drained   4/8   H100   leaf-r0-7-g0  resnet-64gpu",
        "m-4   lab-a    Ready,cordoned  4/8   H100   leaf-r0-7-g0  -",
    ]


def test_one_machine(astra: Any, api: FakeApi) -> None:
    api.on("GET /machines/m-3", MACHINE)
    assert astra("machines", "get", "m-3").output.splitlines() == [
        "Machine:  m-3",
        "Cluster:  lab-a",
        "State:    Ready,drained",
        "Drained:  by olga: bad fan",
        "GPUs:     8 H100, 4 free",
        "Doubtful: GPU 3",
        "CPU:      96 cores, 1024 GiB",
        "Runs:     resnet-64gpu",
        "Heard:    1 s ago",
        f"Label:    {LEAF}=leaf-r0-7-g0",
        "",
        "PORT      RAIL  GBIT/S  LINK        STATE",
        "mlx5_0:1  0     400     infiniband  up",
    ]


def test_machine_orders(astra: Any, api: FakeApi) -> None:
    for order in ("drain", "cordon", "return"):
        api.on(f"POST /machines/m-3:{order}", MACHINE)
    assert astra("machines", "drain", "m-3", "--reason", "bad fan", "--cluster", "lab-b").exit_code == 0
    assert astra("machines", "cordon", "m-3").exit_code == 0
    assert astra("machines", "return", "m-3").exit_code == 0
    assert api.requests[0]["body"] == {"reason": "bad fan"}
    assert api.requests[0]["query"] == {"cluster": ["lab-b"]}


def test_topology_is_a_tree(astra: Any, api: FakeApi) -> None:
    def count(free: int) -> dict[str, int]:
        return {"gpus": 8, "free_gpus": free}

    machine = {"name": "m-3", "state": "Down", "cordoned": True, "gpu_model": "H100", "runs": ["a"], **count(0)}
    other = {"name": "m-4", "state": "Ready", "cordoned": False, "gpu_model": "H100", "runs": [], **count(8)}
    leaf = {"name": "leaf-0", "free_machines": 1, "machines": [machine, other], "gpus": 16, "free_gpus": 8}
    loose = {"name": None, "free_machines": 0, "machines": [other], **count(0)}
    fabrics = [
        {"name": "sm-0", "spines": [{"name": "s-0", "leaves": [leaf], "gpus": 16, "free_gpus": 8}], **count(8)},
        {"name": None, "spines": [{"name": None, "leaves": [loose], **count(0)}], **count(0)},
    ]
    tree = {"cluster": "lab-a", "machines": 3, "gpus": 24, "free_gpus": 8, "fabrics": fabrics}
    api.on("GET /topology", {"clusters": [tree]})
    assert astra("topology").output.splitlines() == [
        "lab-a: 3 machines, 8 of 24 GPUs free, 1 down",
        "├─ fabric sm-0: 8 of 8 GPUs free",
        "│  └─ spine group s-0: 8 of 16 GPUs free",
        "│     └─ leaf group leaf-0: 8 of 16 GPUs free, 1 whole machine free",
        "│        ├─ m-3  0/8 H100  Down  cordoned  a",
        "│        └─ m-4  8/8 H100",
        "└─ on no fabric: 0 of 8 GPUs free",
        "   └─ in no leaf group: 0 of 8 GPUs free, 0 whole machines free",
        "      └─ m-4  8/8 H100",
    ]


def test_findings(astra: Any, api: FakeApi) -> None:
    now, without = (
        {"busbw_gbps": busbw, "words": "", "basis": f"{n} × 400 Gb/s rails"} for busbw, n in ((322.4, 7), (368.4, 8))
    )
    known = {"severity": "warning", "cost": "~322 of ~368 GB/s", "runs": ["a", "b"], "advice": "Reseat the cable"}
    known |= {"costs": [{"run": "b", "without": without, "now": now}], "place": "m-3 mlx5_0"}
    api.items(
        "GET /topology/findings",
        [{"message": "runs at 4xHDR where its peers run at 4xNDR; it is on leaf-0 port 3", **known}],
    )
    shown = [
        "warning: m-3 mlx5_0: runs at 4xHDR where its peers run at 4xNDR; it is on leaf-0",
        "  port 3",
        "  costs: ~322 of ~368 GB/s",
        "    b: 368.4 → 322.4 GB/s (7 × 400 Gb/s rails)",
        "  runs there, no slower: a",
        "  to do: Reseat the cable",
    ]
    assert astra("topology", "--findings").output.splitlines() == shown
    assert astra("topology", "findings").output.splitlines() == shown
    known["costs"] = []
    api.items("GET /topology/findings", [{"message": "runs at 4xHDR", **known}])
    assert "  runs: a, b" in astra("topology", "findings").output.splitlines()
    api.items("GET /topology/findings", [])
    assert astra("topology", "findings", "--closed").output == "Nothing was found.\n"
    assert api.requests[-1]["query"] == {"closed": ["true"]}


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


def test_templates(astra: Any, api: FakeApi, home: Path) -> None:
    template = {"name": "t", "body": {"spec": {}}, "updated_at": "2026-01-02T03:04:05Z", "updated_by": "ann"}
    api.items("GET /templates", [template])
    api.on("GET /templates/t", template)
    api.on("PUT /templates/t", template)
    api.on("DELETE /templates/t", None, 204)
    (home / "spec.json").write_text('{"spec": {}}')
    assert astra("templates", "save", "t", "-f", "spec.json").output.startswith("t saved")
    assert astra("templates", "list").output.splitlines()[1] == "t     2026-01-02 03:04:05  ann"
    assert json.loads(astra("templates", "show", "t").output) == {"spec": {}}
    assert astra("templates", "delete", "t").exit_code == 0
    assert api.calls("PUT")[0]["body"] == {"spec": {}}


def test_drives(astra: Any, api: FakeApi) -> None:
    api.on("PUT /drives/ckpt", {"name": "ckpt", "kind": "shared", "path": "/mnt"})
    api.items("GET /drives", [{"name": "ckpt", "kind": "shared", "path": "/mnt"}, {"name": "b", "kind": "machine"}])
    api.on("DELETE /drives/ckpt", None, 204)
    assert astra("drives", "add", "ckpt", "--kind", "shared", "--path", "/mnt").exit_code == 0
    assert api.requests[0]["body"] == {"kind": "shared", "path": "/mnt"}
    assert astra("drives", "list").output.splitlines()[1:] == [
        "ckpt  shared   /mnt",
        "b     machine  kept by the agent",
    ]
    assert astra("drives", "delete", "ckpt").exit_code == 0


def test_a_secrets_value_is_never_an_argument(astra: Any, api: FakeApi) -> None:
    api.on("PUT /secrets/HF_TOKEN", {"name": "HF_TOKEN"})
    api.items("GET /secrets", [{"name": "HF_TOKEN"}])
    assert astra("secrets", "set", "HF_TOKEN", input="hunter2\n").output == "HF_TOKEN set\n"
    assert api.requests[0]["body"] == {"value": "hunter2"}
    assert astra("secrets", "set", "HF_TOKEN", "hunter2").exit_code == 2
    assert astra("secrets", "set", "HF_TOKEN", input="").exit_code == 2
    assert astra("secrets", "list").output.splitlines() == ["NAME", "HF_TOKEN"]


def test_a_new_token_is_the_only_thing_on_the_output(astra: Any, api: FakeApi) -> None:
    api.on("POST /tokens", {"id": "7", "name": "ci", "role": "viewer", "token": "ast_7_x"}, 201)
    result = astra("tokens", "create", "ci", "--role", "viewer", "--days", "30")
    assert result.stdout == "ast_7_x\n"
    assert api.requests[0]["body"] == {"name": "ci", "role": "viewer", "cluster": None, "expires_in_days": 30}
    assert astra("tokens", "create", "ci", "--role", "king").exit_code == 2


def test_tokens(astra: Any, api: FakeApi) -> None:
    token = {"id": "7", "name": "ci", "role": "viewer", "created_at": "2026-01-02T03:04:05Z"}
    api.items("GET /tokens", [token, {**token, "id": "8", "revoked_at": "2026-01-02T03:04:05Z"}])
    api.on("DELETE /tokens/7", None, 204)
    assert astra("tokens", "list").output.splitlines()[1:] == [
        "7   ci    viewer  never      never",
        "8   ci    viewer  never      revoked 2026-01-02 03:04:05",
    ]
    assert astra("tokens", "revoke", "7").exit_code == 0


def test_shares_are_listed_and_set(astra: Any, api: FakeApi) -> None:
    plain = {"workspace": "acme/ml", "gpu_quota": None, "gpus_in_use": 8, "share": None, "share_of_all": 0.25}
    mine = {"workspace": "acme/vision", "gpu_quota": 64, "gpus_in_use": 56, "share": 3.0, "share_of_all": 0.75}
    use = {"used_gpu_hours": 12.34, "used_of_all": 0.5}
    api.on("GET /shares", {"cluster": "lab-a", "sharing": True, "items": [plain | use, mine | use]})
    assert astra("shares", "list").output.splitlines() == [
        "WORKSPACE    QUOTA  IN USE  SHARE     USED",
        "acme/ml      -      8       - (25 %)  12.3 GPU-hours (50 %)",
        "acme/vision  64     56      3 (75 %)  12.3 GPU-hours (50 %)",
    ]
    api.on("PATCH /share", mine | use)
    assert astra("shares", "set", "--quota", "64", "--share", "none", "--cluster", "lab-a").exit_code == 0
    [sent] = api.calls("PATCH")
    assert (sent["body"], sent["query"]) == ({"gpu_quota": 64, "share": None}, {"cluster": ["lab-a"]})
    assert astra("shares", "set").exit_code == 2
    assert astra("shares", "set", "--quota", "many").exit_code == 2


def test_clusters(astra: Any, api: FakeApi) -> None:
    api.items("GET /clusters", [{"name": "lab-a", "executor": "agent", "default": True}])
    assert astra("clusters").output.splitlines()[1] == "lab-a  agent     yes"


def test_a_bug_report_holds_no_secret(astra: Any, api: FakeApi, home: Path) -> None:
    leaky = run_document("a", "Failed", f"curl -H 'Bearer {TOKEN}' https://ann:hunter2@host/x failed")
    leaky["spec"]["task_template"]["configs"] = [{"mounts": ["/a"], "value": "hunter2"}]
    leaky["metadata"]["labels"] = {"api_token": "hunter2"}
    api.items("GET /runs", [leaky])
    api.items("GET /events", [{**EVENT, "message": "hunter2 was said in an event"}])
    for call in ("machines", "clusters"):
        api.items(f"GET /{call}", [])
    api.on("GET /topology", {"clusters": []})
    result = astra("bundle", "-o", "report.tar.gz")
    assert result.exit_code == 0
    with tarfile.open(home / "report.tar.gz") as archive:
        texts = {name: archive.extractfile(name).read().decode() for name in archive.getnames()}  # type: ignore[union-attr]
    assert sorted(name.removeprefix("astra-bundle/") for name in texts) == [
        "clusters.json",
        "config.json",
        "events.json",
        "findings.json",
        "machines.json",
        "runs.json",
        "topology.json",
        "version.json",
    ]
    everything = "".join(texts.values())
    assert "hunter2" not in everything
    assert TOKEN not in everything
    assert "HF_KEY" in everything
    assert json.loads(texts["astra-bundle/findings.json"])["status"] == 404
    assert (home / "report.tar.gz").stat().st_mode & 0o077 == 0


def test_a_bug_report_replaces_no_file(astra: Any, home: Path) -> None:
    (home / "report.tar.gz").write_text("mine")
    assert astra("bundle", "-o", "report.tar.gz").exit_code == 2
    assert (home / "report.tar.gz").read_text() == "mine"


def test_machines_are_listed_as_people_count() -> None:
    assert sorted(["m-10", "m-9", "m-1", "x", ""], key=output.natural) == ["", "m-1", "m-9", "m-10", "x"]


def test_numbers_are_folded() -> None:
    assert output.numbers([7, 0, 1, 2, 3]) == "0-3,7"
    assert output.numbers([]) == ""
