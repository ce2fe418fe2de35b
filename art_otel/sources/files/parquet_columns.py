"""Which columns of a table are read: those that a format knows, so that no other one can cost a row.

Invariant: a table that is not known to hold spans is read whole, since nobody can say which of its columns matter.
"""

from typing import Final, NamedTuple


class SpanColumns(NamedTuple):
    """The columns of a table of spans: `ids` tell that it is one, `others` are read, and all that `prefix` begins."""

    ids: frozenset[str]
    others: frozenset[str]
    prefix: str | None = None


CLICKHOUSE: Final = SpanColumns(
    ids=frozenset({"TraceId", "SpanId", "SpanName"}),
    others=frozenset({"Timestamp", "ParentSpanId", "SpanKind", "ResourceAttributes", "ScopeName", "ScopeVersion"})
    | frozenset({"SpanAttributes", "Duration", "StatusCode", "StatusMessage", "Events", "Links"})
    | frozenset({"Events.Timestamp", "Events.Name", "Events.Attributes"})
    | frozenset({"Links.TraceId", "Links.SpanId", "Links.Attributes"}),
)
PHOENIX: Final = SpanColumns(
    ids=frozenset({"context.trace_id", "context.span_id"}),
    others=frozenset({"parent_id", "name", "span_kind", "start_time", "end_time"})
    | frozenset({"status_code", "status_message", "events"}),
    prefix="attributes.",
)


def read_columns(names: list[str]) -> list[str] | None:
    """Those of the columns of a table that are read; None: all of them."""
    for known in (CLICKHOUSE, PHOENIX):
        if known.ids.issubset(names):
            return [name for name in names if _is_read(name, known)]
    return None


def _is_read(name: str, known: SpanColumns) -> bool:
    return name in known.ids | known.others or (known.prefix is not None and name.startswith(known.prefix))
