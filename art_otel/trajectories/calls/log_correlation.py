"""JoinedLogs: the log records of each span, each once and in the order of their time.

Invariant: a record belongs to the span it names. A completion that names a span which is no LLM call belongs to the
call below that span that was running: OpenLLMetry writes the completion of a stream when its own span is not current.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping

import msgspec

from art_otel.conventions import Role, is_completion_event
from art_otel.spans import LogRecord, SpanKey, SpanTree
from art_otel.spans.clock_skew import IntervalIndex
from art_otel.trajectories.accounting.stats import Account


def join_logs(
    logs: Iterable[LogRecord], tree: SpanTree, roles: Mapping[SpanKey, Role], account: Account
) -> dict[SpanKey, list[LogRecord]]:
    """Lead each log record to its span and count where they went."""
    unique: dict[bytes, LogRecord] = {}
    for log in logs:
        encoded = msgspec.msgpack.encode(log, order="deterministic")
        account.logs_duplicate += encoded in unique
        unique[encoded] = log
    if not unique:
        return {}
    joined: dict[SpanKey, list[LogRecord]] = defaultdict(list)
    calls_below: dict[SpanKey, IntervalIndex[SpanKey]] = {}
    for _, log in sorted(unique.items(), key=lambda item: (item[1].time_ns, item[0])):
        key = log.key
        if key not in tree.spans:
            account.logs_without_span += 1
            continue
        account.logs_joined += 1
        if roles[key] != "inference" and is_completion_event(log):
            if key not in calls_below:
                calls_below[key] = _calls_below(key, tree, roles)
            key = calls_below[key].only_at(log.time_ns) or key
        joined[key].append(log)
    return joined


def _calls_below(key: SpanKey, tree: SpanTree, roles: Mapping[SpanKey, Role]) -> IntervalIndex[SpanKey]:
    children = (tree.spans[child] for child in tree.children.get(key, ()) if roles[child] == "inference")
    return IntervalIndex((span.start_ns, span.end_ns, span.key) for span in children)
