"""Recording: what was recorded of one call, as every convention is given it."""

from collections.abc import Sequence

import msgspec

from art_otel.conventions.attributes.names import AttributeNames
from art_otel.conventions.attributes.reader import AttributeReader
from art_otel.spans import LogRecord, Span


class Recording(msgspec.Struct, frozen=True, gc=False):
    """An inference span with its log records. `names` are those of the span's attributes."""

    span: Span
    logs: Sequence[LogRecord]
    names: AttributeNames

    def reader(self) -> AttributeReader:
        """The span's attributes, of which nothing was read yet."""
        return AttributeReader(self.span.attributes, self.names)
