"""Law 5 for the spool of the receiver: reading the lines gives equal records."""

from hypothesis import given
from hypothesis import strategies as st
from msgspec.msgpack import encode

from art_otel.live.assembly import read_records
from art_otel.receiver.ingest import encode_lines
from art_otel.spans import Event, Link, LogRecord, Resource, Scope, Span
from art_otel.testing import TEXT

TRACES = [f"{number:032x}" for number in (1, 2, 3)]
TRACE, SPAN = st.sampled_from(TRACES), st.integers(1, 2**64 - 1).map("{:016x}".format)
TIME = st.integers(1, 2**63 - 1)
COUNT = st.integers(0, 2**32 - 1)
INTEGER = st.integers(-(2**63), 2**63 - 1)
FLOAT = st.floats(allow_nan=False, allow_infinity=False)
VALUE = st.recursive(
    st.none() | st.booleans() | INTEGER | FLOAT | TEXT | st.binary(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=8,
)
ATTRIBUTES = st.dictionaries(TEXT, VALUE, max_size=4)
EVENTS = st.builds(Event, name=TEXT, time_ns=TIME, attributes=ATTRIBUTES, dropped_attributes_count=COUNT)
LINKS = st.builds(Link, trace_id=TRACE, span_id=SPAN, attributes=ATTRIBUTES)
SCOPES = st.builds(Scope, name=TEXT, version=TEXT)
RESOURCES = st.builds(Resource, attributes=ATTRIBUTES)
KINDS = st.sampled_from(["unspecified", "internal", "server", "client", "producer", "consumer"])
TIMES = st.tuples(TIME, TIME).map(sorted) | TIME.map(lambda start: [start, None])


@st.composite
def records(draw) -> list[Span | LogRecord]:
    """Records of a few traces, resources and scopes, as one request has them."""
    shared = {"scope": st.sampled_from(draw(st.lists(SCOPES, min_size=1, max_size=2)))}
    shared["resource"] = st.sampled_from(draw(st.lists(RESOURCES, min_size=1, max_size=2)))
    return draw(st.lists(spans(shared) | LOG_RECORDS, max_size=6))


@st.composite
def spans(draw, shared) -> Span:
    start_ns, end_ns = draw(TIMES)
    counts = {f"dropped_{what}_count": draw(COUNT) for what in ("attributes", "events", "links")}
    return Span(
        trace_id=draw(TRACE),
        span_id=draw(SPAN),
        parent_span_id=draw(st.none() | SPAN),
        name=draw(TEXT),
        kind=draw(KINDS),
        start_ns=start_ns,
        end_ns=end_ns,
        attributes=draw(ATTRIBUTES),
        events=tuple(draw(st.lists(EVENTS, max_size=2))),
        links=tuple(draw(st.lists(LINKS, max_size=2))),
        status=draw(st.sampled_from(["unset", "ok", "error"])),
        status_message=draw(TEXT),
        **{name: draw(strategy) for name, strategy in shared.items()},
        **counts,
    )


LOG_RECORDS = st.builds(
    LogRecord,
    trace_id=TRACE,
    span_id=SPAN,
    event_name=TEXT,
    time_ns=TIME,
    body=VALUE,
    attributes=ATTRIBUTES,
    dropped_attributes_count=COUNT,
) | st.builds(LogRecord, trace_id=st.just(""), span_id=st.just(""), event_name=TEXT.filter(bool), time_ns=TIME)


@given(records())
def test_reading_the_lines_gives_equal_records(given_records):
    lines = [line.text for line in encode_lines(given_records)]
    assert all(line.endswith(b"\n") and line.count(b"\n") == 1 for line in lines)
    assert len(lines) == len({record.trace_id for record in given_records})
    read = read_records(lines)
    for trace_id in {"", *TRACES}:
        of_trace = [record for record in given_records if record.trace_id == trace_id]
        for kind in (Span, LogRecord):
            expected = [record for record in of_trace if isinstance(record, kind)]
            again = [record for record in read if record.trace_id == trace_id and isinstance(record, kind)]
            assert again == expected
            assert encode(again) == encode(expected), "they have one digest, as numbers of different types have not"
    assert len(read) == len(given_records)
