"""Quotas and shares: everybody in the workspace sees how all stand, only an operator sets them."""

from typing import Any

import pytest

from astraeus.ledger import tenancy


async def operator(world: Any) -> dict[str, str]:
    async with world.state.ledger.transaction() as tx:
        _, secret = await tenancy.create_token(tx, name="op", kind="user", role="admin")
    return {"Authorization": f"Bearer {secret}"}


async def test_an_operator_sets_what_everybody_sees(both: Any) -> None:
    headers, viewer = await operator(both), both.client("viewer")
    before = (await viewer.get("/shares")).json()
    assert (before["sharing"], before["half_life_seconds"]) == (False, 604800.0)
    assert [(one["workspace"], one["gpu_quota"], one["share"]) for one in before["items"]] == [
        ("acme/vision", None, None)
    ]
    made = await viewer.patch("/share", json={"gpu_quota": 64, "share": 3}, headers=headers)
    assert made.status_code == 200, made.text
    found = (await viewer.get("/shares")).json()
    [mine] = found["items"]
    assert found["sharing"]
    assert mine == made.json()
    assert (mine["gpu_quota"], mine["share"], mine["share_of_all"], mine["gpus_in_use"]) == (64, 3.0, 1.0, 0)
    left = await viewer.patch("/share", json={"share": None}, headers=headers)
    assert (left.json()["gpu_quota"], left.json()["share"], left.json()["used_gpu_hours"]) == (64, None, None)


async def test_an_admin_of_the_workspace_may_not_raise_its_own_quota(world: Any) -> None:
    answer = await world.client("admin").patch("/share", json={"gpu_quota": 64})
    assert answer.status_code == 403
    assert "operator" in answer.json()["detail"]
    assert (await world.client("editor").patch("/share", json={})).status_code == 403


@pytest.mark.parametrize(
    "body", [{"gpu_quota": -1}, {"gpu_quota": 1.5}, {"share": 0}, {"share": 1e9}, {"quota": 1}, []]
)
async def test_what_cannot_be_is_a_fault(world: Any, body: Any) -> None:
    answer = await world.client("admin").patch("/share", json=body, headers=await operator(world))
    assert answer.status_code == 422


async def test_a_plan_says_that_it_would_be_over_the_quota(world: Any, spec: Any) -> None:
    client, headers = world.client(), await operator(world)
    await client.patch("/share", json={"gpu_quota": 4}, headers=headers)
    wanted = spec()
    wanted["spec"]["task_template"]["requested_resources"] = {"gpu_requests": {"count": 8}, "machines": 1}
    told = (await client.post("/runs:plan", json=wanted)).json()
    assert not told["fits"]
    assert told["reason"] == "Cannot run under the quota of workspace vision: 4 GPUs; this run needs 8"
    assert (await client.post("/runs", json=wanted)).status_code == 201, "quotas change, so it may wait"
