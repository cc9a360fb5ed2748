"""The queue's page says how workspaces stand, as soon as an operator has given them quotas and shares."""

import httpx
import pytest
from console.conftest import Console, admin, shell
from playwright.sync_api import expect

pytestmark = pytest.mark.slow


def test_quotas_and_shares_are_on_the_queue_page_at_once(console: Console) -> None:
    page, stack = console.page, console.stack
    page.get_by_role("link", name="Queue").first.click()
    expect(page.get_by_text("Nobody holds a GPU.")).to_be_visible()
    assert stack.api("POST", "/runs", json=shell("holds", "sleep 600", 16, 2)).status_code == 201
    stack.reach("holds", "Running")
    answer = httpx.patch(
        f"{stack.facts['api']}/share",
        headers={"Authorization": f"Bearer {admin(stack, 'operator-token')}"},
        json={"gpu_quota": 24, "share": 3},
        timeout=10,
    )
    assert answer.status_code == 200, answer.text
    assert stack.api("POST", "/runs", json=shell("too-much", "true", 16, 2)).status_code == 201
    row = page.locator(".share")
    expect(row).to_contain_text("16 of its quota of 24 GPUs")
    expect(row).to_contain_text("for a share of 100 %")
    expect(page.get_by_role("main")).to_contain_text("quota of 24 GPUs in use; this run needs 16")
    console.keep("queue-shares")
