"""What the filters leave is saved as a file, in a real browser."""

import json

import pytest

pytestmark = pytest.mark.browser


def test_a_selection_is_saved(visit):
    visit.open("#/t?min_reward=0.397")
    saved = {}
    for name in ("Save ids", "Save JSON Lines"):
        with visit.page.expect_download() as download:
            visit.page.get_by_role("button", name=name).click()
        saved[name] = download.value.path().read_text().splitlines()
    assert {"small-00398", "small-00399", "member-1", "member-3"} <= set(saved["Save ids"])
    assert [json.loads(line)["rollout_id"] for line in saved["Save JSON Lines"]] == saved["Save ids"]
    assert visit.said == []
