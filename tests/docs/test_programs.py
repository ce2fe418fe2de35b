"""Pages that name a program show it as it is."""

import re

import pytest

from tests.docs.pages import DOCS, ROOT, text_of

PROGRAM = re.compile(r'^```\w+ title="(?P<path>docs/[^"]+)"\n(?P<body>.*?)^```$', re.MULTILINE | re.DOTALL)
PAGES = {
    "docs/how-to/other-languages.md": {
        *(DOCS / "typescript").glob("*.ts"),
        *(DOCS / "typescript").glob("*.py"),
        *(DOCS / "python").glob("*.py"),
    },
    "docs/how-to/receive.md": {DOCS / "loop" / "agents.py", DOCS / "loop" / "trainer.py"},
}


@pytest.mark.parametrize("page", PAGES)
def test_a_page_shows_the_programs_as_they_are(page):
    shown = {ROOT / program["path"]: program["body"] for program in PROGRAM.finditer(text_of(page))}
    assert shown == {path: path.read_text(encoding="utf-8") for path in PAGES[page]}
