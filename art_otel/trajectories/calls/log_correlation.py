"""LogCorrelation: the log records of each span, each once and in the order of their time.

Invariant: a record belongs to the span it names. A completion that names a span which is no LLM call belongs to the
call below that span that was running: OpenLLMetry writes the completion of a stream when its own span is not current.
So do the bodies of an exchange, the later of which may be written when its call has just ended.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from art_otel.conventions import Role, exchange_of, is_completion_event
from art_otel.spans import LogRecord, SpanKey, SpanTree
from art_otel.spans.tree import IntervalIndex


class CorrelatedLogs(msgspec.Struct, frozen=True, kw_only=True):
    """The log records of each span, and the `others`, whose span is not here. `duplicate` counts equal ones."""

    of_spans: Mapping[SpanKey, list[LogRecord]] = {}
    others: Sequence[LogRecord] = ()
    duplicate: int = 0

    @property
    def joined(self) -> int:
        """How many records reached a span."""
        return sum(map(len, self.of_spans.values()))


def correlate_logs(logs: Iterable[LogRecord], tree: SpanTree, roles: Mapping[SpanKey, Role]) -> CorrelatedLogs:
    """Find the span of each log record."""
    unique: dict[bytes, LogRecord] = {}
    duplicate = 0
    for log in logs:
        encoded = msgspec.msgpack.encode(log, order="deterministic")
        duplicate += encoded in unique
        unique[encoded] = log
    if not unique:
        return CorrelatedLogs()
    of_spans: dict[SpanKey, list[LogRecord]] = defaultdict(list)
    others: list[LogRecord] = []
    calls_below: dict[SpanKey, IntervalIndex[SpanKey]] = {}
    call_of_exchange: dict[str | None, SpanKey] = {}
    for _, log in sorted(unique.items(), key=lambda item: (item[1].time_ns, item[0])):
        key = log.key
        if key not in tree.spans:
            others.append(log)
            continue
        exchange = exchange_of(log)
        if roles[key] != "inference" and (exchange is not None or is_completion_event(log)):
            if key not in calls_below:
                calls_below[key] = _calls_below(key, tree, roles)
            key = call_of_exchange.get(exchange) or calls_below[key].only_at(log.time_ns) or key
            if exchange is not None:
                call_of_exchange[exchange] = key
        of_spans[key].append(log)
    return CorrelatedLogs(of_spans=dict(of_spans), others=others, duplicate=duplicate)


def _calls_below(key: SpanKey, tree: SpanTree, roles: Mapping[SpanKey, Role]) -> IntervalIndex[SpanKey]:
    children = (tree.spans[child] for child in tree.children.get(key, ()) if roles[child] == "inference")
    return IntervalIndex((span.start_ns, span.end_ns, span.key) for span in children)
