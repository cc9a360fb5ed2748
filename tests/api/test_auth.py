"""Tokens: who may do what, and what the refused are told."""

from typing import Any

import pytest

BASE = "/api/o/acme/w/vision"


@pytest.mark.parametrize("header", [None, "Bearer nonsense", "Bearer ast_x_y", "Basic YTpi", "Bearer ", "Bearer \xff"])
async def test_without_a_good_token(world: Any, header: str | None) -> None:
    headers = {"Authorization": header.encode("latin-1")} if header else {}
    for path in (f"{BASE}/runs", "/agent/v1/launch/x/1"):
        answer = await world.client("nobody").get(path, headers=headers)
        assert answer.status_code == 401, path
        assert answer.headers["www-authenticate"].startswith("Bearer")
        assert answer.json()["code"] == "not-signed-in"


@pytest.mark.parametrize("workspace", ["acme/w/vision", "acme/w/none", "no.ne/w/%00"])
async def test_a_workspace_of_others_looks_like_none(world: Any, workspace: str) -> None:
    headers = {"Authorization": f"Bearer {world.tokens['stranger']}"}
    answer = await world.client("nobody").get(f"/api/o/{workspace}/runs", headers=headers)
    assert (answer.status_code, answer.json()["code"]) == (404, "not-found")


async def test_a_role_too_low_is_told_the_role_it_needs(world: Any, spec: Any) -> None:
    viewer, editor = world.client("viewer"), world.client("editor")
    for answer, role in (
        (await viewer.post("/runs", json=spec()), "editor"),
        (await viewer.delete("/runs/x"), "editor"),
        (await viewer.put("/secrets/A", json={"value": "x"}), "editor"),
        (await editor.get("/tokens"), "admin"),
        (await editor.post("/machines/m-1:drain"), "admin"),
    ):
        assert answer.status_code == 403
        assert f"role {role}" in answer.json()["detail"]


async def test_machines_and_people_do_not_speak_for_one_another(world: Any) -> None:
    assert (await world.client("machine").get(f"{BASE}/runs")).status_code == 403
    headers = {"Authorization": f"Bearer {world.tokens['admin']}"}
    body = {"session": "s", "machines": []}
    answer = await world.client("nobody").post("/agent/v1/sync", json=body, headers=headers)
    assert answer.status_code == 403


async def test_a_token_is_shown_once_and_ends_when_revoked(both: Any) -> None:
    admin = both.client("admin")
    made = await admin.post("/tokens", json={"name": "ci", "role": "viewer", "expires_in_days": 30})
    assert made.status_code == 201, made.text
    token = made.json()
    headers = {"Authorization": f"Bearer {token['token']}"}
    nobody = both.client("nobody")
    assert (await nobody.get(f"{BASE}/runs", headers=headers)).status_code == 200
    listed = [one for one in (await admin.get("/tokens")).json()["items"] if one["id"] == token["id"]]
    assert [(one["name"], one["role"], one["kind"]) for one in listed] == [("ci", "viewer", "user")]
    assert token["token"] not in (await admin.get("/tokens")).text
    assert (await admin.delete(f"/tokens/{token['id']}")).status_code == 204
    assert (await nobody.get(f"{BASE}/runs", headers=headers)).status_code == 401
    assert (await admin.delete("/tokens/none")).status_code == 404


async def test_a_machine_token_is_for_a_cluster(world: Any) -> None:
    made = (await world.client("admin").post("/tokens", json={"name": "rack-1", "role": "machine"})).json()
    assert (made["kind"], made["cluster"]) == ("machine", "lab-a")
    headers = {"Authorization": f"Bearer {made['token']}"}
    answer = await world.client("nobody").post("/agent/v1/sync", json={"session": "s", "machines": []}, headers=headers)
    assert answer.status_code == 200
    wrong = await world.client("admin").post("/tokens", json={"name": "x", "role": "machine", "cluster": "none"})
    assert wrong.status_code == 404


async def test_unknown_routes_and_methods(world: Any) -> None:
    unknown = await world.client().get("/nothing")
    assert (unknown.status_code, unknown.json()["code"]) == (404, "no-such-route")
    wrong = await world.client().put("/runs")
    assert (wrong.status_code, wrong.headers["allow"]) == (405, "GET, POST")
    order = await world.client().get("/runs/x:cancel")
    assert (order.status_code, order.headers["allow"]) == (405, "POST")
    assert wrong.headers["content-type"] == "application/problem+json"


async def test_requests_carry_an_id(world: Any) -> None:
    given = await world.client().get("/runs", headers={"X-Request-Id": "abc-1"})
    made = await world.client().get("/runs", headers={"X-Request-Id": "bad id\t"})
    assert given.headers["x-request-id"] == "abc-1"
    assert len(made.headers["x-request-id"]) == 32
