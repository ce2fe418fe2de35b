"""The list: few elements whatever the dataset has, its own place in it, and the data of one generation alone."""

import pytest

from tests.viewer_ui.conftest import running, visiting
from tests.viewer_ui.dataset import PLAIN, write_dataset

pytestmark = pytest.mark.browser


def test_it_has_few_elements_and_the_rows_of_where_one_scrolls(visit):
    page = visit.page
    visit.open("#/t?sort=rollout&order=asc")
    page.locator(".rows").evaluate("rows => { rows.scrollTop = rows.scrollHeight }")
    page.wait_for_selector("[title=small-90000]")
    assert page.evaluate("document.querySelectorAll('*').length") <= 2000
    assert page.locator(".rows-table").get_attribute("aria-rowcount") == str(PLAIN + 4 + 1 + 1)


def test_what_is_unknown_is_said(visit):
    visit.open("#/t?q=member-2")
    visit.page.wait_for_selector("[title=member-2]")
    assert "unknown" in visit.page.locator("[data-index='0'] .cell-reward").inner_text()
    visit.page.locator("[data-index='0'] a").first.click()
    visit.page.wait_for_selector(".rollout-head")
    assert "no reward" in visit.page.inner_text(".rollout-head")


def test_a_dataset_that_is_replaced_keeps_the_place(chromium, tmp_path):
    folder = write_dataset(tmp_path / "data", plain=300)
    with running(folder) as address, visiting(chromium, address) as visit:
        visit.open("#/t?sort=rollout&order=asc")
        page = visit.page
        page.wait_for_selector("[data-index='0']")
        page.locator(".rows").evaluate("rows => { rows.scrollTop = 150 * 34 }")
        page.wait_for_selector("[title=small-00150]")
        write_dataset(folder, plain=350)
        visit.until("document.querySelector('.bar .count').innerText.startsWith('354 rollouts')")
        assert page.locator(".rows").evaluate("rows => rows.scrollTop") == 150 * 34
        assert page.locator("[title=small-00150]").count() == 1


def test_previous_and_next_go_through_the_list_that_one_came_from(visit):
    page = visit.page
    visit.open("#/t?group=group~3&sort=reward&order=asc")
    seen = []
    page.wait_for_selector("[data-index='0'] a")
    page.keyboard.press("Enter")
    for _ in range(4):
        visit.until(
            "location.hash.startsWith('#/r/') && !location.hash.startsWith(argument)", seen[-1] if seen else "-"
        )
        page.wait_for_selector(".rollout-head")
        seen.append(page.evaluate("location.hash.split(/[/?]/).slice(0, 3).join('/')"))
        visit.settle()
        page.wait_for_timeout(200)
        page.keyboard.press("j")
    assert seen == [f"#/r/member-{number}" for number in (0, 3, 1, 2)]
    page.locator(".top .brand").click()
    visit.until("location.hash.startsWith('#/t?')")
    assert page.evaluate("Object.fromEntries(new URLSearchParams(location.hash.split('?')[1]))") == {
        "group": "group~3", "sort": "reward", "order": "asc"
    }  # fmt: skip


def test_columns_are_chosen_and_stay_chosen(visit):
    page = visit.page
    visit.open("#/t")
    page.get_by_text("Columns", exact=True).click()
    page.get_by_label("Turns", exact=True).check()
    page.get_by_label("Asked", exact=True).uncheck()
    page.reload()
    page.wait_for_selector(".rows-head .cell-turns")
    assert page.locator(".rows-head .cell-asked").count() == 0
