"""PlainSpanBuilder: builds records of stores that write ids as text and attributes as plain values by name.

Invariant: the checks are those of `SpanBuilder`, so that a bad id, time, number or depth is quarantined in any format.
"""

import math
import re
from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import Final, cast

from art_otel.sources.format import Reading
from art_otel.sources.otlp import messages as otlp
from art_otel.sources.otlp.json_records import hex_id
from art_otel.sources.otlp.records import SpanBuilder
from art_otel.sources.refusals import DroppedFields, Refused, Site, attribute_path
from art_otel.spans import Value

_NO_PREFIX: Final = re.compile("")


def plain(attributes: Mapping[str, Value] | None) -> list[otlp.KeyValue]:
    """Pass attributes by name where OTLP's messages have a list of KeyValue; PlainSpanBuilder takes them so."""
    return cast(list[otlp.KeyValue], attributes)


class PlainSpanBuilder(SpanBuilder):
    """Builds records of messages whose attributes are dicts of plain values.

    `padded` ids may lack leading zeros, and a trace id may stand behind a `prefix`.
    """

    def __init__(self, reading: Reading, *, padded: bool = False, prefix: re.Pattern[str] = _NO_PREFIX) -> None:
        super().__init__(reading)
        self._padded = padded
        self._prefix = prefix

    def hex(self, raw: object, digits: int) -> str:
        """Read an id, as `SpanBuilder.hex` asks."""
        if not isinstance(raw, str):
            return ""
        if self._padded:
            return raw.lower().zfill(digits)
        text = self._prefix.sub("", raw, count=1)
        return hex_id(text.removeprefix("0x") if len(text) == digits + len("0x") else text)  # base64 may begin so too

    def attributes(self, pairs: Iterable[otlp.KeyValue] | None, owner: str, dropped: DroppedFields) -> dict[str, Value]:
        """Read attributes, as `SpanBuilder.attributes` asks."""
        values = cast(Mapping[str, Value], pairs or {})
        return {
            name: value if isinstance(value, str) else self._checked(value, (owner, name), dropped, 1)
            for name, value in values.items()
        }

    def value(self, value: otlp.AnyValue | None, site: Site, dropped: DroppedFields) -> Value:
        """Read a value, as `SpanBuilder.value` asks."""
        return self._checked(value, site, dropped, 1)

    def _checked(self, value: Value, site: Site, dropped: DroppedFields, depth: int) -> Value:
        """Check that the numbers in a value are finite and fit; `depth` is that of a list or dict standing here."""
        if isinstance(value, Decimal):
            value = float(value)
        if isinstance(value, float) and not math.isfinite(value):
            dropped.note(attribute_path(site), "not a finite number")
            return None
        if isinstance(value, int) and not -(2**63) <= value < 2**63:
            raise Refused("bad field", attribute_path(site), "a whole number of more than 64 bits")
        if isinstance(value, dict):
            self.check_depth(depth, site)
            items = cast(dict[str, Value], value).items()
            return {name: self._checked(item, site, dropped, depth + 1) for name, item in items}
        if isinstance(value, (list, tuple)):
            self.check_depth(depth, site)
            return [self._checked(item, site, dropped, depth + 1) for item in cast(list[Value], value)]
        return value
