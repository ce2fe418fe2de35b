"""A label and a note are written from a rollout's page, and shown where the list filters by them."""

import json

import pytest

from tests.viewer_ui.conftest import running, visiting
from tests.viewer_ui.dataset import write_dataset

pytestmark = pytest.mark.browser


def test_a_label_and_a_note_are_written_and_found(chromium, tmp_path):
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    data = write_dataset(tmp_path / "data")
    with running(data, "--labels") as address, visiting(chromium, address) as visit:
        page = visit.page
        visit.open("#/t")
        page.locator(".rows-body .cell-task a").first.click()
        visit.settle()
        page.get_by_label("Add a label").fill("good")
        page.get_by_label("Note", exact=True).fill("looks right")
        page.get_by_role("button", name="Save", exact=True).click()
        page.get_by_role("button", name="Take the label good away").wait_for()
        serious = [one for one in axe.run(page).response["violations"] if one["impact"] in ("serious", "critical")]
        assert serious == []
        visit.open("#/t?label=good")
        assert page.locator(".rows-body .row").count() == 1
        assert page.locator(".rows-body .given-label").inner_text() == "good"
        assert visit.said == []
    lines = [json.loads(line) for line in (data / "_labels.jsonl").read_text().splitlines()]
    assert [(line["name"], line.get("explanation")) for line in lines] == [("good", None), ("note", "looks right")]
