"""A page and everything it loads come from this process; once per process, as NiceGUI has one app in it."""

import re
from collections.abc import AsyncIterator
from urllib.parse import urljoin

import httpx
import pytest
from console.nowhere import Nowhere
from support.tenants import workspace

from api.app import create_app
from api.state import AppState
from astraeus.ledger import tenancy
from astraeus.ledger.changes import ChangeHub
from astraeus.ledger.cipher import Cipher
from astraeus.ledger.core import Ledger

ADDRESS = re.compile(r"""(?:src|href)="([^"]+)"|url\("([^"]+)"\)|"(?:[\w./-]+)":\s*"(/[^"]+)"|from "(\./[^"]+)\"""")


@pytest.fixture
async def client(sqlite_ledger: Ledger) -> AsyncIterator[httpx.AsyncClient]:
    """Signed in."""
    home = await workspace(sqlite_ledger)
    async with sqlite_ledger.transaction() as tx:
        _, token = await tenancy.create_token(tx, name="a", kind="user", role="viewer", workspace_id=home.id)
    cipher = Cipher.from_text(Cipher.generate_text())
    app = create_app(AppState(sqlite_ledger, ChangeHub(sqlite_ledger), Nowhere(), cipher, "http://test"))
    client = httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://test")
    async with app.router.lifespan_context(app), client:
        await client.post("/sign-in", data={"token": token})
        yield client


async def test_everything_a_page_loads_is_served_here(client: httpx.AsyncClient) -> None:
    page = await client.get("/o/acme/w/vision/runs/new", headers={"x-forwarded-prefix": "//evil.test"})
    assert page.status_code == 200
    assert "evil.test" not in page.text
    assert "default-src 'self'" in page.headers["content-security-policy"]
    assert page.headers["cache-control"] == "no-store"
    waiting = [one for found in ADDRESS.findall(page.text) for one in found if one]
    seen: set[str] = set()
    while waiting:
        address = waiting.pop()
        if address in seen or address.startswith("data:") or address.endswith("/"):
            continue
        seen.add(address)
        assert address.startswith("/"), address
        answer = await client.get(address)
        assert answer.status_code == 200, address
        if "/esm/" in address:
            waiting += [urljoin(address, found[3]) for found in ADDRESS.findall(answer.text) if found[3]]
    for name in ("index.js", "runs.js", "logs.js", "parts.js", "console.css"):
        assert any(address.endswith(f"/{name}") for address in seen), name
