"""Tokens: only their hash is kept, and only good ones let anyone in."""

import hashlib

import pytest
from sqlalchemy import select, update
from support.tenants import CLUSTER, workspace

from astraeus.ledger.core import Ledger
from astraeus.ledger.tables import token
from astraeus.ledger.tokens import Caller, authenticate, create_token, note_use, revoke_token, tokens
from astraeus.model.errors import Invalid


async def test_a_token_speaks_for_its_caller(ledger: Ledger) -> None:
    home = await workspace(ledger)
    async with ledger.transaction() as tx:
        view, plaintext = await create_token(tx, name="ada", kind="user", role="editor", workspace_id=home.id)
        agent, of_agent = await create_token(tx, name="agents", kind="machine", role="machine", cluster=CLUSTER)
    async with ledger.reading() as tx:
        assert await authenticate(tx, plaintext) == Caller("ada", "editor", home.id, None, "user", view.id, True)
        assert await authenticate(tx, of_agent) == Caller("agents", "machine", None, CLUSTER, "machine", agent.id, True)
        assert await tokens(tx, home.id) == [view]


async def test_only_the_hash_is_kept(ledger: Ledger) -> None:
    home = await workspace(ledger)
    async with ledger.transaction() as tx:
        view, plaintext = await create_token(tx, name="ada", kind="user", role="admin", workspace_id=home.id)
        row = (await tx.conn.execute(select(token))).mappings().one()
    assert plaintext.startswith(f"ast_{view.id}_")
    assert row["hash"] == hashlib.sha256(plaintext.encode()).hexdigest()
    assert plaintext.rpartition("_")[2] not in repr(dict(row))


async def test_what_is_no_token_lets_nobody_in(ledger: Ledger) -> None:
    home = await workspace(ledger)
    async with ledger.transaction() as tx:
        view, plaintext = await create_token(tx, name="ada", kind="user", role="admin", workspace_id=home.id)
    secret = plaintext.rpartition("_")[2]
    wrong = [
        *("", "ast", "ast__", "ast_\0_x", plaintext.upper(), plaintext + "\n", plaintext[:-1], "\ud800", "é" * 100),
        f"ast_{view.id}_{'0' * 48}",
        f"ast_{'0' * 16}_{secret}",
    ]
    async with ledger.reading() as tx:
        assert [await authenticate(tx, text) for text in wrong] == [None] * len(wrong)


async def test_revoked_for_good(ledger: Ledger) -> None:
    home, other = await workspace(ledger), await workspace(ledger, "speech")
    async with ledger.transaction() as tx:
        view, plaintext = await create_token(tx, name="ada", kind="user", role="viewer", workspace_id=home.id)
        assert not await revoke_token(tx, other.id, view.id)
        assert await authenticate(tx, plaintext) is not None
    assert list(tx.changes) == [("token", home.id)]
    async with ledger.transaction() as tx:
        assert await revoke_token(tx, home.id, view.id)
        first = (await tokens(tx, home.id))[0].revoked_at
    assert list(tx.changes) == [("token", home.id)]
    async with ledger.transaction() as tx:
        assert await revoke_token(tx, home.id, view.id)
        assert not tx.changes
        assert (await tokens(tx, home.id))[0].revoked_at == first == pytest.approx(tx.now, abs=60)
        assert await authenticate(tx, plaintext) is None
        assert not await revoke_token(tx, home.id, "0" * 16)


async def test_expired(ledger: Ledger) -> None:
    home = await workspace(ledger)
    async with ledger.transaction() as tx:
        made = {"name": "ada", "kind": "user", "role": "viewer", "workspace_id": home.id}
        _, past = await create_token(tx, **made, expires_at=tx.now)
        _, future = await create_token(tx, **made, expires_at=tx.now + 3600)
        assert await authenticate(tx, past) is None
        assert await authenticate(tx, future) is not None


async def test_use_is_noted_at_most_once_a_minute(ledger: Ledger) -> None:
    home = await workspace(ledger)
    async with ledger.transaction() as tx:
        view, plaintext = await create_token(tx, name="ada", kind="user", role="viewer", workspace_id=home.id)
        await note_use(tx, view.id)
        noted = (await tokens(tx, home.id))[0].last_used_at
        caller = await authenticate(tx, plaintext)
    assert noted == tx.now
    assert caller is not None
    assert not caller.unnoted
    async with ledger.transaction() as tx:
        await note_use(tx, view.id)
        assert (await tokens(tx, home.id))[0].last_used_at == noted
        await tx.conn.execute(update(token).values(last_used_at=tx.now - 61))
        caller = await authenticate(tx, plaintext)
        await note_use(tx, view.id)
        assert (await tokens(tx, home.id))[0].last_used_at == tx.now
    assert caller is not None
    assert caller.unnoted


async def test_a_role_fits_its_kind(ledger: Ledger) -> None:
    async with ledger.transaction() as tx:
        for kind, role in (("user", "machine"), ("machine", "admin"), ("robot", "viewer"), ("user", "owner")):
            with pytest.raises(Invalid):
                await create_token(tx, name="x", kind=kind, role=role)
