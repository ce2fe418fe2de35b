"""What a notebook shows: the page in a frame, which works there and cannot reach the notebook."""

import pytest

import art_otel
from tests.viewer_ui.conftest import visiting

pytestmark = pytest.mark.browser


def test_a_notebook_shows_the_page_of_what_it_holds(chromium, dataset, tmp_path):
    members = [one for one in art_otel.read_trajectories(dataset) if one.group_id == "group"]
    group = art_otel.TrajectoryGroup(group_id="group", trajectories=members)
    shown = [members[0], group, art_otel.batches(dataset)]
    cells = "".join(f"<div>{one._repr_html_()}</div>" for one in shown)
    notebook = tmp_path / "notebook.html"
    notebook.write_text(
        f"<!doctype html><title>notebook</title><main><h1>Notebook</h1>{cells}</main>", encoding="utf-8"
    )
    with visiting(chromium, notebook.as_uri()) as visit:
        visit.page.goto(notebook.as_uri())
        trajectory, members_list, plan = (visit.page.frame_locator(f"div:nth-of-type({at}) iframe") for at in (1, 2, 3))
        trajectory.locator(".rollout-head").wait_for()
        plan.get_by_role("heading", name="What trains of").wait_for()
        members_list.locator("[data-index='0'] a").first.click()
        members_list.locator(".rollout-head").wait_for()
        assert (
            members_list.locator("body").evaluate("() => { try { return top.document.title } catch { return null } }")
            is None
        )
        assert [url for url in visit.asked if not url.startswith(("file:", "data:"))] == []
        assert visit.said == []
