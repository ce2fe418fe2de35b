"""Every page in a real browser: whole at both widths, accessible in both schemes, and without a word on the console."""

import pytest

from tests.viewer_ui.conftest import visiting

pytestmark = pytest.mark.browser

TABS = ("conversation", "tokens", "tokens?c=logprob", "tokens?c=advantage", "tree", "time", "raw")


def views(visit) -> list[str]:
    (row,) = answer(visit, "/api/trajectories?q=member-1&limit=1")["rows"]
    (other,) = answer(visit, "/api/trajectories?q=member-0&limit=1")["rows"]
    rollout = [f"#/r/{row['key']}/{tab}" for tab in TABS]
    return [
        "#/",
        "#/t",
        "#/t?sort=reward&order=desc",
        *rollout,
        f"#/g/{row['groupKey']}",
        "#/compare",
        f"#/pair/{row['key']}/{other['key']}",
        "#/plan",
        "#/verify",
        "#/runs?metric=train%2Freward&task=test",
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
        before = visit.page.inner_text("main")
        visit.page.reload()
        visit.settle()
        visit.until("document.querySelector('main').innerText === argument", before)


def test_text_of_strangers_is_shown_and_never_run(visit):
    for view in views(visit):
        visit.open(view)
    assert visit.said == []
    assert visit.page.evaluate("window.hit === undefined && document.images.length === 0")
    visit.open(next(view for view in views(visit) if view.endswith("/conversation")))
    text = visit.page.inner_text("main")
    assert "<script>window.hit = 1</script><img src=x onerror='window.hit = 1'> [go](javascript:hit)" in text
    assert {"U+202E", "U+202C", "U+200B"} <= set(visit.page.locator(".codepoint").all_inner_texts())
    assert "\u202e" not in text
    assert visit.page.locator("main a[href^=javascript]").count() == 0


def test_a_step_of_a_run_leads_to_its_trajectories(visit):
    visit.open("#/runs")
    page = visit.page
    visit.until("document.querySelector('.chart .u-over')?.clientWidth > 500")
    assert page.locator(".series tbody tr").count() == 3
    box = page.locator(".chart .u-over").bounding_box()
    page.mouse.click(box["x"] + 5, box["y"] + box["height"] / 2)
    visit.until("location.hash.startsWith('#/t?step=0')")
    visit.settle()
    assert page.locator(".rows-body [role=row]").count() == 1


def test_a_task_over_steps_leads_to_its_rollouts(visit):
    visit.open("#/runs")
    page = visit.page
    page.get_by_label("Find a name").fill("TES")
    visit.until("document.querySelector('#task ~ * select').options.length === 2")
    page.locator("section[aria-labelledby=task] select").select_option("test")
    visit.until("document.querySelector('.beside tbody')?.innerText.includes('number 90000')")
    page.locator(".beside .cell-text").first.click()
    visit.until("location.hash.startsWith('#/r/')")
