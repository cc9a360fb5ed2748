"""Users' words are shown as they are and never run; roles hold; secrets stay; pages fit; many runs stay quick."""

import sqlite3
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe
from console.conftest import EVIL, SCREENSHOTS, Console, opened, shell, token
from playwright.sync_api import Browser, Page, expect
from support.stack import DevStack

pytestmark = pytest.mark.slow

PAGES = (
    "runs",
    "runs/new",
    "runs/lab-a/words",
    "topology",
    "machines",
    "machines/lab-a/m-0",
    "queue",
    "events",
    "templates",
)
MORE = ("drives", "secrets", "tokens")
MANY = 2000
ACT = """async ([name, values]) => {
    const screen = getElement(document.querySelector(".frame").id.slice(1));
    try { return await screen.act(name, values); } catch (error) { return "refused: " + error.message; }
}"""


@pytest.fixture(scope="module", autouse=True)
def _furnished(stack: DevStack) -> None:
    """A run, a template and a drained machine full of HTML and script."""
    script = f"cat <<'END'\n{EVIL}\nEND\nsleep 600"
    stack.submit(shell("words", script, 8, 1, labels={"page": EVIL, EVIL[:200]: "key"}))
    stack.reach("words", "Running")
    stack.submit(shell("loud", f"echo {'y' * 50}; seq 300000; sleep 600", 8, 1))
    stack.submit(shell("ended", "sleep 600", 8, 1))
    stack.api("POST", "/runs/ended:cancel", json={"why": EVIL})
    stack.reach("ended", "Cancelled")
    assert stack.api("POST", "/machines/m-15:drain", json={"reason": EVIL}).is_success
    assert stack.api("PUT", "/templates/words", json=shell("words", EVIL, 8, 1)).is_success
    assert stack.api("PUT", "/drives/words", json={"path": f"/x/{EVIL.replace('/', '|')}"}).is_success


@pytest.fixture
def viewer(stack: DevStack, browser: Browser) -> Iterator[Console]:
    console = opened(stack, browser)
    console.sign_in(token(stack, "viewer"))
    console.page.locator("main h1").wait_for()
    yield console
    console.check()
    console.context.close()


def test_words_are_text_on_every_page(console: Console) -> None:
    page = console.page
    expect(page.get_by_text(f"page={EVIL}")).to_be_visible()
    console.open("runs/lab-a/words")
    expect(page.locator(".log")).to_contain_text(EVIL)
    expect(page.locator("pre.json")).to_contain_text("window.pwned=2")
    console.open("runs/lab-a/ended")
    expect(page.locator(".events")).to_contain_text(EVIL)
    console.open("machines")
    expect(page.get_by_text(f"{EVIL} (dev)")).to_be_visible()
    console.open("machines/lab-a/m-15")
    expect(page.get_by_text(EVIL)).to_be_visible()
    console.open("runs/new?template=words")
    expect(page.locator(".cm-content")).to_contain_text("window.pwned=2")
    for path in (
        "topology",
        "events",
        "templates",
        "drives",
        f"runs?search={EVIL}",
        f"machines/lab-a/{EVIL.replace('/', '')}",
    ):
        console.open(path)


def test_a_viewer_sees_and_changes_nothing(viewer: Console) -> None:
    page = viewer.page
    expect(page.get_by_role("link", name="New run")).to_have_count(0)
    viewer.open("runs/lab-a/words")
    expect(page.get_by_role("button", name="Cancel")).to_have_count(0)
    assert "needs the role editor" in page.evaluate(ACT, ["cancel", {"run": "words"}])
    viewer.open("machines")
    expect(page.get_by_role("button", name="Drain m-0")).to_have_count(0)
    assert "needs the role admin" in page.evaluate(ACT, ["drain", {"name": "m-0", "cluster": "lab-a"}])
    viewer.open("tokens")
    expect(page.get_by_role("heading", name="Not allowed")).to_be_visible()
    assert "needs the role admin" in page.evaluate(ACT, ["create", {"name": "mine", "role": "admin"}])
    viewer.keep("not-allowed")
    viewer.open("runs/lab-a/nothing-here")
    expect(page.get_by_role("heading", name="Not here")).to_be_visible()
    viewer.keep("not-found")
    assert viewer.stack.run("words")["state"] == "Running"


def test_a_revoked_token_ends_the_page(stack: DevStack, browser: Browser) -> None:
    console = opened(stack, browser)
    console.sign_in(token(stack, "editor"))
    console.page.locator("main h1").wait_for()
    for one in stack.api("GET", "/tokens").json()["items"]:
        if one["role"] == "editor":
            stack.api("DELETE", f"/tokens/{one['id']}")
    assert "refused" in console.page.evaluate(ACT, ["look", {}])
    expect(console.page.get_by_role("heading", name="You are not signed in any more")).to_be_visible()
    console.page.get_by_role("link", name="Sign in").click()
    console.page.get_by_label("Token").wait_for()
    console.context.close()


def test_tokens_are_shown_once_and_secrets_never(console: Console) -> None:
    page, frames = console.page, []
    page.on("websocket", lambda socket: socket.on("framereceived", lambda frame: frames.append(str(frame))))
    console.open("secrets")
    page.get_by_role("button", name="New secret").click()
    page.get_by_label("Name").fill("API_KEY")
    page.get_by_label("Value").fill("very-secret-value")
    page.get_by_role("button", name="Save secret").click()
    expect(page.get_by_role("row", name="API_KEY")).to_be_visible()
    assert "very-secret-value" not in page.content() + "".join(frames)
    console.open("tokens")
    page.get_by_role("button", name="New token").click()
    page.get_by_label("Name").fill("ci")
    page.get_by_role("button", name="Make token").click()
    text = page.locator("code.token").inner_text()
    assert text.startswith("ast_")
    console.open("tokens")
    assert text not in page.content()
    page.get_by_role("button", name="Revoke ci").click()
    page.get_by_role("button", name="Revoke token").click()
    expect(page.get_by_role("row", name="ci")).to_contain_text("revoked")


def test_a_huge_log_is_drawn_in_small(console: Console) -> None:
    page = console.open("runs/lab-a/loud")
    page.get_by_label("from the beginning").check()
    expect(page.get_by_text("300,001 lines")).to_be_visible()
    assert page.locator(".line").count() < 200
    page.get_by_label("Search the log").fill("299987")
    page.get_by_role("button", name="Next hit").click()
    expect(page.locator(".line.hit")).to_contain_text("299987")


def serious_faults(page: Page) -> list[str]:
    """What axe-core says of the page, as far as it is serious: the rule and the first element that breaks it."""
    told = Axe().run(page).response["violations"]
    return [
        f"{fault['id']}: {fault['nodes'][0]['html'][:200]}: {fault['nodes'][0]['failureSummary'][:300]}"
        for fault in told
        if fault["impact"] in ("serious", "critical")
    ]


@pytest.mark.timeout(600)
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_page_fits_wide_and_narrow_and_is_accessible(stack: DevStack, browser: Browser, scheme: str) -> None:
    console = opened(stack, browser, color_scheme=scheme)
    console.sign_in(stack.facts["token"])
    console.page.locator("main h1").wait_for()
    for width in (1280, 390):
        console.page.set_viewport_size({"width": width, "height": 860})
        for path in (*PAGES, *MORE):
            console.open(path)
            wide = console.page.evaluate("document.documentElement.scrollWidth")
            console.keep(f"{scheme}-{width}-{path.replace('/', '-')}")
            assert wide <= width, f"{path} is {wide} wide"
            assert serious_faults(console.page) == [], f"{path}, {scheme}, {width} wide"
    console.check()
    console.context.close()
    assert SCREENSHOTS.is_dir()


def test_the_keyboard_leads_everywhere(console: Console) -> None:
    page = console.open("runs")
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to the content")).to_be_focused()
    page.keyboard.press("/")
    expect(page.get_by_role("searchbox")).to_be_focused()
    page.get_by_role("link", name="words").focus()
    page.keyboard.press("Enter")
    page.wait_for_url("**/runs/lab-a/words*")
    page.get_by_role("button", name="Hold").focus()
    page.keyboard.press("Enter")
    expect(page.locator("dialog[open]")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.locator("dialog[open]")).to_have_count(0)
    unnamed = "[...document.querySelectorAll('input, select, button, a')].filter(e => e.checkVisibility() && !(" + (
        "e.labels?.length || e.ariaLabel || e.innerText.trim())).map(e => e.outerHTML.slice(0, 200))"
    )
    for path in PAGES:
        console.open(path)
        assert page.evaluate(unnamed) == [], path


def many(path: Path) -> None:
    """Two thousand more runs that have ended."""
    with sqlite3.connect(path, timeout=30) as database:
        columns = [row[1] for row in database.execute("PRAGMA table_info(run)")]
        shown = ", ".join(f"?{columns.index(c) + 1}" for c in columns)
        model = database.execute("SELECT * FROM run WHERE name = 'ended'").fetchone()
        of = dict(zip(columns, model, strict=True))
        rows = [
            [
                (of | {"uid": uuid.uuid4().hex, "name": f"many-{i}", "submitted_at": of["submitted_at"] - i})[c]
                for c in columns
            ]
            for i in range(MANY)
        ]
        database.executemany(f"INSERT INTO run ({', '.join(columns)}) VALUES ({shown})", rows)


def test_two_thousand_runs_are_cut_searched_and_counted(console: Console) -> None:
    (path,) = console.stack.directory.rglob("ledger.db")
    many(path)
    page = console.open("runs")
    expect(page.get_by_text(f"1–50 of {MANY + 3}")).to_be_visible()
    assert page.locator("tbody tr").count() == 50
    page.get_by_role("button", name="Older").click()
    expect(page.get_by_text(f"51–100 of {MANY + 3}")).to_be_visible()
    page.get_by_role("searchbox").fill("many-1987")
    expect(page.locator("tbody tr")).to_have_count(1)
    page.get_by_role("searchbox").fill("")
    page.get_by_role("button", name="Running").click()
    expect(page.locator("tbody tr")).to_have_count(2)
    page.reload()
    expect(page.locator("tbody tr")).to_have_count(2)
    console.keep("runs-many")
