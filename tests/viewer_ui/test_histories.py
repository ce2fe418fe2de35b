"""A rollout opens with its main history, whichever of its agents was first to end, in a real browser."""

import pytest

from art_otel import write_trajectories
from art_otel.calls import Message, TokenIds
from art_otel.testing import SpanBuilder
from tests.viewer_ui.conftest import running, visiting
from tests.viewer_ui.dataset import chosen, only

pytestmark = pytest.mark.browser

SHOWS = "document.querySelector('main').innerText.includes(argument)"


def test_a_rollout_opens_with_its_main_history_and_each_has_an_address(chromium, tmp_path):
    spans = SpanBuilder()
    root = spans.rollout("r")
    task, plan = Message(role="user", content="the task"), Message(role="assistant", content="a plan")
    help_, helped = Message(role="user", content="help me"), Message(role="assistant", content="helped")
    calls = [
        spans.chat(root, [help_], [chosen(helped, [5])], prompt_token_ids=TokenIds.of([4])),
        spans.chat(root, [task], [chosen(plan, [2])], prompt_token_ids=TokenIds.of([1])),
        spans.chat(root, [task, plan, task], [chosen(plan, [7])], prompt_token_ids=TokenIds.of([1, 2, 1])),
    ]
    write_trajectories([only([root, *calls])], tmp_path / "data")
    with running(tmp_path / "data") as address, visiting(chromium, address) as visit:
        visit.open("#/t")
        visit.page.locator(".rows-body .cell-name a").first.click()
        for tab, main, other in (("Conversation", "the task", "help me"), ("Tokens", "the task", "help me")):
            visit.page.get_by_role("link", name=tab, exact=True).click()
            visit.until("document.querySelectorAll('.histories a')[1]?.getAttribute('aria-current') === 'true'")
            visit.until(SHOWS, main)
            visit.page.locator(".histories a").first.click()
            visit.until("document.querySelector('.histories a')?.getAttribute('aria-current') === 'true'")
            visit.page.reload()
            visit.settle()
            visit.until(SHOWS, other)
            assert main not in visit.page.inner_text("main")
        assert visit.said == []
