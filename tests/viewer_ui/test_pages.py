"""Every page in a real browser: whole at both widths, accessible in both schemes, and without a word on the console."""

import pytest

from tests.viewer_ui.conftest import visiting

pytestmark = pytest.mark.browser

TABS = ("", "?c=mask", "?c=logprob", "?c=advantage&t=1&i=4", "?t=0&why=1", "?seen=1", "?raw=1")


def views(visit) -> list[str]:
    (row,) = answer(visit, "/api/trajectories?q=member-1&limit=1")["rows"]
    rollout = [f"#/r/{row['key']}{tab}" for tab in TABS]
    return [
        "#/",
        "#/t",
        "#/t?sort=reward&order=desc",
        *rollout,
        f"#/?group={row['groupKey']}",
        f"#/?group={row['groupKey']}&plan=advantage%3Drloo",
        "#/?options=open&plan=advantage%3Dnone",
        "#/?source=run&q=nobody+says+this",
        "#/verify",
    ]


def answer(visit, path: str):
    return visit.page.evaluate("path => fetch(path).then(answer => answer.json())", path)


@pytest.mark.parametrize("width", [1280, 400])
def test_every_page_is_whole_and_accessible(chromium, server, scheme, width):
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    size = {"width": width, "height": 800}
    with visiting(chromium, server, viewport=size, color_scheme=scheme) as visit:
        for view in views(visit):
            visit.open(view)
            assert visit.page.evaluate("document.documentElement.scrollWidth <= innerWidth"), view
            assert not serious(axe.run(visit.page)), view
        assert visit.said == []
        assert all(url.startswith(("http://127.0.0.1:", "about:", "data:")) for url in visit.asked)


@pytest.mark.parametrize(
    ("width", "order"),
    [(1280, ["chart", "tasks", "trains", "read"]), (400, ["chart", "read", "tasks", "trains"])],
)
def test_what_to_read_first_stands_above_the_tasks_of_a_narrow_window(chromium, server, width, order):
    """The keyboard goes through the sections as they stand."""
    with visiting(chromium, server, viewport={"width": width, "height": 800}) as visit:
        visit.open("#/")
        sections = visit.page.locator(".charts section")
        assert sections.evaluate_all("all => all.map(one => one.className)") == order
        tops = sections.evaluate_all("all => all.map(one => one.getBoundingClientRect().top)")
        assert width != 400 or tops == sorted(tops)
        assert sum("run/read" in url for url in visit.asked) == 1


def test_a_rollout_says_how_its_advantage_came_about_and_what_a_tool_said_elsewhere(visit):
    visit.open(next(view for view in views(visit) if view.startswith("#/r/")))
    said = visit.page.locator(".rollout-head .sum").inner_text().replace("\N{MINUS SIGN}", "-")
    assert said == "reward 1, group mean 0.5: (1 - 0.5) / 0.408 = 1.22"
    tags = visit.page.locator(".result .tag").all_inner_texts()
    assert tags == ["what the model was given", "what the tool recorded"]
    visit.open("#/")
    counts = visit.page.locator(".part .quiet").all_inner_texts()
    assert sum(int(text.split("·")[-1]) for text in counts) == answer(visit, "/api/run")["total"]


def serious(results) -> list[str]:
    return [
        f"{found['id']}: {node['html'][:160]} {node['any'][0]['message'] if node['any'] else ''}"
        for found in results.response["violations"]
        if found["impact"] in ("serious", "critical")
        for node in found["nodes"]
    ]


def test_a_copied_address_restores_the_view(visit):
    for view in views(visit):
        visit.open(view)
        before = None
        while before != (before := visit.page.inner_text("main")):  # what is read later is there
            visit.page.wait_for_timeout(500)
        visit.page.reload()
        visit.settle()
        visit.until("document.querySelector('main').innerText === argument", before)


def test_text_of_strangers_is_shown_and_never_run(visit):
    for view in views(visit):
        visit.open(view)
    assert visit.said == []
    assert visit.page.evaluate("window.hit === undefined && document.images.length === 0")
    visit.open(next(view for view in views(visit) if view.startswith("#/r/")))
    text = visit.page.inner_text("main")
    assert "<script>window.hit = 1</script><img src=x onerror='window.hit = 1'> [go](javascript:hit)" in text
    assert {"U+202E", "U+202C", "U+200B"} <= set(visit.page.locator(".codepoint").all_inner_texts())
    assert "\u202e" not in text
    assert visit.page.locator("main a[href^=javascript]").count() == 0


def test_clicks_become_filters_and_filters_are_removed(visit):
    page = visit.page
    visit.open("#/")
    page.locator(".chart svg").focus()
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("Enter")
    visit.until("location.hash === '#/?step=0'")
    visit.until("document.querySelector('.bar .count').innerText.startsWith('1 rollout ')")
    page.get_by_role("button", name="Remove the filter step 0").click()
    visit.until("location.hash === '#/'")
    page.get_by_label("Add a filter").select_option("source=data")
    visit.until("location.hash === '#/?source=data'")
    page.go_back()
    page.locator(".chart svg").scroll_into_view_if_needed()
    box = page.locator(".chart svg").bounding_box()
    page.mouse.move(box["x"] + 200, box["y"] + 60)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] - 20, box["y"] + 60, steps=4)
    page.mouse.up()
    visit.until("location.hash === '#/?step=0-3'")
    assert visit.said == []


def test_a_task_leads_to_its_group_and_the_group_to_its_turns(visit):
    page = visit.page
    visit.open("#/")
    page.get_by_role("link", name="Task test").focus()
    page.keyboard.press("ArrowRight")  # of a step without a group
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    visit.until("location.hash.startsWith('#/?group=group')")
    page.wait_for_selector(".group .beside")
    assert page.locator(".beside thead th").count() == 4
    assert page.locator(".beside thead .num").all_inner_texts()[0].startswith("1")
    page.locator(".beside .cell-text").first.click()
    visit.until("location.hash.startsWith('#/r/member-')")


def test_the_metrics_of_the_trainer_are_unfolded(visit):
    visit.open("#/")
    visit.page.get_by_text("Metrics of the trainer").click()
    visit.page.wait_for_selector(".metrics figure")
    assert visit.page.locator(".metrics figcaption").all_inner_texts() == ["loss -1", "train/reward 1"]
