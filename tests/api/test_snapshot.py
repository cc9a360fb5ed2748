"""The scheduler's input, for admins."""

from typing import Any

from astraeus.placement import jsonform


async def test_admins_get_what_a_pass_would_decide_on(both: Any, machine: Any) -> None:
    await both.sync(machine("m-1"))
    answer = await both.client("admin").get("/snapshot")
    assert answer.status_code == 200
    given = jsonform.read_input(answer.content)
    assert [one.name for one in given.snapshot.machines] == ["m-1"]
    assert given.now > 0
    assert (await both.client("editor").get("/snapshot")).status_code == 403
    assert (await both.client("admin").get("/snapshot", params={"cluster": "none"})).status_code == 404
