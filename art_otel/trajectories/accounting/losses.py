"""Losses: what quarantine took from the traces of a group.

Invariant: a span that was quarantined several times for one reason is one loss; a span that was also delivered whole is
none.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec

from art_otel.spans import Quarantined, Span, SpanKey


class Losses(msgspec.Struct, frozen=True, kw_only=True):
    """Lost spans by trace id, and by key where that is known. `values` are spans that were kept without a value."""

    spans: Mapping[str, int]
    keyed_spans: Mapping[SpanKey, int]
    values: frozenset[SpanKey]

    def of(self, spans: Sequence[Span]) -> tuple[int, int]:
        """How many spans of these spans' traces were lost, and how many of these spans lost a value."""
        if not self.spans and not self.values:
            return 0, 0
        keys = {span.key for span in spans}
        lost = sum(self.spans.get(trace_id, 0) for trace_id in {trace_id for trace_id, _ in keys})
        delivered_whole = sum(self.keyed_spans.get(key, 0) for key in keys)
        return lost - delivered_whole, len(keys & self.values)


_NO_LOSSES: Final = Losses(spans={}, keyed_spans={}, values=frozenset())


def find_losses(quarantine: Iterable[Quarantined]) -> Losses:
    """Index what was quarantined by what it took."""
    lost: set[tuple[str, str | None, str]] = set()
    values: set[SpanKey] = set()
    for entry in quarantine:
        trace_id, span_id = entry.trace_id, entry.span_id
        if trace_id is None:
            continue
        if not entry.partial:
            lost.add((trace_id, span_id, entry.reason))
        elif span_id is not None:
            values.add((trace_id, span_id))
    if not lost and not values:
        return _NO_LOSSES
    keyed = Counter((trace_id, span_id) for trace_id, span_id, _ in lost if span_id is not None)
    return Losses(spans=Counter(trace_id for trace_id, _, _ in lost), keyed_spans=keyed, values=frozenset(values))
