"""The exported file over file://: the same conversation, tokens and tree as the server shows, and no request."""

import subprocess
import sys

import pytest

from tests.viewer_ui.conftest import Visit, visiting

pytestmark = pytest.mark.browser


def test_the_file_shows_what_the_server_shows(chromium, server, dataset, tmp_path):
    file = tmp_path / "shared.html"
    paths = [str(dataset), str(dataset.parent / "run")]  # what the server shows, too
    command = [sys.executable, "-m", "art_otel", "view", *paths, "--html", str(file), "--group", "group"]
    subprocess.run(command, check=True, cwd=tmp_path)
    with visiting(chromium, server) as live, visiting(chromium, file.as_uri()) as exported:
        live.open("#/t?q=member-1")
        live.page.wait_for_selector("[data-index='0'] a")
        rollout = live.page.locator("[data-index='0'] a").first.get_attribute("href")
        for tab in ("conversation", "tokens?c=advantage&i=2", "tree", "time", "raw"):
            assert shown(live, f"{rollout}/{tab}") == shown(exported, f"{rollout}/{tab}"), tab
        exported.open("#/t?sort=rollout&order=desc")
        rows = exported.page.locator(".rows-body [role=row]")
        assert [text.split("member-")[1][0] for text in rows.all_inner_texts()] == ["3", "2", "1", "0"]
        assert [url for url in exported.asked if not url.startswith(("file:", "about:", "data:"))] == []
        assert exported.said == []


def shown(visit: Visit, view: str) -> tuple[str, list[str]]:
    visit.open(view)
    main = visit.page.locator("main")
    colors = main.evaluate("main => [...main.querySelectorAll('.token-grid [data-i]')].map(token => token.className)")
    # A file's neighbors are its own, and it holds the answers of the default options alone.
    main.evaluate("main => main.querySelectorAll('.steps, .reward-options').forEach(each => each.remove())")
    return main.inner_text(), colors
