"""The agents' endpoint: reports recorded first, the desired state returned when it is news."""

import asyncio
from typing import Any

from astraeus.ledger import gangs


def live(machine: dict[str, Any], *keys: str) -> dict[str, Any]:
    """A machine of a sync with these workers alive."""
    return {"name": machine["name"], "boot_id": "b-1", "live": list(keys)}


async def test_the_desired_state_comes_once(both: Any, placed: Any, machine: Any) -> None:
    ref = await placed(both)
    m1, m2 = machine("m-1"), machine("m-2")
    first = await both.sync(live(m1), live(m2), seen="")
    assert [(one["machine"], one["rank"], one["desired"]) for one in first["workers"]] == [
        ("m-1", 0, "hold"),
        ("m-2", 1, "hold"),
    ]
    assert first["workers"][0]["env"]["WORLD_SIZE"] == "2"
    again = await both.sync(live(m1), live(m2), seen=first["version"])
    assert (again["version"], again["workers"]) == (first["version"], None)
    launch = await both.client("machine").get(f"/agent/v1/launch/{ref.run_uid}/1")
    assert (launch.status_code, launch.json()["command"]) == (200, "true")
    assert launch.headers["cache-control"] == "no-store"
    for path in (f"/agent/v1/launch/{ref.run_uid}/7", "/agent/v1/launch/none/1", "/agent/v1/launch/%00/1"):
        assert (await both.client("machine").get(path)).status_code == 404


async def test_a_held_sync_is_woken_by_its_machines_only(both: Any, placed: Any, machine: Any) -> None:
    ref = await placed(both)
    m1, m2 = machine("m-1"), machine("m-2")
    seen = (await both.sync(live(m1), live(m2), seen=""))["version"]
    held = asyncio.create_task(both.sync(live(m1), live(m2), seen=seen, wait_seconds=30))
    keys = [f"{ref.run_uid}/1/{rank}" for rank in range(2)]
    reports = [
        {"run_uid": ref.run_uid, "attempt": 1, "rank": rank, "machine": f"m-{rank + 1}", "state": "arrived"}
        for rank in range(2)
    ]
    await both.sync(live(m1, keys[0]), live(m2, keys[1]), workers=reports, seen=seen)
    async with both.state.ledger.transaction() as tx:
        await gangs.open_gates(tx, ref)
    answer = await held
    assert {one["desired"] for one in answer["workers"]} == {"run"}
    run = (await both.client().get("/runs/resnet")).json()
    assert (run["state"], len(run["workers"])) == ("Running", 2)


async def test_reports_reach_the_run_even_while_temporal_is_away(world: Any, placed: Any, machine: Any) -> None:
    ref = await placed(world)
    world.delivery.slow = asyncio.Event()
    report = {"run_uid": ref.run_uid, "attempt": 1, "rank": 0, "machine": "m-1", "state": "arrived"}
    await world.sync(live(machine("m-1"), f"{ref.run_uid}/1/0"), workers=[report], seen="")
    run = (await world.client().get("/runs/resnet")).json()
    assert run["reason"] == "Starting together: 1 of 2 ready"
    world.delivery.slow.set()


async def test_what_is_no_report(world: Any) -> None:
    for body, status in ((b"{", 400), (b"{}", 422), (b'{"session": "s", "machines": [{}]}', 422)):
        answer = await world.client("machine").post("/agent/v1/sync", content=body)
        assert answer.status_code == status
    empty = await world.sync(wait_seconds=0)
    assert empty["workers"] in (None, [])
