"""A rollout reads like a story, in a real browser: what failed stands in its place, tokens are a switch of the text."""

import pytest

from art_otel import write_trajectories
from tests.viewer.told import ERROR, told
from tests.viewer_ui.conftest import running, visiting
from tests.viewer_ui.test_pages import serious

pytestmark = pytest.mark.browser

FOCUS = "document.activeElement.matches(argument)"


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    folder = tmp_path_factory.mktemp("told") / "data"
    write_trajectories([told(), told("crashed", crashes=True)], folder)
    with running(folder) as address:
        yield address


@pytest.fixture
def visit(chromium, address):
    with visiting(chromium, address) as visit:
        yield visit
        assert visit.said == []


def path_of(visit, rollout_id):
    rows = visit.page.evaluate("fetch('/api/trajectories').then(answer => answer.json())")["rows"]
    return f"#/r/{next(row['key'] for row in rows if row['rolloutId'] == rollout_id)}"


def test_a_crashed_rollout_says_why_in_its_first_line_and_where(visit):
    page = visit.page
    visit.open(path_of(visit, "crashed"))
    assert page.title() == "parser · no reward · art-otel"
    assert page.locator(".rollout-head").bounding_box()["height"] <= 44
    head = page.locator(".rollout-head").inner_text()
    assert "○ not trained: ended on a failed call" in head
    assert page.locator(".same-error").inner_text() == "the same error in 1 other rollout"
    assert set(page.locator(".state").all_text_contents()) == {"not trained"}  # why is said once, in the head
    page.locator(".wrong", has_text=ERROR).click()
    visit.until(FOCUS, "[data-call='3']")
    failed = page.locator("[data-call='3']").inner_text()
    assert ERROR in failed
    assert "It was asked with the result of delegate above. Nothing followed." in failed
    page.locator(".outline .row-failed").wait_for()
    visit.open(path_of(visit, "crashed"))
    page.keyboard.press("Tab")
    visit.until("document.activeElement.closest('.story') !== null")


def test_the_story_has_everything_once_and_in_its_place(visit):
    page = visit.page
    visit.open(path_of(visit, "told"))
    explorer = page.locator("[data-tool='0.0'] > .agent")
    assert explorer.get_attribute("open") is None
    assert page.locator("[data-turn]").count() == 7
    page.locator(".outline a", has_text="turn 1").click()
    visit.until(FOCUS, "[data-turn='1']")
    assert explorer.get_attribute("open") is not None
    assert page.get_by_text("compaction: 7 messages → summary, 71 → 20 tokens").count() == 1
    assert page.locator("[data-tool='0.0'] > .json dd").all_inner_texts() == ["explorer", "Look.\nThen say where."]
    assert page.locator("[data-tool='3.0'] .diff ins").all_inner_texts() == ["+++ b/parser.py\n", "+new\n"]
    cut = page.locator("[data-turn='5']")
    assert cut.locator("table.said td").all_inner_texts() == ["one", "passes"]
    assert "cut at the limit of tokens" in cut.inner_text()
    assert page.locator(".agent.judge").count() == 1
    page.get_by_role("link", name="Turn 3 as the model saw it").click()
    visit.until("document.querySelector('.story').innerText.includes('4 messages, 40 tokens')")
    assert page.locator(".message .role").all_inner_texts() == ["system", "user", "assistant", "tool"]
    page.get_by_role("link", name="Back to the story").click()
    visit.until(FOCUS, "[data-turn='3']")


def test_the_keyboard_goes_through_what_went_wrong_to_why_a_token_is_trained(visit):
    page = visit.page
    visit.open(path_of(visit, "told"))
    page.keyboard.press("J")
    visit.until(FOCUS, "[data-call='3']")
    page.keyboard.press("J")
    visit.until(FOCUS, "[data-turn='5']")
    page.keyboard.press("K")
    visit.until(FOCUS, "[data-call='3']")
    page.locator(".outline a", has_text="compaction").click()
    visit.until(FOCUS, ".compaction")
    page.keyboard.press("End")
    visit.until("scrollY + innerHeight >= document.documentElement.scrollHeight - 2")
    page.keyboard.press("c")
    tokens = page.get_by_role("group", name="Tokens of turn 5.")
    tokens.locator("[data-i]").nth(25).click()
    visit.until("document.querySelector('.why-steps')?.innerText.includes('option')")
    assert page.locator(".segments .on").inner_text() == "mask"
    page.keyboard.press("ArrowRight")
    visit.until("document.querySelector('[aria-current=true][data-i]')?.dataset.i === '26'")
    assert page.locator(".why .facts").inner_text().split()[:4] == ["Token", "26", "Id", "136"]


@pytest.mark.parametrize("width", [1280, 400])
def test_every_view_of_it_is_accessible(chromium, address, scheme, width):
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    size = {"width": width, "height": 800}
    with visiting(chromium, address, viewport=size, color_scheme=scheme) as visit:
        rollout = path_of(visit, "told")
        for view in ("", "?c=mask", "?c=logprob&t=3&i=45", "?c=advantage", "?t=3&why=1", "?seen=4", "?raw=1"):
            visit.open(rollout + view)
            visit.page.wait_for_timeout(200)
            assert visit.page.evaluate("document.documentElement.scrollWidth <= innerWidth"), view
            assert not serious(axe.run(visit.page)), view
        visit.page.get_by_role("button", name="more").click()
        assert not serious(axe.run(visit.page))
        assert visit.said == []
