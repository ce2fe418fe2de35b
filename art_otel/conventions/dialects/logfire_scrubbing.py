"""Logfire's scrubbing: it replaces whole texts that hold a word such as `session`, and lists where.

Source of the format: `logfire/_internal/scrubbing.py`. Invariant: what was replaced is not what was said; GenAI's own
attributes are never scrubbed, so only what other attributes hold is doubted.
"""

from collections.abc import Collection
from typing import Final

from art_otel.conventions.attributes import values
from art_otel.conventions.attributes.reader import AttributeReader

_SCRUBBED: Final = "logfire.scrubbed"


def doubt_scrubbed(reader: AttributeReader, names: Collection[str]) -> None:
    """Doubt what was read where one of these attributes was scrubbed."""
    if _SCRUBBED not in reader.attributes:
        return
    for note in values.items(reader.structured(_SCRUBBED)) or ():
        path = values.items((values.mapping(note) or {}).get("path")) or []
        if len(path) > 1 and path[1] in names:
            reader.gap("masked", f"{_SCRUBBED}: {path[1]}")
