"""Drives and secrets."""

from typing import Any

import pytest

from astraeus.ledger import tenancy


async def test_drives(both: Any) -> None:
    editor = both.client()
    made = await editor.put("/drives/Checkpoints", json={"kind": "shared", "path": "/data/ckpt"})
    assert made.status_code == 200, made.text
    assert (made.json()["name"], made.json()["kind"], made.json()["path"]) == ("checkpoints", "shared", "/data/ckpt")
    await editor.put("/drives/scratch", json={})
    await editor.put("/drives/checkpoints", json={"kind": "machine"})
    listed = (await both.client("viewer").get("/drives")).json()["items"]
    assert [(one["name"], one["kind"], one["path"]) for one in listed] == [
        ("checkpoints", "machine", None),
        ("scratch", "machine", None),
    ]
    assert (await editor.get("/drives/CHECKPOINTS")).json() == listed[0]
    assert (await editor.delete("/drives/checkpoints")).status_code == 204
    assert (await editor.delete("/drives/checkpoints")).status_code == 404


@pytest.mark.parametrize("body", [{"kind": "odd"}, {"path": "relative"}, {"path": "/a/../b"}, {"path": "/a\0"}, []])
async def test_bad_drives(world: Any, body: Any) -> None:
    assert (await world.client().put("/drives/d", json=body)).status_code == 422


async def test_secrets_are_sealed_and_only_named(both: Any) -> None:
    editor = both.client()
    assert (await editor.put("/secrets/WANDB_KEY", json={"value": "héllo"})).json() == {"name": "WANDB_KEY"}
    await editor.put("/secrets/A", json={"value": "1"})
    await editor.put("/secrets/A", json={"value": "2"})
    listed = await both.client("viewer").get("/secrets")
    assert listed.json()["items"] == [{"name": "A"}, {"name": "WANDB_KEY"}]
    async with both.state.ledger.reading() as tx:
        opened = await tenancy.open_secrets(tx, both.state.cipher, both.workspace.id, ["A", "WANDB_KEY"])
    assert opened == {"A": "2", "WANDB_KEY": "héllo"}
    assert (await editor.delete("/secrets/A")).status_code == 204
    assert (await editor.delete("/secrets/A")).status_code == 404
    assert (await editor.put("/secrets/not-an-env-name", json={"value": "x"})).status_code == 422
    assert (await editor.put("/secrets/B", json={"value": "a\0"})).status_code == 422
