"""Every example in README.md and docs/ runs and prints what the page says.

The rule: `python` and `sh` blocks run, each in a process of its own, a page at a time in a folder where `dumps/` holds
the demo's recordings and `out/` their dataset. A `text` block right behind one is all that it prints; a line `…` in it
stands for any number of lines. `needs=NAME` behind the language leaves a block out where that package is not installed.
All other blocks are only shown. `OPENAI_BASE_URL` leads to docs/toy_server.py, started anew for each page.
"""

import doctest
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import zip_longest
from pathlib import Path

import pytest

from art_otel.demo import RECORDINGS
from tests.conversions import convert_files
from tests.docs.pages import DOCS, ROOT, inside

BLOCK = re.compile(r"^```(?P<info>[^\n`]*)\n(?P<body>.*?)^```$", re.MULTILINE | re.DOTALL)
COMMANDS = {"python": (sys.executable, "-W", "error", "-c"), "sh": ("sh", "-e", "-c")}
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
        if language not in COMMANDS:
            continue
        adjacent = following is not None and not text[block.end() : following.start()].strip()
        prints = following["body"] if adjacent and following["info"] == "text" else None
        needs = next((option.removeprefix("needs=") for option in options), None)
        line = text.count("\n", 0, block.start("body")) + 1
        found.append(Example(language=language, code=block["body"], line=line, needs=needs, prints=prints))
    return found


PAGES = [page for page in [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))] if examples(page)]


@pytest.fixture(scope="module")
def dataset(tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("demo") / "out"
    convert_files(out, RECORDINGS)
    return out


LONG = [DOCS / "demo.md"]
"""What `art-otel demo` does, which tests/demo runs every day."""


@pytest.mark.parametrize(
    "page",
    [pytest.param(page, id=str(inside(page)), marks=[pytest.mark.program] * (page in LONG)) for page in PAGES],
)
def test_the_examples_of_a_page_run(page, dataset, model_server, tmp_path):
    shutil.copytree(RECORDINGS, tmp_path / "dumps")
    shutil.copytree(dataset, tmp_path / "out")
    skipped = [example for example in examples(page) if not example.can_run]
    for example in examples(page):
        if example.can_run:
            check(example, f"{inside(page)}:{example.line}", tmp_path, model_server)
    if skipped:
        pytest.skip("; ".join(f"line {example.line} needs {example.needs}" for example in skipped))


@pytest.fixture
def model_server() -> Iterator[str]:
    """The base URL of a server that answers as vLLM does."""
    command = [sys.executable, str(DOCS / "toy_server.py"), "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        yield server.stdout.readline().strip()
        server.terminate()


def check(example: Example, place: str, folder: Path, model_server: str = "") -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("COV_", "OTEL_"))}
    environment |= {"OPENAI_BASE_URL": model_server, "OPENAI_API_KEY": "none"}
    environment["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{environment['PATH']}"
    command = [*COMMANDS[example.language], example.code]
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
