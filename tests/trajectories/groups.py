"""Groups as dumps have them: mostly spans that tell of nothing, among them some of everything that tells of a rollout.

Parents are drawn freely, so there are orphans, cycles and several roots; some spans come several times or in two forms.
"""

import msgspec
from hypothesis import strategies as st

from art_otel.spans import Event, Link, LogRecord, Quarantined, Scope, Span
from art_otel.trajectories import SpanGroup

TRACES = st.sampled_from([f"{number:032x}" for number in (1, 2)])
IDS = st.sampled_from([f"{number:016x}" for number in range(1, 9)])
NAMES = st.sampled_from(
    ["GET /", "query", "step 0", "invoke_agent a", "reward x", "rollout y", "agentlightning.reward"]
)
PLAIN = st.dictionaries(st.sampled_from(["http.method", "db.system", "art.step.index"]), st.integers(0, 2), max_size=2)
TELLING = st.fixed_dictionaries(
    {},
    optional={
        "gen_ai.operation.name": st.sampled_from(["chat", "embeddings", "fetch_response", "invoke_agent"]),
        "gen_ai.request.model": st.just("m"),
        "gen_ai.response.id": st.sampled_from(["p", "q"]),
        "openinference.span.kind": st.sampled_from(["LLM", "AGENT", "CHAIN"]),
        "art.rollout.id": st.sampled_from(["", "r", "s"]),
        "art.rollout.provisional": st.booleans(),
        "art.reward": st.sampled_from([0.5, "bad"]),
        "rl.reward.score": st.just(1.0),
        "gen_ai.evaluation.score.value": st.just(2.0),
        "gen_ai.evaluation.score.label": st.just("good"),
        "agentops.task.output": st.just('{"type": "reward", "value": 1}'),
        "reward": st.just(1.5),
    },
)
EVENTS = st.sampled_from(
    [
        Event(name="exception", time_ns=5),
        Event(name="gen_ai.evaluation.result", time_ns=6, attributes={"gen_ai.evaluation.score.value": 0.25}),
        Event(name="gen_ai.evaluation.result", time_ns=7),
    ]
)
NOTHING = st.just(())
LINKS = st.builds(Link, trace_id=TRACES, span_id=IDS)
LOGS = st.builds(
    LogRecord,
    trace_id=TRACES,
    span_id=IDS,
    event_name=st.sampled_from(["gen_ai.choice", "gen_ai.evaluation.result", "other"]),
    time_ns=st.integers(0, 9),
    attributes=st.sampled_from([{}, {"gen_ai.evaluation.score.value": 3.0}]),
)
DAMAGES = st.builds(
    Quarantined,
    reason=st.sampled_from(["bad field", "over a limit"]),
    path=st.just("in.jsonl:1"),
    trace_id=st.none() | TRACES,
    span_id=st.none() | IDS,
    partial=st.booleans(),
)


def spans(attributes=PLAIN, *, names=NAMES, tells=NOTHING):
    """Spans with such attributes; `tells` are their events."""
    return st.builds(
        Span,
        trace_id=TRACES,
        span_id=IDS,
        parent_span_id=st.none() | IDS,
        name=names,
        kind=st.sampled_from(["client", "internal"]),
        start_ns=st.integers(0, 5),
        end_ns=st.none() | st.integers(5, 9),
        attributes=attributes,
        events=tells,
        links=NOTHING | st.tuples(LINKS),
        scope=st.sampled_from([Scope(name="http"), Scope(name="opentelemetry.instrumentation.openai.v1")]),
        dropped_attributes_count=st.sampled_from([0, 0, 1]),
    )


@st.composite
def idle_groups(draw) -> SpanGroup:
    """Groups that tell of no rollout."""
    found = draw(st.lists(spans(names=st.sampled_from(["GET /", "step 0", "invoke_agent a"])), max_size=10))
    return SpanGroup(spans=[*found, *draw(st.lists(st.sampled_from(found), max_size=4) if found else st.just([]))])


@st.composite
def groups(draw) -> SpanGroup:
    """Groups of anything."""
    telling = spans(st.builds(lambda plain, more: plain | more, PLAIN, TELLING), tells=NOTHING | st.tuples(EVENTS))
    found = draw(st.lists(spans() | telling, min_size=1, max_size=10))
    again = draw(st.lists(st.sampled_from(found), max_size=4))
    poorer = [
        msgspec.structs.replace(span, attributes={}) for span in draw(st.lists(st.sampled_from(found), max_size=2))
    ]
    return SpanGroup(
        spans=draw(st.permutations([*found, *again, *poorer])),
        logs=draw(st.just([]) | st.lists(LOGS, max_size=3)),
        quarantine=draw(st.just([]) | st.lists(DAMAGES, max_size=2)),
    )
