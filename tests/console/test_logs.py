"""Logs on a run's page, in a real browser against a whole stack."""

import re

import pytest
from console.conftest import Console, shell
from playwright.sync_api import expect

pytestmark = pytest.mark.slow


def test_a_line_without_an_end_is_shown_as_it_changes(console: Console) -> None:
    stack, page = console.stack, console.page
    bar = r"echo begun; for i in $(seq 100000); do printf '\rstep %d is done' $i; sleep 0.1; done"
    stack.submit(shell("bar", bar, 8, 1))
    stack.reach("bar", "Running")
    console.open("runs/lab-a/bar")
    lines = page.locator(".log .line")
    for later in (r"^step \d+ is done$", r"^step \d{2,} is done$"):
        expect(lines).to_have_text(["begun", re.compile(later)])
    page.get_by_label("Search the log").fill("is done")
    expect(page.locator(".logs mark")).to_have_count(1)
    assert stack.api("POST", "/runs/bar:cancel").is_success
    expect(page.locator(".logs")).to_contain_text("Ended")
    expect(lines).to_have_count(2)


def test_a_tile_leads_to_its_log_each_time_it_is_clicked(console: Console) -> None:
    stack, page = console.stack, console.page
    stack.submit(shell("tiles", "echo this is worker $RANK; sleep 600", 16, 2))
    stack.reach("tiles", "Running")
    console.open("runs/lab-a/tiles")
    log, tile, select = page.locator(".log"), page.locator(".worker").nth(1), page.locator(".logs select").first
    expect(log).to_contain_text("this is worker 0")
    tile.click()
    expect(log).to_contain_text("this is worker 1")
    select.select_option("tiles-0")
    expect(log).to_contain_text("this is worker 0")
    tile.click()
    expect(log).to_contain_text("this is worker 1")
    expect(select).to_have_value("1")
