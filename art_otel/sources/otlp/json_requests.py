"""Where requests begin and end in OTLP JSON, whatever white space, lines and lists stand in and around them.

Invariant: a request begins only where `REQUEST` matches or a line does. The quotes of one inside a string are escaped,
so that no text is taken for a request.
"""

import codecs
import itertools
import re
from typing import Final

from art_otel.sources.json_text.frame import BLANKS, SEPARATORS

BETWEEN: Final = SEPARATORS + codecs.BOM_UTF8
"""What may stand between two requests; no sound one begins or ends with any of it."""

_SIGNAL: Final = rb"resource(?:Spans|Logs|Metrics|Profiles)"
REQUEST: Final = re.compile(
    rb'\{(?:\s*+"(?:(?:trace|result)"\s*+:\s*+\{\s*+"resourceSpans|batches|%b)"\s*+:'
    rb'|(?:(?<=[\n\x1e]\{)|(?<=\n%b\{))[^\n\x1e]{0,2000}?"%b"\s*+:)' % (_SIGNAL, codecs.BOM_UTF8, _SIGNAL)
)
"""The beginning of a request: its first name tells it, or any name in the line or text of a sequence that it begins."""

CUT: Final = re.compile(rb"(?<!:)(?<!:\s)\n(?=(?:%b|\x1e)?[^\S\n]*+(?:%b))" % (codecs.BOM_UTF8, REQUEST.pattern))
"""The end of the last line before a request, and not what is inside an envelope. Blank lines are looked at once."""

_TAIL_BYTES: Final = 8


def split_requests(line: bytes) -> list[bytes]:
    """The requests in one line, wherever one begins: in an array, or glued to what another writer left torn.

    What stands before the first request is a piece of its own unless it is only marks of a list.
    """
    starts = [match.start() for match in REQUEST.finditer(line)]
    if not starts or (starts == [0] and line[-_TAIL_BYTES:].rstrip(BLANKS).endswith(b"}")):
        return [line]  # it may be large: no copy
    bounds = [0, *starts, len(line)]
    pieces = [line[start:end].strip(BETWEEN) for start, end in itertools.pairwise(bounds)]
    return [piece for piece in pieces if piece] or [line]
