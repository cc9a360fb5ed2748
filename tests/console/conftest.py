"""A stack with the console, and browsers that note every request and every error."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect, sync_playwright
from support.stack import DevStack

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
QUIET = (
    *("--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"),
    *("--disable-sync", "--disable-quic", "--no-first-run"),
)
SCREENSHOTS = Path(__file__).parents[2] / "build" / "screenshots"
expect.set_options(timeout=15_000)
"""More than a page pauses between two changes, and less than after which it asks again without any."""
EVIL = """<img src=x onerror="window.pwned=1"><script>window.pwned=2</script>{{constructor.constructor('pwned=3')()}}"""
"""What must be shown as it is, wherever a user's words are shown."""


@dataclass
class Console:
    """One signed-in browser, what it asked for, and what went wrong in it."""

    stack: DevStack
    context: BrowserContext
    page: Page
    asked: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)

    def watch(self, page: Page) -> Page:
        page.on("request", lambda request: self.asked.append(request.url))
        page.on("websocket", lambda socket: self.asked.append(socket.url))
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.set_default_timeout(20_000)
        return page

    @property
    def base(self) -> str:
        return f"{self.stack.facts['console']}/o/acme/w/vision"

    def open(self, path: str, page: Page | None = None) -> Page:
        page = page or self.page
        page.goto(f"{self.base}/{path}")
        page.locator("main h1").first.wait_for()
        return page

    def sign_in(self, token: str, page: Page | None = None) -> None:
        page = page or self.page
        page.goto(f"{self.stack.facts['console']}/")
        page.get_by_label("Token").fill(token)
        page.get_by_role("button", name="Sign in").click()

    def window(self) -> Page:
        """Another window of the same user."""
        return self.watch(self.context.new_page())

    def keep(self, name: str, page: Page | None = None) -> None:
        """Keep what is shown, for people to look at."""
        SCREENSHOTS.mkdir(parents=True, exist_ok=True)
        (page or self.page).screenshot(path=SCREENSHOTS / f"{name}.png", full_page=True)

    def check(self) -> None:
        """No request left this machine, no word of a user ran, nothing broke, and no address held a token."""
        hosts = {urlsplit(url).hostname for url in self.asked if urlsplit(url).scheme not in ("data", "blob")}
        assert hosts <= {"127.0.0.1"}, hosts
        assert not [url for url in self.asked if "ast_" in url]
        assert self.errors == []
        for page in self.context.pages:
            assert page.evaluate("window.pwned === undefined")


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """A Chromium of its own for each module: while it is open, no test of this thread can run a loop of its own."""
    assert CHROMIUM, "install chromium; .ci/run does"
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=list(QUIET))
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DevStack]:
    """A whole stack, shared by a module's tests."""
    with DevStack(tmp_path_factory.mktemp("console")) as stack:
        yield stack


def opened(stack: DevStack, browser: Browser, **options: Any) -> Console:
    context = browser.new_context(viewport={"width": 1280, "height": 860}, **options)
    console = Console(stack, context, context.new_page())
    console.watch(console.page)
    return console


@pytest.fixture
def console(stack: DevStack, browser: Browser) -> Iterator[Console]:
    """A browser signed in with the stack's own token, checked at the end."""
    console = opened(stack, browser)
    console.sign_in(stack.facts["token"])
    console.page.locator("main h1").wait_for()
    yield console
    console.check()
    console.context.close()


def token(stack: DevStack, role: str) -> str:
    """A new token of this role."""
    answer = stack.api("POST", "/tokens", json={"name": f"a-{role}", "role": role})
    assert answer.status_code == 201, answer.text
    text: str = answer.json()["token"]
    return text


def admin(stack: DevStack, *words: str) -> str:
    """What `python -m worker.admin` prints on the stack's ledger."""
    environment = os.environ | {"ASTRAEUS_LEDGER_URL": f"sqlite+aiosqlite:///{stack.directory}/ledger.db"}
    command = [sys.executable, "-m", "worker.admin", *words]
    return subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout.strip()


def shell(name: str, script: str, gpus: int, machines: int, **more: Any) -> dict[str, Any]:
    """A gang whose members run a line of shell."""
    wanted = {"gpu_requests": {"count": gpus}, "machines": machines}
    task = {"command": "bash", "args": ["-c", script], "requested_resources": wanted}
    labels = more.pop("labels", {})
    return {"metadata": {"name": name, "labels": labels}, "spec": {"task_template": task, **more}}


def write(page: Page, text: str) -> None:
    """Replace what is in the editor, as pasting does."""
    page.locator(".cm-content").click()
    page.keyboard.press("ControlOrMeta+A")
    page.keyboard.insert_text(text)
