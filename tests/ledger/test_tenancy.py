"""Clusters, workspaces, and the templates and drives that belong to them."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from sqlalchemy.exc import IntegrityError
from support.tenants import CLUSTER, workspace

from astraeus.ledger import tenancy
from astraeus.ledger.cipher import Cipher
from astraeus.ledger.core import Ledger, Tx
from astraeus.model.errors import Invalid, NotFound


async def test_a_workspace_is_made_once(ledger: Ledger) -> None:
    first, second = await workspace(ledger), await workspace(ledger, " Vision", "ACME")
    assert first == second
    assert first.path == "acme/vision"
    assert first.default_cluster == CLUSTER
    async with ledger.reading() as tx:
        assert await tenancy.find_workspace(tx, "Acme", "VISION") == first
        assert await tenancy.get_workspace(tx, first.id) == first
        assert await tenancy.find_workspace(tx, "acme", "speech") is None
        with pytest.raises(NotFound):
            await tenancy.get_workspace(tx, "nobody")


async def test_made_by_several_at_once(ledger: Ledger) -> None:
    others = [Ledger(ledger.url) for _ in range(4)]
    found = await asyncio.gather(*(workspace(other) for other in others))
    for other in others:
        await other.close()
    assert len({home.id for home in found}) == 1


async def test_names_are_labels(ledger: Ledger) -> None:
    await workspace(ledger)
    async with ledger.transaction() as tx:
        for name in ("a/b", "", "x" * 64, "-a", "é"):
            with pytest.raises(Invalid):
                await tenancy.ensure_cluster(tx, name)
            with pytest.raises(Invalid):
                await tenancy.ensure_workspace(tx, "acme", name, CLUSTER)
        with pytest.raises(NotFound):
            await tenancy.ensure_workspace(tx, "acme", "speech", "nowhere")


async def test_clusters_by_name(ledger: Ledger) -> None:
    async with ledger.transaction() as tx:
        for name in ("lab-b", "LAB-A", "lab-b"):
            await tenancy.ensure_cluster(tx, name)
        found = await tenancy.clusters(tx)
    assert [(cluster.name, cluster.executor, cluster.factors) for cluster in found] == [
        ("lab-a", "agent", {}),
        ("lab-b", "agent", {}),
    ]


async def test_templates(ledger: Ledger) -> None:
    home, other = await workspace(ledger), await workspace(ledger, "speech")
    body = {"metadata": {"name": "a", "labels": {"x": "é\0"}}, "spec": {"priority": 1}}
    async with ledger.transaction() as tx:
        await tenancy.put_template(tx, home.id, "b", {}, "ada")
        await tenancy.put_template(tx, home.id, "a", {"old": True}, "ada")
        await tenancy.put_template(tx, home.id, "a", body, "bob")
        found = await tenancy.list_templates(tx, home.id)
        assert [(row.name, row.body, row.updated_by, row.updated_at) for row in found] == [
            ("a", body, "bob", tx.now),
            ("b", {}, "ada", tx.now),
        ]
        assert await tenancy.get_template(tx, home.id, "a") == found[0]
        assert await tenancy.get_template(tx, other.id, "a") is None
        assert not await tenancy.delete_template(tx, other.id, "a")
        assert await tenancy.delete_template(tx, home.id, "a")
        assert await tenancy.get_template(tx, home.id, "a") is None


async def test_drives(ledger: Ledger) -> None:
    home = await workspace(ledger)
    async with ledger.transaction() as tx:
        await tenancy.put_drive(tx, home.id, "checkpoints", "machine", None)
        made = tx.now
    async with ledger.transaction() as tx:
        await tenancy.put_drive(tx, home.id, "checkpoints", kind="shared", path="/mnt/ckpt")
        row = await tenancy.get_drive(tx, home.id, "checkpoints")
        assert row == tenancy.DriveRow("checkpoints", "shared", "/mnt/ckpt", made)
        assert await tenancy.list_drives(tx, home.id) == [row]
        assert await tenancy.delete_drive(tx, home.id, "checkpoints")
        assert not await tenancy.delete_drive(tx, home.id, "checkpoints")
        assert await tenancy.list_drives(tx, home.id) == []


async def put_for_nobody(ledger: Ledger) -> None:
    async with ledger.transaction() as tx:
        await tenancy.put_drive(tx, "nobody", "checkpoints", "machine", None)


async def test_each_change_of_what_a_workspace_keeps_is_announced_to_it(ledger: Ledger) -> None:
    home, cipher = (await workspace(ledger)).id, Cipher.from_text(Cipher.generate_text())
    steps: list[tuple[str, Callable[[Tx], Awaitable[object]]]] = [
        ("template", lambda tx: tenancy.put_template(tx, home, "a", {}, "ada")),
        ("template", lambda tx: tenancy.delete_template(tx, home, "a")),
        ("drive", lambda tx: tenancy.put_drive(tx, home, "a", "shared", "/a")),
        ("drive", lambda tx: tenancy.delete_drive(tx, home, "a")),
        ("secret", lambda tx: tenancy.put_secret(tx, cipher, home, "A", "x", "ada")),
        ("secret", lambda tx: tenancy.delete_secret(tx, home, "A")),
    ]
    for kind, step in steps:
        async with ledger.transaction() as tx:
            await step(tx)
        assert list(tx.changes) == [(kind, home)]
    async with ledger.transaction() as tx:
        for forget in (tenancy.delete_template, tenancy.delete_drive, tenancy.delete_secret):
            assert not await forget(tx, home, "a")
    assert not tx.changes


async def test_what_belongs_to_nobody_is_refused(ledger: Ledger) -> None:
    with pytest.raises(IntegrityError):
        await put_for_nobody(ledger)
