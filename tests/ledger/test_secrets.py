"""Secrets and the cipher: sealed at rest, bound to their place, opened by any key still known."""

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import select, update
from support.tenants import workspace

from astraeus.ledger.cipher import CannotOpen, Cipher
from astraeus.ledger.core import Ledger
from astraeus.ledger.library import delete_secret, list_secrets, open_secrets, put_secret
from astraeus.ledger.tables import secret

OLD = "old:" + base64.b64encode(b"o" * 32).decode()
NEW = "new:" + base64.b64encode(b"n" * 32).decode()


@given(st.binary(), st.binary())
def test_sealed_and_opened(data: bytes, aad: bytes) -> None:
    cipher = Cipher.from_text(OLD)
    sealed = cipher.seal(data, aad)
    assert cipher.open(sealed, aad) == data
    assert sealed != cipher.seal(data, aad)


@given(st.binary(min_size=1), st.data())
def test_any_change_is_noticed(data: bytes, draw: st.DataObject) -> None:
    cipher = Cipher.from_text(OLD)
    sealed = bytearray(cipher.seal(data, b"here"))
    place = draw.draw(st.integers(0, len(sealed) - 1))
    sealed[place] ^= draw.draw(st.integers(1, 255))
    with pytest.raises(CannotOpen):
        cipher.open(bytes(sealed), b"here")


@given(st.binary(max_size=64))
def test_noise_does_not_open(noise: bytes) -> None:
    with pytest.raises(CannotOpen):
        Cipher.from_text(OLD).open(noise, b"")


def test_elsewhere_it_does_not_open() -> None:
    cipher = Cipher.from_text(OLD)
    with pytest.raises(CannotOpen):
        cipher.open(cipher.seal(b"x", b"here"), b"there")


def test_old_keys_open_and_the_first_one_seals() -> None:
    before, after = Cipher.from_text(OLD), Cipher.from_text(f" {NEW}, {OLD}\n")
    assert after.open(before.seal(b"x", b""), b"") == b"x"
    with pytest.raises(CannotOpen, match="'new'"):
        before.open(after.seal(b"x", b""), b"")


def test_generated_keys_are_good_and_new() -> None:
    first, second = Cipher.generate_text(), Cipher.generate_text()
    assert first != second
    both = Cipher.from_text(f"{second},{first}")
    assert both.open(Cipher.from_text(first).seal(b"x", b""), b"") == b"x"


@pytest.mark.parametrize(
    "text", ["", "key", "a:", "a:!!", "a:QUJD", f"{OLD},{OLD}", f"{OLD},", "b d:" + OLD[4:], "ü:" + OLD[4:]]
)
def test_bad_keys_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"key|keys"):
        Cipher.from_text(text)


async def test_secrets_are_kept_sealed(ledger: Ledger) -> None:
    home, other = await workspace(ledger), await workspace(ledger, "speech")
    cipher = Cipher.from_text(OLD)
    async with ledger.transaction() as tx:
        await put_secret(tx, cipher, home.id, "TOKEN", "hunter2 é", "ada")
        await put_secret(tx, cipher, home.id, "A", "", "ada")
        await put_secret(tx, cipher, other.id, "TOKEN", "another", "bob")
        assert await list_secrets(tx, home.id) == ["A", "TOKEN"]
        stored = (await tx.conn.execute(select(secret.c.sealed))).scalars().all()
        assert not any(b"hunter2" in sealed for sealed in stored)
        opened = await open_secrets(tx, cipher, home.id, ["TOKEN", "A", "MISSING"])
        assert opened == {"TOKEN": "hunter2 é", "A": ""}
        assert await open_secrets(tx, cipher, home.id, []) == {}


async def test_secrets_are_replaced_and_deleted(ledger: Ledger) -> None:
    home = await workspace(ledger)
    old, both = Cipher.from_text(OLD), Cipher.from_text(f"{NEW},{OLD}")
    async with ledger.transaction() as tx:
        await put_secret(tx, old, home.id, "TOKEN", "first", "ada")
        assert await open_secrets(tx, both, home.id, ["TOKEN"]) == {"TOKEN": "first"}
        await put_secret(tx, both, home.id, "TOKEN", "second", "bob")
        assert await open_secrets(tx, Cipher.from_text(NEW), home.id, ["TOKEN"]) == {"TOKEN": "second"}
        with pytest.raises(CannotOpen):
            await open_secrets(tx, old, home.id, ["TOKEN"])
        assert await delete_secret(tx, home.id, "TOKEN")
        assert not await delete_secret(tx, home.id, "TOKEN")
        assert await list_secrets(tx, home.id) == []


async def test_a_sealed_value_cannot_be_moved(ledger: Ledger) -> None:
    home = await workspace(ledger)
    cipher = Cipher.from_text(OLD)
    async with ledger.transaction() as tx:
        await put_secret(tx, cipher, home.id, "MINE", "x", "ada")
        await put_secret(tx, cipher, home.id, "THEIRS", "y", "bob")
        theirs = (await tx.conn.execute(select(secret.c.sealed).where(secret.c.name == "THEIRS"))).scalar_one()
        await tx.conn.execute(update(secret).where(secret.c.name == "MINE").values(sealed=theirs))
        with pytest.raises(CannotOpen):
            await open_secrets(tx, cipher, home.id, ["MINE"])
