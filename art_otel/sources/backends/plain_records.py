"""PlainRecords: records of stores that write ids as hex text and attributes as plain values by name.

Invariant: the checks are those of `Records`, so that a bad id, time, number or depth is quarantined in any format.
A store's own message becomes one of `otlp_messages` (with a dict where OTLP has a list of KeyValue), and then a record.
"""

import math
from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import cast

from art_otel.sources.otlp import messages as otlp
from art_otel.sources.otlp.records import Records
from art_otel.sources.refusals import Losses, Refused, Site, attribute_path
from art_otel.spans import Value


def plain(attributes: Mapping[str, Value] | None) -> list[otlp.KeyValue]:
    """Attributes as PlainRecords takes them, in the place of OTLP's."""
    return cast(list[otlp.KeyValue], attributes)


class PlainRecords(Records):
    """Records of messages whose attributes are dicts of plain values."""

    def hex(self, raw: object) -> str:
        """As `Records.hex`."""
        return raw.lower() if isinstance(raw, str) else ""

    def attributes(self, pairs: Iterable[otlp.KeyValue] | None, owner: str, losses: Losses) -> dict[str, Value]:
        """As `Records.attributes`."""
        named = cast(Mapping[str, Value], pairs or {})
        return {
            name: value if isinstance(value, str) else self._checked(value, (owner, name), losses, 1)
            for name, value in named.items()
        }

    def value(self, value: otlp.AnyValue | None, site: Site, losses: Losses) -> Value:
        """As `Records.value`."""
        return self._checked(value, site, losses, 1)

    def _checked(self, value: Value, site: Site, losses: Losses, depth: int) -> Value:
        """The value, whose numbers are finite and fit; `depth` is that of a list or dict standing here."""
        if isinstance(value, Decimal):
            value = float(value)
        if isinstance(value, float) and not math.isfinite(value):
            losses.note(attribute_path(site), "not a finite number")
            return None
        if isinstance(value, int) and not -(2**63) <= value < 2**63:
            raise Refused("bad field", attribute_path(site), "a whole number of more than 64 bits")
        if isinstance(value, dict):
            self.check_depth(depth, site)
            items = cast(dict[str, Value], value).items()
            return {name: self._checked(item, site, losses, depth + 1) for name, item in items}
        if isinstance(value, (list, tuple)):
            self.check_depth(depth, site)
            return [self._checked(item, site, losses, depth + 1) for item in cast(list[Value], value)]
        return value
