"""StaticFiles: the built page, as it ships in the package."""

from functools import cache
from pathlib import Path
from typing import Final

from art_otel.errors import UsageError

FOLDER: Final = Path(__file__).parents[1] / "static"
TYPES: Final = {
    "index.html": "text/html; charset=utf-8",
    "app.js": "text/javascript; charset=utf-8",
    "app.css": "text/css; charset=utf-8",
}
"""Every file there is, with its type."""


@cache
def static_file(name: str) -> bytes:
    """The bytes of a file of TYPES. Raises UsageError where the package was built without it."""
    try:
        return (FOLDER / name).read_bytes()
    except FileNotFoundError:
        raise UsageError(
            f"the page's {name} was not built: run `npm ci && npm run build` in art_otel/viewer/ui"
        ) from None
