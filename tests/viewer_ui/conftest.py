"""A real server of `art-otel view` on loopback, and a real Chromium that may reach nothing else."""

import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.viewer_ui.dataset import write_dataset, write_run

CHROMIUM = ("chromium", "chromium-browser", "google-chrome")


@dataclass
class Visit:
    """A browser's page, with what its console and its requests said."""

    page: object
    start: str
    said: list[str] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)

    def open(self, view: str) -> None:
        """Open a view by its hash, as a copied address: the document loads anew."""
        self.page.goto("about:blank")
        self.page.goto(self.start + view)
        self.settle()

    def settle(self) -> None:
        """Wait until nothing is on its way any more."""
        self.page.wait_for_selector("main h1")
        self.until("!document.querySelector('.loading, .rows-body:empty, .rows-body .loading-row')")

    def until(self, condition: str, argument: object = None) -> None:
        """Wait for a condition in the page. Playwright's own way needs `eval`, which the page's policy forbids."""
        for _ in range(400):
            if self.page.evaluate(f"argument => Boolean({condition})", argument):
                return
            self.page.wait_for_timeout(25)
        raise AssertionError(condition)


@pytest.fixture(scope="module")
def dataset(tmp_path_factory) -> Path:
    return write_dataset(tmp_path_factory.mktemp("viewer") / "data")


@pytest.fixture(scope="module")
def server(dataset) -> Iterator[str]:
    with running(dataset, write_run(dataset.parent / "run")) as address:
        yield address


class running:  # noqa: N801 # reads as a function
    """`art-otel view` of paths; gives its address with the token."""

    def __init__(self, *paths: Path) -> None:
        command = [sys.executable, "-m", "art_otel", "view", *map(str, paths), "--port", "0", "--no-open"]
        self._process = subprocess.Popen(
            command, cwd=paths[0].parent, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )

    def __enter__(self) -> str:
        said = []
        assert self._process.stdout is not None
        for line in self._process.stdout:
            said.append(line)
            if address := re.search(r"http://\S+", line):
                # What it says later must not fill the pipe.
                self._reader = threading.Thread(target=self._process.stdout.read)
                self._reader.start()
                return address[0]
        raise AssertionError("".join(said))

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.wait(30)
        self._reader.join()
        assert self._process.stdout is not None
        self._process.stdout.close()


@pytest.fixture(scope="module")
def chromium() -> Iterator[object]:
    api = pytest.importorskip("playwright.sync_api", reason="uv run --group browser brings it")
    program = next(filter(None, map(shutil.which, CHROMIUM)), None)
    assert program, f"these tests need one of {', '.join(CHROMIUM)}: apt-get install chromium"
    with api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program)
        yield browser
        browser.close()


@pytest.fixture(params=["light", "dark"])
def scheme(request) -> str:
    return request.param


@pytest.fixture
def visit(chromium, server) -> Iterator[Visit]:
    with visiting(chromium, server) as one:
        yield one


class visiting:  # noqa: N801 # reads as a function
    """A browser of its own at an address; at the end nothing may have gone wrong in it."""

    def __init__(self, chromium, address: str, **options) -> None:
        self._context = chromium.new_context(**{"viewport": {"width": 1280, "height": 800}, **options})
        self._address = address

    def __enter__(self) -> Visit:
        page = self._context.new_page()
        page.goto(self._address)
        page.wait_for_selector("main h1")
        one = Visit(page=page, start=page.url.split("#")[0])
        page.on("console", lambda message: one.said.append(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda error: one.said.append(str(error)))
        page.on("dialog", lambda dialog: one.said.append(f"dialog {dialog.message}"))
        page.on("request", lambda request: one.asked.append(request.url))
        return one

    def __exit__(self, *_: object) -> None:
        self._context.close()
