"""JoinedLogs: the log records of each span, each once and in the order of their time.

Invariant: a record belongs to the span it names. A completion that names a span which is no LLM call belongs to the
call below that span that was running: OpenLLMetry writes the completion of a stream when its own span is not current.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from art_otel.conventions import Role, tells_completion
from art_otel.spans import LogRecord, SpanKey, SpanTree
from art_otel.trajectories.account import Account


def join_logs(
    logs: Iterable[LogRecord], tree: SpanTree, roles: Mapping[SpanKey, Role], account: Account
) -> dict[SpanKey, list[LogRecord]]:
    """Lead each log record to its span and count where they went."""
    unique: dict[bytes, LogRecord] = {}
    for log in logs:
        encoded = msgspec.msgpack.encode(log, order="deterministic")
        account.logs_duplicate += encoded in unique
        unique[encoded] = log
    joined: dict[SpanKey, list[LogRecord]] = defaultdict(list)
    for _, log in sorted(unique.items(), key=lambda item: (item[1].time_ns, item[0])):
        if log.key in tree.spans:
            joined[_home(log, tree, roles)].append(log)
            account.logs_joined += 1
        else:
            account.logs_without_span += 1
    return joined


def _home(log: LogRecord, tree: SpanTree, roles: Mapping[SpanKey, Role]) -> SpanKey:
    if roles[log.key] == "inference" or not tells_completion(log):
        return log.key
    running = [key for key in _calls_below(log.key, tree, roles) if _ran(key, log.time_ns, tree)]
    return running[0] if len(running) == 1 else log.key


def _calls_below(key: SpanKey, tree: SpanTree, roles: Mapping[SpanKey, Role]) -> Sequence[SpanKey]:
    return [child for child in tree.children.get(key, ()) if roles[child] == "inference"]


def _ran(key: SpanKey, moment: int, tree: SpanTree) -> bool:
    span = tree.spans[key]
    return span.start_ns <= moment and (span.end_ns is None or moment <= span.end_ns)
