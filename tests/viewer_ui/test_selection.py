"""The ids of what the filters leave are saved as a file, in a real browser."""

import pytest

pytestmark = pytest.mark.browser


def test_a_selection_is_saved(visit):
    visit.open("#/t?min_reward=0.397")
    with visit.page.expect_download() as download:
        visit.page.get_by_role("button", name="Save ids").click()
    saved = download.value.path().read_text().splitlines()
    assert {"small-00398", "small-00399", "member-1", "member-3"} <= set(saved)
    assert visit.said == []
