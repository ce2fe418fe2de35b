"""Recording: what was recorded of one call, which every dialect reads."""

from collections.abc import Sequence

import msgspec

from art_otel.conventions.attributes.names import AttributeNames
from art_otel.conventions.attributes.reader import AttributeReader
from art_otel.spans import LogRecord, Span


class Recording(msgspec.Struct, frozen=True, gc=False):
    """An inference span, its log records, and the names of the span's attributes."""

    span: Span
    logs: Sequence[LogRecord]
    names: AttributeNames

    def reader(self) -> AttributeReader:
        """A new reader of the span's attributes."""
        return AttributeReader(self.span.attributes, self.names)
