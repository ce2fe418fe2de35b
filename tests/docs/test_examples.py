"""Every example in README.md and docs/ runs and prints what the page says.

The rule: `python` and `sh` blocks run, each in a process of its own, a page at a time in a folder that is empty at
first. A page that reads `dumps/` or `out/` begins with the line that makes them, and a how-to page names what has to be
installed. A `text` block right behind a block is all that it prints; a line `…` in it stands for any number of lines.
`needs=NAME` behind the language leaves a block out where that package is not installed; in the fresh environment of
`test_a_page_needs_what_it_names` nothing is left out. All other blocks are only shown. `OPENAI_BASE_URL` leads to
docs/toy_server.py, started anew for each page.
"""

import doctest
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from itertools import zip_longest
from pathlib import Path

import pytest

from tests.docs.pages import DOCS, ROOT, inside

BLOCK = re.compile(r"^```(?P<info>[^\n`]*)\n(?P<body>.*?)^```$", re.MULTILINE | re.DOTALL)
OPTIONS = {"python": ("python", "-W", "error", "-c"), "sh": ("sh", "-e", "-c")}
ALIKE = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


@dataclass(frozen=True, kw_only=True)
class Example:
    """A block that runs. `line` is where its code begins, `prints` None where the page does not say."""

    language: str
    code: str
    line: int
    needs: str | None
    prints: str | None

    @property
    def can_run(self) -> bool:
        return self.needs is None or find_spec(self.needs) is not None


def examples(page: Path) -> list[Example]:
    text = page.read_text(encoding="utf-8")
    blocks = list(BLOCK.finditer(text))
    found: list[Example] = []
    for block, following in zip_longest(blocks, blocks[1:]):
        language, *options = block["info"].split() or [""]
        if language not in OPTIONS:
            continue
        adjacent = following is not None and not text[block.end() : following.start()].strip()
        prints = following["body"] if adjacent and following["info"] == "text" else None
        needs = next((option.removeprefix("needs=") for option in options), None)
        line = text.count("\n", 0, block.start("body")) + 1
        found.append(Example(language=language, code=block["body"], line=line, needs=needs, prints=prints))
    return found


PAGES = [page for page in [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))] if examples(page)]


LONG = [DOCS / "tutorial" / "README.md"]
"""What `art-otel demo` does, which tests/demo runs every day."""


@pytest.mark.long
@pytest.mark.parametrize(
    "page",
    [pytest.param(page, id=str(inside(page)), marks=[pytest.mark.program] * (page in LONG)) for page in PAGES],
)
def test_the_examples_of_a_page_run(page, model_server, tmp_path):
    skipped = [example for example in examples(page) if not example.can_run]
    for example in examples(page):
        if example.can_run:
            check(example, f"{inside(page)}:{example.line}", tmp_path, model_server)
    if skipped:
        pytest.skip("; ".join(f"line {example.line} needs {example.needs}" for example in skipped))


NEEDS = re.compile(
    r"^\*\*You need\*\* `art-otel(?:\[(?P<extras>[a-z,-]+)\])?`(?: and `(?P<more>[a-z-]+)`)? \(", re.MULTILINE
)
HOW_TO = sorted((DOCS / "how-to").glob("*.md"))


def needs(page: Path) -> re.Match[str] | None:
    """What a page says below its title that has to be installed."""
    return NEEDS.match("\n".join(page.read_text(encoding="utf-8").splitlines()[2:3]))


@pytest.mark.parametrize("page", HOW_TO, ids=lambda page: page.name)
def test_a_how_to_page_begins_with_what_it_needs(page):
    assert needs(page), "the line below the title: **You need** `art-otel[extras]` ([install](…))"


FRESH = [page for page in PAGES if needs(page)]


@pytest.fixture(scope="module")
def environments(tmp_path_factory) -> Callable[[tuple[str, ...]], Path]:
    """The Python of a new environment with art-otel and its extras alone; one for all pages that need the same."""

    @cache
    def python(packages: tuple[str, ...]) -> Path:
        folder = tmp_path_factory.mktemp("environment")
        found = folder / "bin" / "python"
        for command in (
            ["uv", "venv", "--quiet", "--python", sys.executable, str(folder)],
            ["uv", "pip", "install", "--quiet", "--python", str(found), *packages],
        ):
            subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
        return found

    return python


@pytest.mark.install
@pytest.mark.parametrize("page", FRESH, ids=lambda page: str(inside(page)))
def test_a_page_needs_what_it_names(page, environments, model_server, tmp_path):
    named = needs(page)
    assert named is not None
    extras = f"[{named['extras']}]" if named["extras"] else ""
    python = environments((f"{ROOT}{extras}", *filter(None, [named["more"]])))
    for example in examples(page):
        check(example, f"{inside(page)}:{example.line}", tmp_path, model_server, python)


@pytest.fixture
def model_server() -> Iterator[str]:
    """The base URL of a server that answers as vLLM does."""
    command = [sys.executable, str(DOCS / "toy_server.py"), "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        yield server.stdout.readline().strip()
        server.terminate()


def check(
    example: Example, place: str, folder: Path, model_server: str = "", python: Path = Path(sys.executable)
) -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("COV_", "OTEL_"))}
    environment |= {"OPENAI_BASE_URL": model_server, "OPENAI_API_KEY": "none"}
    environment["PATH"] = f"{python.parent}{os.pathsep}{environment['PATH']}"
    program, *options = OPTIONS[example.language]
    command = [str(python) if program == "python" else program, *options, example.code]
    done = subprocess.run(
        command, cwd=folder, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{place} failed\n{done.stdout}{done.stderr}"
    if example.prints is not None:
        expected = re.sub(r"^…$", "...", example.prints, flags=re.MULTILINE)
        alike = doctest.OutputChecker().check_output(expected, done.stdout, ALIKE)
        assert alike, f"{place} prints\n{done.stdout}\ninstead of\n{example.prints}"


def test_an_example_that_prints_something_else_is_found(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(
        "```python\nprint('a')\nprint('b')\n```\n\n```text\na\n…\n```\n\n```sh\necho a\n```\n```text\nb\n```\n"
    )
    right, wrong = examples(page)
    check(right, "page", tmp_path)
    with pytest.raises(AssertionError, match="instead of"):
        check(wrong, "page", tmp_path)


def test_the_readme_names_the_two_commands():
    readme = (ROOT / "README.md").read_text(encoding="utf-8").splitlines()
    assert "pip install uv && uv run art-otel demo" in readme
    assert "pip install uv && uv run pytest" in readme
