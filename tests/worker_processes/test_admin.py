"""The first workspace and tokens of an installation."""

import asyncio

import pytest

from astraeus.ledger import tenancy, tokens
from astraeus.ledger.core import Ledger
from astraeus.ledger.snapshot import load_snapshot
from worker import admin


@pytest.fixture
def at_ledger(sqlite_ledger_url: str, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("ASTRAEUS_LEDGER_URL", sqlite_ledger_url)
    return sqlite_ledger_url


async def caller_of(url: str, secret: str) -> tuple[str, str | None, str | None]:
    ledger = Ledger(url)
    try:
        async with ledger.reading() as tx:
            caller = await tokens.authenticate(tx, secret)
            assert caller is not None
            space = await tenancy.get_workspace(tx, caller.workspace_id) if caller.workspace_id else None
            return caller.role, space.path if space else None, caller.cluster
    finally:
        await ledger.close()


def test_a_workspace_comes_with_an_admins_token(at_ledger: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert admin.main(["workspace", "Acme/Vision", "--cluster", "lab-a"]) == 0
    secret = capsys.readouterr().out.strip()
    assert asyncio.run(caller_of(at_ledger, secret)) == ("admin", "acme/vision", None)


def test_machines_get_a_token_of_their_cluster(at_ledger: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert admin.main(["machine-token", "lab-a"]) == 0
    secret = capsys.readouterr().out.strip()
    assert asyncio.run(caller_of(at_ledger, secret)) == ("machine", None, "lab-a")


def test_a_bad_name_is_refused_with_what_to_do(at_ledger: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert admin.main(["workspace", "acme", "--cluster", "lab-a"]) == 1
    assert "use lower-case letters" in capsys.readouterr().err


def test_an_operator_is_an_admin_of_every_workspace(at_ledger: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert admin.main(["operator-token"]) == 0
    assert asyncio.run(caller_of(at_ledger, capsys.readouterr().out.strip())) == ("admin", None, None)


def test_the_half_life_of_use_is_set_in_days(at_ledger: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert admin.main(["half-life", "lab-a", "14"]) == 1
    assert "no cluster lab-a" in capsys.readouterr().err
    assert admin.main(["machine-token", "lab-a"]) == admin.main(["half-life", "lab-a", "14"]) == 0
    assert admin.main(["half-life", "lab-a", "0"]) == 1
    assert "at least 60 seconds" in capsys.readouterr().err

    async def half_life() -> float:
        ledger = Ledger(at_ledger)
        try:
            async with ledger.reading() as tx:
                return (await load_snapshot(tx, "lab-a")).half_life_seconds
        finally:
            await ledger.close()

    assert asyncio.run(half_life()) == 14 * 86_400
