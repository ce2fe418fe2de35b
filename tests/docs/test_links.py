"""No link of a Markdown file and no page that the code names leads nowhere."""

import re

from tests.docs.pages import DOCS, ROOT, inside, markdown_files

LINK = re.compile(r"\[[^\]]*\]\((?P<target>[^)\s]+)\)")
IMAGE = re.compile(r'<img src="(?P<target>[^"]+)"')
CODE = re.compile(r"```.*?```|`[^`\n]*`", re.DOTALL)
HEADING = re.compile(r"^#+ +(.*)$", re.MULTILINE)
NAMED_PAGE = re.compile(r"\bdocs/[\w./-]+\.md\b")
NAMED_FILE = re.compile(
    r"(?<![\w/.@-])(?:docs|art_otel|tests|exporters|\.ci)/[\w./-]+\.(?:md|py|toml|json|jsonl|yml|yaml|svg|png|ts)\b"
)
NAMED_FOLDER = re.compile(r"(?<![\w/.@-])(?:docs|art_otel|tests|exporters|\.ci)/(?:[\w-]+/)*(?![\w*<{.-])")
MODULE = re.compile(r"`([a-z_]+/[\w./]+\.py)`")


def links(path) -> list[str]:
    prose = CODE.sub("", path.read_text(encoding="utf-8"))
    found = [*LINK.finditer(prose), *IMAGE.finditer(prose)]
    return [link["target"] for link in found if "://" not in link["target"]]


def anchors(path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    titles = HEADING.findall(re.sub(r"```.*?```", "", path.read_text(encoding="utf-8"), flags=re.DOTALL))
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def test_every_relative_link_resolves():
    for path in markdown_files():
        for link in links(path):
            target, _, anchor = link.partition("#")
            page = (path.parent / target).resolve() if target else path
            assert page.exists(), f"{inside(path)}: {link} leads nowhere"
            assert not anchor or anchor in anchors(page), f"{inside(path)}: {link} has no such heading"


def test_every_page_is_in_the_index():
    index = {(DOCS / link.partition("#")[0]).resolve() for link in links(DOCS / "README.md")}
    pages = set(DOCS.rglob("*.md")) - {DOCS / "README.md"}
    assert not pages - index


def test_every_page_that_is_named_exists():
    for path in [*sorted(ROOT.glob("art_otel/**/*.py")), *markdown_files()]:
        named = set(NAMED_PAGE.findall(path.read_text(encoding="utf-8")))
        assert not [name for name in named if not (ROOT / name).exists()], inside(path)


def test_every_file_that_the_root_and_docs_name_exists():
    """Not in links alone: in prose, comments and settings, too."""
    files = [*ROOT.iterdir(), *(ROOT / ".ci").iterdir(), *(ROOT / ".github").rglob("*"), *DOCS.rglob("*")]
    texts = [path for path in files if path.is_file() and path.suffix not in (".lock", ".png", ".pyc", ".svg")]
    named = {name: path for path in texts for name in NAMED_FILE.findall(path.read_text(encoding="utf-8"))}
    assert len(named) > 30
    assert {name: inside(path) for name, path in named.items() if not (ROOT / name).exists()} == {}
    folders = {name: path for path in texts for name in NAMED_FOLDER.findall(path.read_text(encoding="utf-8"))}
    assert {name: inside(path) for name, path in folders.items() if not (ROOT / name).is_dir()} == {}
    modules = MODULE.findall((ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8"))
    assert [name for name in modules if not any((at / name).exists() for at in (ROOT, ROOT / "art_otel"))] == []
