"""An incomplete trajectory says what is missing and how much of it."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from art_otel.calls import Choice, Message
from art_otel.spans import Quarantined, Resource, Span
from art_otel.testing import SpanBuilder
from art_otel.trajectories import SpanGroup, build_trajectories
from art_otel.trajectories.wholeness import find_losses
from tests.conversions import convert_files, convert_spans
from tests.dumps import chat_span, make_span, request_of, write_lines


def rollout(**attributes):
    return make_span(1, name="rollout x", attributes={"art.rollout.id": "r", **attributes})


def reasons(tmp_path, *spans) -> dict[str, int]:
    (trajectory,), report = convert_spans(tmp_path, *spans)
    assert report.trajectories.incomplete == dict.fromkeys(trajectory.incomplete_reasons, 1)
    return dict(trajectory.incomplete_reasons)


@pytest.mark.parametrize(
    ("name", "kind", "attributes", "is_missed"),
    [
        ("Session.updatePart", 1, {}, False),
        ("sql.execute", 3, {"db.system.name": "sqlite"}, False),
        ("POST", 3, {"http.request.method": "POST"}, True),
        ("execute_tool ls", 1, {"gen_ai.operation.name": "execute_tool"}, True),
        ("step", 1, {"art.step.index": 1}, True),
    ],
)
def test_a_missing_parent_counts_where_it_may_have_been_a_call_or_above_one(
    name, kind, attributes, is_missed, tmp_path
):
    """opencode loses parents of its own spans; what is left of a lost call may be a request without its parent."""
    lone = make_span(3, 99, name=name, kind=kind, attributes=attributes)
    below = make_span(4, 3, name="more")
    spans = [make_span(1, name="session"), chat_span(2, 1, ["a"], "b"), lone, below]
    assert reasons(tmp_path / "a", *spans) == ({"missing parent": 1} if is_missed else {})
    calling = chat_span(5, 4, ["c"], "d")
    assert reasons(tmp_path / "b", *spans, calling) == {"missing parent": 1}


@pytest.mark.parametrize("server", ["app", "model server"])
def test_a_request_to_the_process_of_the_calls_was_no_call(server, tmp_path):
    agent = request_of(make_span(1, name="session"), chat_span(2, 1, ["a"], "b"), resource={"service.name": "app"})
    served = request_of(make_span(3, 99, name="POST", kind=2), resource={"service.name": server})
    (trajectory,), _ = convert_files(tmp_path / "out", write_lines(tmp_path / "a.jsonl", [agent, served]))
    assert trajectory.incomplete_reasons == ({} if server == "app" else {"missing parent": 1})


def test_dropped_attributes(tmp_path):
    call = chat_span(2, 1, ["a"], "b", droppedAttributesCount=9)
    root = {**rollout(), "droppedAttributesCount": 2, "droppedEventsCount": 4}
    other = make_span(3, 1, name="http", droppedAttributesCount=50)
    assert reasons(tmp_path, root, call, other) == {
        "attributes dropped": 1,
        "rollout attributes dropped": 1,
        "events dropped": 4,
    }


def test_cut_json(tmp_path):
    whole = json.dumps([{"role": "user", "parts": [{"type": "text", "content": "a" * 100}]}])
    cut = chat_span(2, 1, ["a"], "b", attributes={"gen_ai.input.messages": whole[:50]})
    found = reasons(tmp_path, rollout(), cut)
    assert found == {"content cut": 1}


@pytest.mark.parametrize("answer", [None, "b"])
def test_no_content(tmp_path, answer):
    call = chat_span(2, 1, ["a"], answer)
    call["attributes"] = [pair for pair in call["attributes"] if pair["key"] != "gen_ai.input.messages"]
    (trajectory,), report = convert_spans(tmp_path, rollout(), call)
    assert trajectory.incomplete_reasons == {"no content": 1}
    assert trajectory.calls[0].input_messages is None
    assert (trajectory.calls[0].choices is None) == (answer is None)
    assert bool(report.hints) == (answer is None)


def test_content_capture_off_is_explained_with_the_switch(tmp_path):
    call = make_span(2, 1, kind=3, attributes={"gen_ai.operation.name": "chat", "gen_ai.request.model": "m"})
    scope = "opentelemetry.instrumentation.genai.openai"
    dump = write_lines(tmp_path / "in.jsonl", [request_of(rollout(), scope="app"), request_of(call, scope=scope)])
    _, report = convert_files(tmp_path / "out", dump)
    (hint,) = report.hints
    assert scope in hint
    assert "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT" in hint


@pytest.mark.parametrize(("started", "ended", "missing"), [(2, 2, 1), (1, 1, 0), (3, 1, 2), ("?", 1, 0), ("3", "1", 2)])
def test_fewer_spans_than_the_certificate_says(tmp_path, started, ended, missing):
    certificate = {"art.rollout.spans.started": started, "art.rollout.spans.ended": ended}
    found = reasons(tmp_path, rollout(**certificate), chat_span(2, 1, ["a"], "b"))
    assert found == ({"spans missing": missing} if missing else {})


def test_calls_are_missed_of_the_gateway_that_began_them():
    builder = SpanBuilder()
    root = builder.rollout("r", attributes={"art.rollout.calls.one": 2, "art.rollout.calls.two": "3"})
    gateways = [Resource(attributes={"service.instance.id": name}) for name in ("one", "two")]
    calls = [structs.replace(builder.span("chat", parent=root), resource=gateways[of]) for of in (0, 0, 0, 1)]
    unknown = [structs.replace(builder.span("chat", parent=root), resource=Resource()) for _ in range(2)]
    (lost,) = build_trajectories(SpanGroup(spans=[root, *calls])).trajectories
    (whole,) = build_trajectories(SpanGroup(spans=[root, *calls, *unknown])).trajectories
    assert (lost.incomplete_reasons, whole.incomplete_reasons) == ({"spans missing": 2}, {})
    assert whole.metadata == {}


def test_a_linked_reward_from_elsewhere_is_no_span_of_the_certificate(tmp_path):
    certificate = {"art.rollout.spans.started": 2, "art.rollout.spans.ended": 2}
    links = [{"traceId": f"{1:032x}", "spanId": f"{1:016x}"}]
    late = make_span(9, trace=2, name="reward x", links=links, attributes={"art.reward": 1.0})
    assert reasons(tmp_path, rollout(**certificate), chat_span(2, 1, ["a"], "b"), late) == {"spans missing": 1}


LITELLM = {"gen_ai.operation.name": "chat", "gen_ai.request.model": "m"}
ASKED = {"gen_ai.input.messages": json.dumps([{"role": "user", "parts": [{"type": "text", "content": "a"}]}])}


@pytest.mark.parametrize(
    ("written", "missing"),
    [
        ({"gen_ai.response.id": "r1"}, {}),
        ({"gen_ai.response.id": "r2"}, {"call overwritten": 1}),
        (ASKED, {}),
        ({"gen_ai.input.messages": ASKED["gen_ai.input.messages"].replace('"a"', '"c"')}, {"call overwritten": 1}),
    ],
    ids=["of the call below", "of none", "asked as the call below", "asked otherwise"],
)
@pytest.mark.parametrize("ours", [{"art.rollout.name": "x"}, {"art.rollout.name": "x", "art.step.index": 1}])
def test_a_call_that_was_written_on_our_own_span(tmp_path, ours, written, missing):
    root = rollout(**ours, **LITELLM, **written)
    call = chat_span(2, 1, ["a"], "b", attributes={"gen_ai.response.id": "r1"})
    requests = [request_of(root, scope="art_otel"), request_of(call, scope="client")]
    (trajectory,), report = convert_files(tmp_path / "out", write_lines(tmp_path / "in.jsonl", requests))
    assert trajectory.incomplete_reasons == missing
    assert [found.span_id for found in trajectory.calls] == [f"{2:016x}"]
    assert report.calls.total == 1


def test_a_call_whose_own_input_nobody_recorded_has_an_unknown_history_too():
    builder = SpanBuilder()
    root = builder.rollout("r")
    sampled = [Choice(index=0, message=Message(role="assistant", content="yes"), finish_reason="stop")]
    first = builder.chat(root, [Message(role="user", content="hi")], sampled)
    earlier = first.attributes["gen_ai.response.id"]
    blind = {"art.request.parameters": json.dumps({"model": "m", "previous_response_id": earlier})}
    second = builder.chat(root, [], sampled, attributes=blind)
    del second.attributes["gen_ai.input.messages"]
    (found,) = build_trajectories(SpanGroup(spans=(root, first, second))).trajectories
    assert (found.calls[1].prompt_node, found.incomplete_reasons) == (None, {"unknown history": 1})


def test_a_lost_span_is_missing_in_every_rollout_of_its_trace_but_one_that_has_it_whole(tmp_path):
    first = make_span(1, name="rollout a", attributes={"art.rollout.id": "a"})
    second = make_span(2, name="rollout b", attributes={"art.rollout.id": "b"})
    whole = make_span(3, 1)
    bad = {"startTimeUnixNano": "9", "endTimeUnixNano": "1"}
    lost = [{**whole, **bad}, make_span(4, 1, **bad), make_span(5, 2, trace=2, **bad)]
    trajectories, _ = convert_spans(tmp_path, first, second, whole, *lost)
    assert [trajectory.incomplete_reasons for trajectory in trajectories] == [
        {"span quarantined": 1},
        {"span quarantined": 2},
    ]


KEYS = [(trace, span) for trace in "tu" for span in "123"]
TAKEN = st.builds(
    Quarantined,
    reason=st.sampled_from(["bad field", "over a limit"]),
    path=st.just("in.jsonl:1"),
    trace_id=st.sampled_from([None, "t", "u"]),
    span_id=st.sampled_from([None, "1", "2", "3"]),
    partial=st.booleans(),
)


@given(st.lists(TAKEN, max_size=12), st.sets(st.sampled_from(KEYS), min_size=1))
def test_losses_are_counted_once_by_reason_and_span(damages, keys):
    spans = [Span(trace_id=trace, span_id=span, name="x", start_ns=1, end_ns=2) for trace, span in keys]
    traces = {trace for trace, _ in keys}
    lost = {
        (damage.trace_id, damage.span_id, damage.reason)
        for damage in damages
        if not damage.partial and damage.trace_id in traces and (damage.trace_id, damage.span_id) not in keys
    }
    values = {(damage.trace_id, damage.span_id) for damage in damages if damage.partial} & keys
    assert find_losses(damages).of(spans) == (len(lost), len(values))


def test_what_another_service_adds_stands_for_no_lost_span():
    agent, tools = (Resource(attributes={"service.name": name}) for name in ("agent", "tools"))
    builder = SpanBuilder()
    root = builder.rollout("r")
    root = structs.replace(root, resource=agent, attributes={**root.attributes, "art.rollout.spans.started": 3})
    local = [structs.replace(builder.span(f"local {number}", parent=root), resource=agent) for number in range(3)]
    remote = [structs.replace(builder.span(f"remote {number}", parent=local[0]), resource=tools) for number in range(2)]
    (whole,) = build_trajectories(SpanGroup(spans=[root, *local, *remote])).trajectories
    (lost,) = build_trajectories(SpanGroup(spans=[root, local[0], *remote])).trajectories
    assert (whole.incomplete_reasons, lost.incomplete_reasons) == ({}, {"spans missing": 2})


def test_a_store_that_keeps_only_some_of_a_resource_makes_no_other_process_of_it():
    builder = SpanBuilder()
    root = builder.rollout("r")
    whole = Resource(attributes={"service.name": "agent", "process.pid": 7})
    root = structs.replace(root, resource=whole, attributes={**root.attributes, "art.rollout.spans.started": 1})
    span = structs.replace(builder.span("local", parent=root), resource=Resource(attributes={"service.name": "agent"}))
    (found,) = build_trajectories(SpanGroup(spans=[root, span])).trajectories
    assert found.complete
