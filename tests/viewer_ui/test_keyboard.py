"""The page without a mouse: from the list over a group to a trained token, and why it is trained."""

import pytest

pytestmark = pytest.mark.browser


def test_from_the_list_to_why_a_token_is_trained(visit):
    page = visit.page
    visit.open("#/")
    press(page, "/")
    page.wait_for_selector("input[type=search]:focus")
    page.keyboard.type("member-1")
    visit.until("document.querySelector('.bar .count').innerText.startsWith('1 rollout ')")
    page.keyboard.press("Shift+Tab")
    page.keyboard.press("Enter")
    page.wait_for_selector("[data-index='0'] a")
    page.evaluate("document.activeElement.blur()")
    press(page, "k", "Enter")
    page.wait_for_selector(".rollout-head")
    visit.settle()
    head = page.inner_text(".rollout-head")
    shows = "document.querySelector('.rollout-head')?.innerText === argument"  # the last one's until the next is there
    press(page, "]")
    visit.until(f"document.querySelector('.rollout-head') && !({shows})", head)
    press(page, "[")
    visit.until(f"{shows} && document.querySelector('[data-state=trained]')", head)
    press(page, "n")
    visit.until("document.activeElement.className.includes('trained')")
    press(page, "c", "c")
    page.wait_for_selector(".tokens .trained")
    assert page.locator(".segments .on").inner_text() == "logprob"
    page.locator("[data-state=trained] .state").first.press("Enter")
    page.wait_for_selector(".why-steps")
    why = page.inner_text(".why")
    assert "● trained" in why
    assert all(step in why for step in ("mask", "credit", "advantage", "option"))
    assert visit.said == []


def test_single_keys_can_be_turned_off(visit):
    page = visit.page
    visit.open("#/t")
    press(page, "?")
    page.wait_for_selector("dialog[open]")
    page.get_by_label("Single keys are on").uncheck()
    page.keyboard.press("Escape")
    page.reload()
    page.wait_for_selector(".rows [role=row]")
    press(page, "?")
    assert page.locator("dialog[open]").count() == 0


def press(page, *keys: str) -> None:
    for key in keys:
        page.keyboard.press(key)
        page.wait_for_timeout(50)
