"""The exported file over file://: the same story and tokens as the server shows, and no request."""

import json
import subprocess
import sys

import pytest

from tests.viewer_ui.conftest import Visit, visiting
from tests.viewer_ui.test_pages import serious

pytestmark = pytest.mark.browser


def test_the_file_shows_what_the_server_shows(chromium, server, dataset, tmp_path):
    file = tmp_path / "shared.html"
    paths = [str(dataset), str(dataset.parent / "run")]  # what the server shows, too
    command = [sys.executable, "-m", "art_otel", "view", *paths, "--html", str(file), "--group", "group"]
    subprocess.run(command, check=True, cwd=tmp_path)
    with visiting(chromium, server) as live, visiting(chromium, file.as_uri()) as exported:
        live.open("#/t?q=member-1")
        live.page.wait_for_selector("[data-index='0'] a")
        rollout = live.page.locator("[data-index='0'] a").first.get_attribute("href").partition("?")[0]
        for view in ("", "?c=advantage&t=0&i=2", "?t=1&why=1", "?seen=1"):
            assert shown(live, f"{rollout}{view}") == shown(exported, f"{rollout}{view}"), view
        exported.open("#/t?sort=rollout&order=desc")
        links = exported.page.locator(".rows-body .cell-task a")
        assert [link.get_attribute("title") for link in links.all()] == [f"member-{at}" for at in (3, 2, 1, 0)]
        assert [url for url in exported.asked if not url.startswith(("file:", "about:", "data:"))] == []
        assert exported.said == []


@pytest.mark.parametrize("width", [1280, 400])
def test_the_file_of_a_selection_says_what_it_holds(chromium, dataset, tmp_path, scheme, width):
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    file, labels = tmp_path / "some.html", dataset / "_labels.jsonl"
    labels.write_text("".join(f"{json.dumps(line)}\n" for line in LABELS))
    command = [sys.executable, "-m", "art_otel", "view", str(dataset), "--html", str(file), "--where", "sort=rollout"]
    subprocess.run([*command, "--limit", "3", "--rollout", "small-00007", "--group", "group"], check=True)
    labels.unlink()
    size = {"width": width, "height": 800}
    with visiting(chromium, file.as_uri(), viewport=size, color_scheme=scheme) as visit:
        page = visit.page
        for view in ("#/", "#/t"):
            visit.open(view)
            assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), view
            assert not serious(axe.run(page)), view
        visit.open("#/")
        says = page.locator("main .notice").inner_text()
        assert says.startswith("This file holds 3 of 404 rollouts, chosen by --rollout small-00007 --group group")
        assert "the first of 5. All numbers here are of these 3." in says
        assert page.locator(".trains .options").count() == 0
        part = page.locator(".part", has_text="no reward")
        part.locator("summary").click()
        part.get_by_role("link").click()
        visit.settle()
        assert names(visit) == ["member-2"]
        # Numbers are of the whole file: with a filter there are none that could be taken for those of a part.
        assert page.locator(".answer").count() == 0
        assert page.locator(".bar .count").inner_text().startswith("1 rollout ")
        if width == 1280:
            visit.open("#/t")
            assert page.locator(".add optgroup[label=label] option").all_text_contents() == ["good"]
            page.locator("input[type=search]").fill("SAY 2")
            visit.until("document.querySelectorAll('.rows-body [role=row]').length === 1")
            assert names(visit) == ["member-2"]
        visit.open("#/t?label=good")
        page.locator(".rows-body a").first.click()
        visit.settle()
        assert "looks right" in page.locator(".labels").inner_text()
        assert page.locator(".labels :is(button, input, textarea)").count() == 0
        page.get_by_role("button", name="more").click()
        page.get_by_role("definition").get_by_role("link", name="group", exact=True).click()
        visit.settle()  # the file has a part of the group, so its page is the list
        assert names(visit) == ["member-0", "member-1", "member-2"]
        assert visit.said == []


LABELS = [
    {"rollout_id": "member-1", "name": "good", "value": 1.0, "time": 1},
    {"rollout_id": "member-1", "name": "note", "explanation": "looks right", "time": 1},
    {"rollout_id": "small-00001", "name": "elsewhere", "value": 1.0, "time": 1},
]


def names(visit: Visit) -> list[str]:
    return sorted(link.get_attribute("title") or "" for link in visit.page.locator(".rows-body .cell-task a").all())


def shown(visit: Visit, view: str) -> tuple[str, list[str]]:
    visit.open(view)
    visit.page.wait_for_timeout(300)
    main = visit.page.locator("main")
    colors = main.evaluate("main => [...main.querySelectorAll('[data-i]')].map(token => token.className)")
    # A file's neighbors are its own.
    main.evaluate("main => main.querySelectorAll('.steps').forEach(each => each.remove())")
    return main.inner_text(), colors
