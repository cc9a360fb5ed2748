"""What a workspace keeps, as people and programs are shown it: templates, secrets, tokens, shares."""

import json
import tarfile
from pathlib import Path
from typing import Any

import pytest
from cli.fake_api import EVENT, TOKEN, FakeApi, run_document

pytestmark = pytest.mark.usefixtures("utc")


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
    latin = astra("secrets", "set", "HF_TOKEN", input=b"caf\xe9")
    assert (latin.exit_code, latin.stderr) == (2, "astra: the standard input is not UTF-8 text\n")
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
    assert astra("shares", "set", "--quota", "9" * 400).exit_code == 2
    for share in ("nan", "inf", "1e999"):
        result = astra("shares", "set", "--share", share)
        assert (result.exit_code, result.stderr) == (2, f"astra: --share is a weight, or none, not '{share}'\n")
    assert len(api.calls("PATCH")) == 1


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
