"""The list: few elements whatever the dataset has, its own place in it, and the data of one generation alone."""

import pytest

from tests.viewer_ui.conftest import running, visiting
from tests.viewer_ui.dataset import PLAIN, write_dataset

pytestmark = pytest.mark.browser


def test_it_has_few_elements_and_the_rows_of_where_one_scrolls(visit):
    page = visit.page
    visit.open("#/t?sort=rollout&order=asc")
    page.locator(".rows").evaluate("rows => { rows.scrollTop = rows.scrollHeight }")
    page.wait_for_selector("text=small-90000")
    assert page.evaluate("document.querySelectorAll('*').length") <= 2000
    assert page.locator(".rows-table").get_attribute("aria-rowcount") == str(PLAIN + 4 + 1 + 1)


def test_what_is_unknown_is_said(visit):
    visit.open("#/t?q=member-2")
    visit.page.wait_for_selector("text=member-2")
    assert "unknown" in visit.page.locator("[data-index='0'] .cell-reward").inner_text()
    visit.page.locator("[data-index='0'] a").first.click()
    visit.page.wait_for_selector(".rollout-head")
    assert "unknown" in visit.page.inner_text(".rollout-head")


def test_a_dataset_that_is_replaced_keeps_the_place_and_says_so(chromium, tmp_path):
    folder = write_dataset(tmp_path / "data", plain=300)
    with running(folder) as address, visiting(chromium, address) as visit:
        visit.open("#/t?sort=rollout&order=asc")
        page = visit.page
        page.wait_for_selector("[data-index='0']")
        page.locator(".rows").evaluate("rows => { rows.scrollTop = 150 * 34 }")
        page.wait_for_selector("text=small-00150")
        write_dataset(folder, plain=350)
        page.wait_for_selector("text=The dataset changed")
        visit.until("document.querySelector('.list-head [role=status]').innerText === '354'")
        assert page.locator(".rows").evaluate("rows => rows.scrollTop") == 150 * 34
        assert page.locator("text=small-00150").count() == 1
