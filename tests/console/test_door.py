"""Signing in and what is turned away, in process and without a browser."""

from collections.abc import AsyncIterator

import httpx
import pytest
from console.nowhere import Nowhere
from support.tenants import CLUSTER

from api.app import create_app
from api.console import session
from api.state import AppState
from astraeus.ledger import tenancy
from astraeus.ledger.changes import ChangeHub
from astraeus.ledger.cipher import Cipher
from astraeus.ledger.core import Ledger
from astraeus.model.errors import NotAllowed, NotFound, NotSignedIn

RUNS = "/o/acme/w/vision/runs"


class House:
    """An API with a workspace and its tokens by role."""

    def __init__(self, state: AppState, tokens: dict[str, str]) -> None:
        self.state, self.tokens = state, tokens
        transport = httpx.ASGITransport(create_app(state))
        self.client = httpx.AsyncClient(transport=transport, base_url="http://test")

    async def sign_in(self, token: str, **more: str) -> httpx.Response:
        return await self.client.post("/sign-in", data={"token": token, **more})


@pytest.fixture
async def house(sqlite_ledger: Ledger) -> AsyncIterator[House]:
    tokens = {}
    async with sqlite_ledger.transaction() as tx:
        await tenancy.ensure_cluster(tx, CLUSTER)
        home = await tenancy.ensure_workspace(tx, "acme", "vision", CLUSTER)
        for role in ("viewer", "admin"):
            _, tokens[role] = await tenancy.create_token(tx, name=role, kind="user", role=role, workspace_id=home.id)
        _, tokens["every"] = await tenancy.create_token(tx, name="every", kind="user", role="admin")
        _, tokens["machine"] = await tenancy.create_token(
            tx, name="agents", kind="machine", role="machine", cluster=CLUSTER
        )
    cipher = Cipher.from_text(Cipher.generate_text())
    house = House(AppState(sqlite_ledger, ChangeHub(sqlite_ledger), Nowhere(), cipher, "http://test"), tokens)
    yield house
    await house.client.aclose()
    await house.state.background.close()


@pytest.mark.parametrize("role", ["viewer", "every"])
async def test_a_token_becomes_a_sealed_cookie_and_leads_home(house: House, role: str) -> None:
    answer = await house.sign_in(house.tokens[role])
    assert (answer.status_code, answer.headers["location"]) == (303, RUNS)
    cookie = answer.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=lax" in cookie
    assert "Secure" not in cookie
    assert house.tokens[role] not in cookie
    home = await house.client.get("/")
    assert (home.status_code, home.headers["location"]) == (303, RUNS)
    out = await house.client.post("/sign-out")
    assert out.headers["location"] == "/sign-in"
    assert (await house.client.get("/")).headers["location"] == "/sign-in"


async def test_over_https_the_cookie_is_for_https_only(house: House) -> None:
    house.state.public_url = "https://test"
    assert "Secure" in (await house.sign_in(house.tokens["viewer"])).headers["set-cookie"]


@pytest.mark.parametrize(("token", "status"), [("", 401), ("ast_x_y", 401), ("<script>", 401), ("machine", 403)])
async def test_what_is_no_users_token_is_turned_away_with_words(house: House, token: str, status: int) -> None:
    answer = await house.sign_in(house.tokens.get(token, token))
    assert answer.status_code == status
    assert "set-cookie" not in answer.headers
    assert 'role="alert"' in answer.text
    assert "<script" not in answer.text


@pytest.mark.parametrize(
    "wanted", ["https://evil.test/", "//evil.test", "/\\evil.test", "/o/\\..\n", "javascript:alert(1)"]
)
async def test_signing_in_leads_nowhere_else(house: House, wanted: str) -> None:
    answer = await house.sign_in(house.tokens["viewer"], next=wanted)
    assert answer.headers["location"] == RUNS


async def test_signing_in_leads_back_to_where_one_was_going(house: House) -> None:
    asked = await house.client.get(RUNS + "/lab-a/resnet?uid=1&x=%22")
    assert asked.status_code == 303
    form = await house.client.get(asked.headers["location"])
    assert 'value="/o/acme/w/vision/runs/lab-a/resnet?uid=1&amp;x=%22"' in form.text
    again = await house.sign_in("ast_wrong", next=RUNS + "/lab-a/resnet?uid=1")
    assert 'value="/o/acme/w/vision/runs/lab-a/resnet?uid=1"' in again.text
    answer = await house.sign_in(house.tokens["viewer"], next=RUNS + "/lab-a/resnet?uid=1")
    assert answer.headers["location"] == RUNS + "/lab-a/resnet?uid=1"


async def test_another_sites_requests_are_refused(house: House) -> None:
    form = {"token": house.tokens["viewer"]}
    assert (await house.client.post("/sign-in", data=form, headers={"origin": "https://evil.test"})).status_code == 403
    assert (await house.client.post("/sign-in", data=form, headers={"origin": "http://test"})).status_code == 303
    page = await house.client.get("/sign-in")
    assert "frame-ancestors 'none'" in page.headers["content-security-policy"]
    assert "default-src 'self'" in page.headers["content-security-policy"]


async def test_a_cookie_that_is_not_ours_or_too_old_is_none(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    sealed = session.seal(house.state.cipher, house.tokens["viewer"])
    assert session.unseal(house.state.cipher, sealed) == house.tokens["viewer"]
    other = Cipher.from_text(Cipher.generate_text())
    assert session.unseal(other, sealed) is None
    for bad in ("", "x", sealed[:-8], sealed[::-1], "é"):
        assert session.unseal(house.state.cipher, bad) is None
    monkeypatch.setattr(session, "SESSION_SECONDS", -1)
    assert session.unseal(house.state.cipher, sealed) is None


async def test_roles_are_asked_for_each_time(house: House) -> None:
    with pytest.raises(NotAllowed):
        await session.admit(house.state, house.tokens["viewer"], "acme", "vision", "editor")
    with pytest.raises(NotFound):
        await session.admit(house.state, house.tokens["viewer"], "acme", "speech")
    with pytest.raises(NotSignedIn):
        await session.admit(house.state, None, "acme", "vision")
    scope = await session.admit(house.state, house.tokens["admin"], "ACME", "vision", "admin")
    async with house.state.ledger.transaction() as tx:
        await tenancy.revoke_token(tx, scope.workspace.id, scope.caller.token)
    house.state.tokens.forget()
    with pytest.raises(NotSignedIn):
        await session.admit(house.state, house.tokens["admin"], "acme", "vision")


async def test_logs_need_a_session_and_a_run(house: House) -> None:
    path = RUNS + "/lab-a/resnet/logs/resnet-0"
    assert (await house.client.get(path)).json()["code"] == "not-signed-in"
    await house.sign_in(house.tokens["viewer"])
    assert (await house.client.get(path)).json()["code"] == "not-found"
    assert (await house.client.get(path, params={"tail": "-1"})).json()["code"] == "invalid"


async def test_rest_keeps_its_own_answers(house: House) -> None:
    assert (await house.client.get("/nothing")).json()["code"] == "no-such-route"
    assert (await house.client.post("/")).status_code in (404, 405)
    assert (await house.client.get("/api/o/acme/w/vision/runs")).status_code == 401
