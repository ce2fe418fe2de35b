"""Log correlation: the log records of each span.

A record belongs to the span that it names. Some name a span around the call that they are of:

    agent                      <- completion (OpenLLMetry: its own span is not current while a stream is read)
    └─ chat   ──────────       is the call that was running then, so the completion is of it

So do the two bodies of an exchange; the later one may be written when its call has just ended.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from art_otel.conventions import Role, begins_exchange, exchange_of, is_completion_event
from art_otel.spans import IntervalIndex, LogRecord, SpanKey, SpanTree


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
    calls_asking: dict[str, set[SpanKey]] = {}
    for _, log in sorted(unique.items(), key=lambda item: (item[1].time_ns, item[0])):
        key = log.key
        if key not in tree.spans:
            others.append(log)
            continue
        exchange = exchange_of(log)
        if roles[key] != "inference" and (exchange is not None or is_completion_event(log)):
            if key not in calls_below:
                calls = [tree.spans[child] for child in tree.children.get(key, ()) if roles[child] == "inference"]
                calls_below[key] = IntervalIndex((call.start_ns, call.end_ns, call.key) for call in calls)
            running = calls_below[key].only_at(log.time_ns) or key
            if exchange is None:
                key = running
            elif begins_exchange(log):
                key = running
                ends = {call: tree.spans[call].end_ns for call in calls_asking.get(exchange, ())}
                still_asking = {call for call, end_ns in ends.items() if end_ns is None or end_ns >= log.time_ns}
                calls_asking[exchange] = {key} | still_asking
            else:
                asking = calls_asking.pop(exchange, {running})
                key = next(iter(asking)) if len(asking) == 1 else key
        of_spans[key].append(log)
    return CorrelatedLogs(of_spans=dict(of_spans), others=others, duplicate=duplicate)
