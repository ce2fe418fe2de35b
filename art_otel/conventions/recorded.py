"""Recorded: what was recorded of one call, as every convention is given it."""

from collections.abc import Sequence

import msgspec

from art_otel.conventions.attribute_names import AttributeNames
from art_otel.conventions.reading import Reading
from art_otel.spans import LogRecord, Span


class Recorded(msgspec.Struct, frozen=True, gc=False):
    """An inference span with its log records. `names` are those of the span's attributes."""

    span: Span
    logs: Sequence[LogRecord]
    names: AttributeNames

    def reading(self) -> Reading:
        """The span's attributes, of which nothing was read yet."""
        return Reading(self.span.attributes, self.names)
