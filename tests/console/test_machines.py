"""What runs and ran on a machine leads to that very run, and to no other workspace's namesake."""

from typing import Any

import httpx
import pytest
from console.conftest import Console, admin, shell
from playwright.sync_api import Locator, expect
from support.stack import DevStack

pytestmark = pytest.mark.slow


def on(machine: str, name: str, **more: Any) -> dict[str, Any]:
    """A run on this machine alone."""
    spec = shell(name, "sleep 600", 8, 1, **more)
    selection = {"mode": "Named", "machines": [machine]}
    spec["spec"]["task_template"]["requested_resources"]["machine_selection"] = selection
    return spec


def submit_elsewhere(stack: DevStack, spec: dict[str, Any]) -> None:
    """Submit to another workspace and wait until it runs."""
    token = admin(stack, "workspace", "acme/speech", "--cluster", "lab-a").split()[-1]
    runs = stack.facts["api"].replace("/w/vision", "/w/speech") + "/runs"
    with httpx.Client(headers={"authorization": f"Bearer {token}"}, timeout=30) as client:
        assert client.post(runs, json=spec).status_code == 201
        name = spec["metadata"]["name"]
        stack.until(lambda: client.get(f"{runs}/{name}").json()["state"] == "Running", 60, f"running {name}")


def card(console: Console, title: str) -> Locator:
    page = console.page
    return page.locator("section.card", has=page.get_by_role("heading", name=title, exact=True))


def test_another_workspaces_run_leads_to_no_namesake(console: Console) -> None:
    submit_elsewhere(console.stack, on("m-0", "shared"))
    console.stack.submit(on("m-1", "shared"))
    console.stack.reach("shared", "Running")
    console.open("machines/lab-a/m-0")
    for title in ("Runs now", "What ran here"):
        expect(card(console, title)).to_contain_text("shared")
        expect(card(console, title).get_by_role("link")).to_have_count(0)
    console.open("machines/lab-a/m-1")
    card(console, "Runs now").get_by_role("link", name="shared").click()
    expect(console.page.locator(".worker")).to_contain_text("m-1")


@pytest.mark.parametrize("title", ["Runs now", "What ran here"])
def test_a_worker_that_started_by_itself_leads_to_its_run(console: Console, title: str) -> None:
    name = title.replace(" ", "-").lower()
    console.stack.submit(on("m-2", name, start="Independent", on_failure="RestartWorker"))
    uid = console.stack.reach(name, "Running")["metadata"]["uid"]
    console.open("machines/lab-a/m-2")
    card(console, title).get_by_role("link", name=name).click()
    expect(console.page.locator("h1")).to_have_text(name)
    expect(console.page.locator(".facts", has_text="UID")).to_contain_text(uid)
    assert console.stack.api("DELETE", f"/runs/{name}").is_success
