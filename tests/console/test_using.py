"""What people do in the console, in a real browser against a whole stack."""

import json
import re
from pathlib import Path
from typing import Any

import httpx
import pytest
from console.conftest import Console, shell, write
from playwright.sync_api import Page, expect
from support.stack import DevStack

pytestmark = pytest.mark.slow

RECIPE = Path(__file__).parents[2] / "deploy" / "examples" / "train-64gpu.json"
FOREVER = "for i in $(seq 100000); do echo step $i of worker $RANK; sleep 0.1; done"


def confirm(page: Page, order: str, button: str, why: str = "") -> None:
    page.get_by_role("button", name=order, exact=True).click()
    dialog = page.locator("dialog[open]")
    if why:
        dialog.get_by_label("Why").fill(why)
    dialog.get_by_role("button", name=button).click()
    expect(dialog).to_have_count(0)


def answers(stack: DevStack) -> bool:
    try:
        return stack.api("GET", "/clusters").is_success
    except httpx.HTTPError:
        return False


def recipe() -> dict[str, Any]:
    """The recipe's own specification, with a command that needs no PyTorch."""
    spec: dict[str, Any] = json.loads(RECIPE.read_text())
    spec["spec"]["task_template"]["args"] = ["-c", FOREVER]
    return spec


def test_the_recipe_is_started_and_watched_and_read(console: Console) -> None:
    page = console.page
    console.stack.api("PUT", "/drives/checkpoints", json={})
    page.get_by_role("link", name="New run").first.click()
    write(page, json.dumps(recipe(), indent=2))
    plan = page.get_by_role("complementary")
    expect(plan).to_contain_text("Starts at once")
    expect(plan).to_contain_text("leaf-r0-7-g0")
    console.keep("new-run")
    confirm(page, "Save as template", "Save")
    expect(plan).to_contain_text("Saved as the template resnet-64gpu")
    page.get_by_role("button", name="Start run").click()
    page.wait_for_url("**/runs/lab-a/resnet-64gpu")
    expect(page.locator(".big")).to_have_text("Running on one leaf group", timeout=60_000)
    expect(page.locator(".worker.is-running")).to_have_count(8)
    expect(page.locator(".phases [aria-current=step]")).to_contain_text("Running")
    expect(page.get_by_text("10 of 10 left")).to_be_visible()
    expect(page.locator(".log")).to_contain_text("of worker 0")
    page.locator(".worker").nth(3).click()
    expect(page.locator(".log")).to_contain_text("of worker 3")
    page.get_by_label("Search the log").fill("step 1 ")
    expect(page.locator(".logs mark").first).to_be_visible()
    console.keep("run")
    console.open("runs")
    row = page.get_by_role("row", name=re.compile("resnet-64gpu"))
    expect(row).to_contain_text("Running on one leaf group")
    console.keep("runs")


def test_faults_are_shown_at_their_place(console: Console) -> None:
    page = console.open("runs/new")
    spec = recipe()
    spec["spec"]["priorty"] = 3
    spec["spec"]["task_template"]["requested_resources"]["machines"] = 7
    write(page, json.dumps(spec, indent=2))
    faults = page.locator(".faults li")
    expect(faults).to_have_count(2)
    lines = page.locator(".cm-line.cm-faulty")
    expect(lines.filter(has_text='"priorty"')).to_have_count(1)
    expect(page.locator(".cm-fault").filter(has_text="did you mean priority")).to_have_count(1)
    expect(page.get_by_role("button", name="Start run")).to_be_disabled()
    console.keep("new-run-faults")
    write(page, '{"metadata": {\n  "name": "x",,\n}}')
    expect(lines).to_have_text('  "name": "x",,')
    expect(page.locator(".cm-fault")).to_contain_text("line 2")


def test_keys_are_completed_from_the_schema(console: Console) -> None:
    page = console.open("runs/new")
    write(page, '{"spec": {\n\n}}')
    page.keyboard.press("ArrowUp")
    page.keyboard.type('"on')
    page.locator(".cm-tooltip-autocomplete li").filter(has_text='"on_failure"').click()
    expect(page.locator(".cm-content")).to_contain_text('"on_failure": ')


def test_a_preempted_run_comes_back_and_both_windows_say_so(console: Console) -> None:
    stack, page = console.stack, console.page
    stack.submit(shell("low", FOREVER, 32, 4))
    stack.reach("low", "Running")
    console.open("runs/lab-a/low")
    other = console.open("queue", console.window())
    stack.submit(shell("eval-release", "sleep 600", 64, 8, priority=100))
    preempted = "Preempted by higher-priority work (eval-release); waiting to run again"
    expect(page.locator(".big")).to_have_text(preempted, timeout=60_000)
    expect(other.get_by_role("row", name=re.compile("low"))).to_be_visible()
    console.keep("queue", other)
    console.open("runs/lab-a/eval-release", other)
    confirm(other, "Cancel", "Cancel run", why="enough seen")
    expect(page.locator(".big")).to_have_text(re.compile("^Running"), timeout=60_000)
    expect(page.get_by_text("10 of 10 left")).to_be_visible()
    expect(page.locator(".card", has_text="Attempts").get_by_role("row", name=re.compile("preempted"))).to_contain_text(
        "no"
    )
    expect(page.locator(".events")).to_contain_text("eval-release")
    expect(other.locator("h1 + .chip")).to_have_text("Cancelled", timeout=60_000)
    expect(other.locator(".events")).to_contain_text("enough seen")


def test_why_something_waits_is_found(console: Console) -> None:
    console.stack.submit(shell("too-big", "true", 512, 64))
    page = console.page
    page.get_by_label("Search names, labels and reasons").fill("too-big")
    page.get_by_role("link", name="too-big").click()
    why = page.locator(".card", has_text="Why it waits")
    expect(why).to_contain_text("no room for 64 machines")
    expect(why).to_contain_text("in the queue")
    console.keep("run-waiting")
    confirm(page, "Delete", "Delete run")
    page.wait_for_url("**/runs")


def test_runs_of_a_label_are_chosen_and_ordered_together(console: Console) -> None:
    stack, page = console.stack, console.page
    for i in range(3):
        stack.submit(shell(f"batch-{i}", "true", 512, 64, labels={"team": "speech lab"}))
    stack.api("POST", "/runs/batch-1:cancel")
    stack.reach("batch-1", "Cancelled")
    page.get_by_role("button", name="team=speech lab").first.click()
    rows = page.locator("tbody tr")
    expect(rows).to_have_count(3)
    page.get_by_role("button", name="Mine").click()
    expect(rows).to_have_count(3)
    page.get_by_label("Choose every run of this page").check()
    orders = page.get_by_role("group", name="Orders to the chosen runs")
    expect(orders).to_contain_text("3 chosen")
    orders.get_by_role("button", name="Hold").click()
    dialog = page.locator("dialog[open]")
    dialog.get_by_role("button", name="Hold all").click()
    expect(dialog.get_by_role("alert")).to_contain_text("batch-1: batch-1 is Cancelled, which is final")
    dialog.get_by_role("button", name="Close").click()
    expect(orders).to_contain_text("1 chosen")
    expect(rows.filter(has_text="held")).to_have_count(2)
    console.keep("runs-chosen")
    page.get_by_label("Choose every run of this page").check()
    orders.get_by_role("button", name="Delete").click()
    dialog.get_by_role("button", name="Delete all").click()
    expect(page.get_by_text("No run is like that")).to_be_visible(timeout=60_000)


def test_events_of_the_workspace_are_live_and_searched(console: Console) -> None:
    page = console.open("events")
    console.stack.submit(shell("eventful", "true", 8, 1))
    row = page.locator(".events li").filter(has_text="eventful")
    expect(row.filter(has_text="Succeeded")).to_be_visible(timeout=60_000)
    page.get_by_label("Search events").fill("eventful submitted")
    expect(page.locator(".events li")).to_have_count(1)
    console.keep("events")
    page.get_by_role("link", name="eventful").click()
    expect(page.locator("h1")).to_have_text("eventful")


def test_a_machine_is_drained_and_returned(console: Console) -> None:
    page = console.open("machines")
    confirm(page, "Drain m-15", "Drain machine", why="a fan is loud")
    row = page.get_by_role("row", name=re.compile("m-15"))
    expect(row).to_contain_text("drain")
    expect(row).to_contain_text("a fan is loud (dev)")
    console.keep("machines")
    console.open("topology")
    expect(page.locator(".tile.m-drained, .tile.m-draining").filter(has_text="m-15")).to_be_visible()
    expect(page.locator(".card", has_text="Largest gang that fits now")).to_contain_text("one leaf group")
    console.keep("topology")
    page.get_by_role("link", name=re.compile("m-15")).click()
    expect(page.get_by_text("Drained by dev")).to_be_visible()
    confirm(page, "Return m-15", "Return machine")
    expect(page.locator("h1 + .chip")).not_to_contain_text("drain")
    console.keep("machine")


def test_a_template_is_run_under_a_name(console: Console) -> None:
    console.stack.api("PUT", "/templates/small", json=shell("small", "echo done", 8, 1))
    page = console.open("templates")
    page.get_by_role("button", name="Start a run of small").click()
    page.get_by_label("Name of the run").fill("small-1")
    page.locator("dialog[open]").get_by_role("button", name="Start run").click()
    page.wait_for_url("**/runs/lab-a/small-1")
    expect(page.locator("h1 + .chip")).to_have_text("Succeeded", timeout=60_000)
    console.open("templates")
    console.keep("templates")


def test_an_older_run_of_a_name_is_found_read_and_deleted(console: Console) -> None:
    stack, page = console.stack, console.page
    stack.submit(shell("again", "echo the first of them", 8, 1))
    stack.reach("again", "Succeeded")
    stack.submit(shell("again", "echo the second of them; sleep 600", 8, 1))
    stack.reach("again", "Running")
    console.open("runs/lab-a/again")
    expect(page.locator(".log")).to_contain_text("the second")
    page.locator(".card", has_text="Other runs of this name").get_by_role("link").click()
    expect(page.get_by_text("A newer run has this name.")).to_be_visible()
    expect(page.locator(".log")).to_contain_text("the first")
    expect(page.locator(".card", has_text="Attempts").get_by_role("row")).to_have_count(2)
    confirm(page, "Delete", "Delete run")
    page.wait_for_url("**/runs")
    console.open("runs/lab-a/again")
    expect(page.locator("h1 + .chip")).to_have_text("Running")
    expect(page.get_by_text("Other runs of this name")).to_have_count(0)


def test_what_a_workspace_keeps_is_live_in_every_window(console: Console) -> None:
    stack = console.stack
    pages = {path: console.open(path, console.window()) for path in ("templates", "drives", "secrets", "tokens")}
    shown = {path: page.get_by_role("row", name=re.compile("brand.new", re.I)) for path, page in pages.items()}
    shown["templates"] = pages["templates"].get_by_role("heading", name="brand-new")
    assert stack.api("PUT", "/templates/brand-new", json=shell("small", "true", 8, 1)).is_success
    assert stack.api("PUT", "/drives/brand-new", json={}).is_success
    assert stack.api("PUT", "/secrets/BRAND_NEW", json={"value": "x"}).is_success
    token = stack.api("POST", "/tokens", json={"name": "brand-new"}).json()
    for one in shown.values():
        expect(one).to_be_visible()
    for path in ("/templates/brand-new", "/drives/brand-new", "/secrets/BRAND_NEW", f"/tokens/{token['id']}"):
        assert stack.api("DELETE", path).is_success
    for path in ("templates", "drives", "secrets"):
        expect(shown[path]).to_have_count(0)
    expect(shown["tokens"]).to_contain_text("revoked")


def test_pages_outlive_a_killed_api(console: Console) -> None:
    page, stack = console.open("runs"), console.stack
    stack.kill("api")
    expect(page.locator("#popup")).to_have_attribute("aria-hidden", "false", timeout=30_000)
    console.keep("connection-lost")
    stack.until(lambda: answers(stack), 60, "API")
    expect(page.locator("#popup")).to_have_attribute("aria-hidden", "true", timeout=60_000)
    stack.submit(shell("after-the-kill", "true", 1, 1))
    expect(page.get_by_role("link", name="after-the-kill")).to_be_visible(timeout=30_000)


@pytest.mark.parametrize("width", [1280, 390])
def test_long_names_leave_room_for_the_words(console: Console, width: int) -> None:
    stack, page, name = console.stack, console.page, f"{'r' * 48}{width}"
    made = stack.api("POST", "/tokens", json={"name": f"{'u' * 59}{width}", "role": "editor"}).json()
    spec = shell(name, "echo begun; sleep 600", 8, 1, start="Independent", on_failure="RestartWorker")
    bearer = {"authorization": f"Bearer {made['token']}"}
    assert stack.api("POST", "/runs", json=spec, headers=bearer).status_code == 201
    stack.reach(name, "Running")
    assert stack.api("POST", f"/runs/{name}:restart", headers=bearer).is_success
    page.set_viewport_size({"width": width, "height": 860})
    for path in (f"runs/lab-a/{name}", "events"):
        console.open(path)
        expect(page.locator(".events li", has_text=re.compile("restart.*u{59}")).first).to_be_visible()
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        widths = "(all) => all.map((one) => one.children[2].getBoundingClientRect().width)"
        assert min(page.locator(".events li").evaluate_all(widths)) > 150
    assert stack.api("DELETE", f"/runs/{name}").is_success


def limited(name: str, seconds: int | None) -> dict[str, Any]:
    """A run on one certain machine, for at most so long."""
    spec = shell(name, "sleep 600", 8, 1, priority=70)
    task = spec["spec"]["task_template"]
    task["requested_resources"]["machine_selection"] = {"mode": "Named", "machines": ["m-0"]}
    return (
        spec
        if seconds is None
        else spec | {"spec": spec["spec"] | {"task_template": task | {"time_limit_seconds": seconds}}}
    )


def test_expected_starts_are_told_on_every_page(console: Console) -> None:
    stack, page = console.stack, console.page
    stack.submit(limited("has-it", 3000))
    stack.reach("has-it", "Running")
    for name, seconds in (("next-one", 3000), ("one-after", None), ("last-one", 60)):
        stack.submit(limited(name, seconds))
    console.open("queue")
    starts = {name: page.get_by_role("row", name=re.compile(name)) for name in ("next-one", "one-after", "last-one")}
    expect(starts["next-one"]).to_contain_text(re.compile(r"in 4\d min at the latest"))
    expect(starts["one-after"]).to_contain_text(re.compile(r"in 1 h 3\d min at the latest"))
    expect(starts["last-one"]).to_contain_text("unknown: no time limit brings it room")
    console.keep("queue-expected")
    console.open("runs/lab-a/one-after")
    expect(page.locator(".card", has_text="Why it waits")).to_contain_text(
        re.compile(r"Expected start: in 1 h 3\d min at the latest")
    )
    console.keep("run-expected")
    console.open("runs/new")
    write(page, json.dumps(limited("asked", 60) | {"metadata": {"name": "asked"}}))
    plan = page.get_by_role("complementary")
    expect(plan).to_contain_text("Would wait")
    expect(plan).to_contain_text("unknown: no time limit brings it room")
    for name in ("last-one", "one-after", "next-one", "has-it"):
        assert stack.api("DELETE", f"/runs/{name}").is_success
