"""MLflow's JSON types as msgspec decodes them: every field that we read of a trace and its spans.

Invariant: a Span has the fields of MLflow 3, also when MLflow 2 wrote it.

Source of the format: `mlflow/entities/span.py`, `link.py` and `trace.py` of MLflow 3, where `from_dict_v2` tells what
MLflow 2 wrote.
"""

import msgspec

from art_otel.spans import Value


class Event(msgspec.Struct):
    """A moment in a span. `timestamp` is its time in MLflow 2."""

    name: str | None = None
    time_unix_nano: int | None = None
    timestamp: int | None = None
    attributes: dict[str, Value] | None = None


class Link(msgspec.Struct):
    """A pointer to a span of any trace."""

    trace_id: str | None = None
    span_id: str | None = None
    attributes: dict[str, Value] | None = None


class Status(msgspec.Struct):
    """How an operation ended."""

    code: str | int | None = None
    message: str | None = None


class Context(msgspec.Struct):
    """The ids of a span in MLflow 2."""

    trace_id: str | None = None
    span_id: str | None = None


class Span(msgspec.Struct):
    """An operation, with the tags of its trace. Only MLflow 2 writes `context` and what follows it."""

    trace_id: str | None = None
    otel_trace_id: str | None = None
    span_id: str | None = None
    parent_span_id: str | None = None
    name: str | None = None
    start_time_unix_nano: int | None = None
    end_time_unix_nano: int | None = None
    attributes: dict[str, Value] | None = None
    events: list[Event] | None = None
    links: list[Link] | None = None
    status: Status | None = None
    tags: dict[str, Value] = {}
    context: Context | None = None
    parent_id: str | None = None
    start_time: int | None = None
    end_time: int | None = None
    status_code: str | int | None = None
    status_message: str | None = None

    def __post_init__(self) -> None:
        if self.context is None:
            return
        self.trace_id, self.span_id = self.context.trace_id, self.context.span_id
        self.parent_span_id = self.parent_id
        self.start_time_unix_nano, self.end_time_unix_nano = self.start_time, self.end_time
        self.status = Status(code=self.status_code, message=self.status_message)


class Data(msgspec.Struct):
    """The spans of a trace, not decoded."""

    spans: list[dict[str, Value]]


class Trace(msgspec.Struct):
    """A trace without its info."""

    data: Data
