"""What is written under New run, sent and kept, in a real browser against a whole stack."""

import json
import re

import pytest
from console.conftest import Console, shell, write
from playwright.sync_api import WebSocketRoute, expect

pytestmark = pytest.mark.slow


def test_start_pressed_again_after_a_lost_answer_starts_no_second_run(console: Console) -> None:
    page = console.page
    sockets: list[WebSocketRoute] = []
    deaf: list[WebSocketRoute] = []

    def between(here: WebSocketRoute) -> None:
        sockets.append(here)
        server = here.connect_to_server()
        here.on_message(server.send)
        server.on_message(lambda message: None if here in deaf else here.send(message))

    page.route_web_socket("**/_nicegui_ws/**", between)
    console.open("runs/new")
    write(page, json.dumps(shell("once", "true", 8, 1), indent=2))
    expect(page.get_by_role("complementary")).to_contain_text("Starts at once")
    deaf.extend(sockets)
    start = page.get_by_role("button", name="Start run")
    start.click()
    row = console.open("runs", console.window()).get_by_role("row", name=re.compile("once"))
    expect(row).to_contain_text("Succeeded", timeout=60_000)
    first = console.stack.run("once")
    console.open("runs/new")
    expect(page.locator(".cm-content")).to_contain_text('"once"')
    start.click()
    page.wait_for_url("**/runs/lab-a/once")
    assert console.stack.run("once")["metadata"]["uid"] == first["metadata"]["uid"]
    console.open("runs/new")
    expect(page.locator(".cm-content")).to_contain_text("hello-gang")


def test_a_template_is_edited_as_it_is_now(console: Console) -> None:
    stack, page = console.stack, console.page
    text = page.locator(".cm-content")
    for version in ("one", "two"):
        stack.api("PUT", "/templates/edited", json=shell("edited", f"echo version {version}", 8, 1))
        console.open("templates")
        page.get_by_role("link", name="Edit edited").click()
        expect(text).to_contain_text(f"echo version {version}")
        expect(page.get_by_role("complementary")).to_contain_text("Starts at once")
    write(page, "{ what was begun }")
    stack.api("PUT", "/templates/edited", json=shell("edited", "echo version three", 8, 1))
    console.open("templates")
    page.get_by_role("link", name="Edit edited").click()
    expect(text).to_have_text("{ what was begun }")
    page.get_by_role("button", name="Reset").click()
    expect(text).to_contain_text("echo version three")


@pytest.mark.parametrize("value", ['"1",' * 65_000, "😀" * 210_000, "a" + "😀" * 210_000])
def test_a_large_specification_is_planned(console: Console, value: str) -> None:
    page = console.open("runs/new")
    spec = shell("large", "true", 8, 1)
    spec["spec"]["task_template"]["configs"] = [{"mounts": ["/table"], "value": value}]
    write(page, json.dumps(spec, ensure_ascii=False))
    plan = page.get_by_role("complementary")
    expect(plan.get_by_text("checking…")).to_have_count(0)
    expect(plan).to_contain_text("Starts at once")
    expect(plan).to_contain_text("lab-a")
