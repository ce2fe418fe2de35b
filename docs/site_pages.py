"""A hook of mkdocs: Markdown files that lie outside docs/ are pages of the site, and links between all pages hold.

Invariant: a relative link that resolves in the repository resolves in the site, or loses its target and keeps its text
where it leads to a file that is no page.
"""

import os
import re
from pathlib import Path
from typing import Final

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT: Final = Path(__file__).resolve().parent.parent
DOCS: Final = ROOT / "docs"
OUTSIDE: Final = {
    ROOT / "ARCHITECTURE.md": "design-notes/architecture.md",
    ROOT / "CONTRIBUTING.md": "project/contributing.md",
    ROOT / "SECURITY.md": "project/security.md",
    ROOT / "CHANGELOG.md": "project/changelog.md",
    **{path: f"integrations/{path.parent.name}.md" for path in sorted(ROOT.glob("exporters/*/README.md"))},
}
"""Where a file of the repository stands in the site."""

SOURCES: Final = {target: source for source, target in OUTSIDE.items()}
LINK: Final = re.compile(r"(?P<image>!?)\[(?P<text>[^\]]*)\]\((?P<target>[^)\s]+)\)")
NEEDS: Final = re.compile(r"^(```\w+) needs=\w+$", re.MULTILINE)
FENCE: Final = re.compile(r"(^```.*?^```$)", re.MULTILINE | re.DOTALL)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that lie outside docs/."""
    for source, target in OUTSIDE.items():
        files.append(File.generated(config, target, content=source.read_text(encoding="utf-8")))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:  # noqa: ARG001 # mkdocs' signature
    """Let links lead to where their targets stand in the site."""
    parts = FENCE.split(NEEDS.sub(r"\1", markdown))
    return "".join(
        part if part.startswith("```") else LINK.sub(lambda link: _moved(link, page), part) for part in parts
    )


def _moved(link: re.Match[str], page: Page) -> str:
    target, hash_sign, anchor = link["target"].partition("#")
    if "://" in target or not target:
        return link[0]
    here = page.file.src_uri
    source = SOURCES.get(here, DOCS / here)
    path = (source.parent / target).resolve()
    if path in OUTSIDE:
        there = OUTSIDE[path]
    elif path.is_relative_to(DOCS) and path.is_file() and path.suffix != ".py":
        there = path.relative_to(DOCS).as_posix()
    else:
        return link["text"]
    relative = os.path.relpath(there, Path(here).parent)
    return f"{link['image']}[{link['text']}]({relative}{hash_sign}{anchor})"
