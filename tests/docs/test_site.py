"""The site builds without a warning, and every public name is in the reference."""

import re
import shutil
import subprocess

import pytest

import art_otel
from art_otel import data
from tests.docs.pages import DOCS, ROOT, text_of
from tests.docs.test_links import links

REFERENCE = [path.read_text(encoding="utf-8") for path in sorted((DOCS / "reference").glob("*.md"))]
DOCUMENTED = set(re.findall(r"^::: ([\w.]+)$", "\n".join(REFERENCE), re.MULTILINE))


def test_every_public_name_is_in_the_reference():
    for module in (art_otel, data):
        for name in module.__all__:
            value = getattr(module, name)
            defined = f"{getattr(value, '__module__', '')}.{getattr(value, '__qualname__', '')}"
            assert {f"{module.__name__}.{name}", defined} & DOCUMENTED, (
                f"docs/reference/ has no {module.__name__}.{name}"
            )


def test_every_page_is_in_the_navigation():
    navigation = set(re.findall(r"([\w./-]+\.md)$", text_of("mkdocs.yml"), re.MULTILINE))
    assert not {path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md")} - navigation


def test_the_readme_leads_to_the_first_pages():
    assert {"docs/quickstart.md", "docs/tutorial/README.md", "docs/concepts.md"} <= set(links(ROOT / "README.md"))


def test_a_newcomer_can_read_all_pages():
    assert len(list(DOCS.rglob("*.md"))) <= 38


@pytest.mark.install
def test_the_site_builds_without_a_warning(tmp_path):
    uv = shutil.which("uv")
    if uv is None:
        pytest.skip("uv is not installed: pip install uv")
    command = [uv, "run", "--isolated", "--no-dev", "--group", "docs", "mkdocs", "build", "--strict", "--site-dir"]
    done = subprocess.run([*command, tmp_path / "site"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "art_otel.rollout" in (tmp_path / "site" / "reference" / "python" / "index.html").read_text("utf-8")
