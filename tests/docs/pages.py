"""The documents as tests see them."""

from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
DOCS = ROOT / "docs"


def markdown_files() -> list[Path]:
    """Every Markdown file of the project, and none of what is installed in its folders."""
    return [path for path in sorted(ROOT.rglob("*.md")) if not any(map(_is_foreign, inside(path).parts))]


def _is_foreign(folder: str) -> bool:
    return folder.startswith(".") or folder == "node_modules"


def inside(path: Path) -> Path:
    """The path as seen from the root of the project."""
    return path.relative_to(ROOT)


def text_of(page: str) -> str:
    """What a page says; `page` is its path from the root of the project."""
    return (ROOT / page).read_text(encoding="utf-8")
