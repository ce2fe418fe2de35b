"""Write docs/assets/view-*.png, pictures of the viewer's pages: `uv run --group browser python docs/view_pictures.py`.

The data is the demo's, whose seed makes it the same each time but for ids and times.
"""

import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

from playwright.sync_api import Page, sync_playwright

ASSETS: Final = Path(__file__).parent / "assets"
CHROMIUM: Final = ("chromium", "chromium-browser", "google-chrome")
SIZE: Final = {"width": 1280, "height": 760}


def main() -> None:
    """Run the demo, open its run in the viewer, and take a picture of each page."""
    with tempfile.TemporaryDirectory() as folder:
        art_otel = [sys.executable, "-m", "art_otel"]
        demo = [*art_otel, "demo", "--out", folder]
        subprocess.run(demo, check=True, stdout=subprocess.DEVNULL)  # noqa: S603 # this very Python
        command = [*art_otel, "view", f"{folder}/demo/models/guide", "--port", "0", "--no-open"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as server:  # noqa: S603 # as above
            try:
                said = (re.search(r"http://\S+", line) for line in server.stdout or ())
                take_pictures(next(address[0] for address in said if address))
            finally:
                server.terminate()


def take_pictures(address: str) -> None:
    """Open each page at the address and save what it shows."""
    program = next(filter(None, map(shutil.which, CHROMIUM)))
    with sync_playwright() as playwright, playwright.chromium.launch(executable_path=program) as browser:
        page = browser.new_page(viewport=SIZE, color_scheme="light")
        page.goto(address)
        page.wait_for_selector(".parts")
        start = page.url.split("#")[0]
        (row,) = page.evaluate(
            "fetch('/api/trajectories?sort=turns&order=desc&limit=1').then(answer => answer.json())"
        )["rows"]
        rollout = f"#/r/{row['key']}"
        for name, view in {
            "run": "#/",
            "conversation": rollout,
            "tokens": f"{rollout}?c=advantage&t=0&i=9",
        }.items():
            picture(page, start + view, ASSETS / f"view-{name}.png")


def picture(page: Page, address: str, file: Path) -> None:
    """Save one page, once nothing is on its way any more."""
    page.goto("about:blank")
    page.goto(address)
    page.wait_for_selector("main h1")
    page.wait_for_timeout(2500)
    page.screenshot(path=file)


if __name__ == "__main__":
    main()
