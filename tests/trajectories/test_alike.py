"""A framework's instrumentor whose spans are not current, beside the client's: one call for each request."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.conversions import convert_files
from tests.dumps import Request, chat_span, make_span, request_of, write_lines
from tests.examples import examples
from tests.trajectories.test_double_recording import convert, rollout

FRAMEWORK, CLIENT = "openinference.instrumentation.langchain", "opentelemetry.instrumentation.openai.v1"


def langchain(number: int, parent: int, prompt: str, answer: str, *, response_id: str | None = None, **fields):
    """An LLM span of LangChain, as OpenInference writes it; streams have no id."""
    metadata = {} if response_id is None else {"id": response_id}
    message = {"lc": 1, "kwargs": {"content": answer, "id": "lc_run--1", "response_metadata": metadata}}
    known = {
        "openinference.span.kind": "LLM",
        "input.value": json.dumps({"messages": [[{"lc": 1, "kwargs": {"content": prompt}}]]}),
        "output.value": json.dumps({"generations": [[{"text": answer, "message": message}]], "llm_output": None}),
        "llm.invocation_parameters": '{"model": "m"}',
        "llm.input_messages.0.message.role": "user",
        "llm.input_messages.0.message.content": prompt,
        "llm.output_messages.0.message.role": "assistant",
        "llm.output_messages.0.message.content": answer,
    }
    return make_span(number, parent, name="ChatOpenAI", attributes=known, **fields)


def client(number: int, parent: int, prompt: str, answer: str | None, response_id: str | None = "r1", **fields):
    known = {} if response_id is None else {"gen_ai.response.id": response_id}
    return chat_span(number, parent, [prompt], answer, attributes=known, **fields)


def convert_all(folder, requests):
    return convert_files(folder / "out", write_lines(folder / "in.jsonl", requests))


def ran(start: int, end: int) -> dict[str, str]:
    return {"startTimeUnixNano": str(1_000_000 + start), "endTimeUnixNano": str(1_000_000 + end)}


@pytest.mark.parametrize("response_id", [None, "r1"])
@pytest.mark.parametrize("parent", [1, 3], ids=["beside", "in a chain"])
def test_the_client_s_span_is_of_the_framework_s_call(tmp_path, response_id, parent):
    (trajectory,), report = convert(
        tmp_path,
        ("app", rollout()),
        ("app", make_span(2, 1, **ran(1, 100))),
        (FRAMEWORK, make_span(3, 2, name="RunnableSequence", **ran(2, 90))),
        (FRAMEWORK, langchain(4, parent, "a", "b", response_id=response_id, **ran(3, 80))),
        (CLIENT, client(5, 1, "a", "b", **ran(4, 70))),
    )
    (call,) = trajectory.calls
    assert (call.span_id, call.response_id) == (f"{4:016x}", "r1")
    assert (len(trajectory.turns), report.spans.used, report.calls.total) == (1, 5, 1)


@st.composite
def recorded_twice(draw) -> tuple[list[Request], int]:
    """Requests at the same time with few prompts and answers, each seen by a framework and by the client below it."""
    spans = [make_span(1, name="rollout x", attributes={"art.rollout.id": "r"}, **ran(0, 100_000))]
    scopes = ["app"]
    said = draw(st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from("ab"), st.booleans()), max_size=12))
    for number, (prompt, answer, known) in enumerate(said):
        times = sorted(draw(st.lists(st.integers(1, 60), min_size=4, max_size=4, unique=True)))
        started, asked, answered, ended = times
        ids = {"response_id": f"r{number}" if known else None}
        parent = 1
        if draw(st.booleans()):
            parent = 100 + number
            spans.append(make_span(parent, 1, name="chain", **ran(started, ended)))
            scopes.append(FRAMEWORK)
        spans.append(langchain(200 + number, parent, prompt, answer, **ids, **ran(started, ended)))
        spans.append(client(300 + number, 1, prompt, answer, f"r{number}", **ran(asked, answered)))
        scopes += [FRAMEWORK, CLIENT]
    requests = [request_of(span, scope=scope) for span, scope in zip(spans, scopes, strict=True)]
    return draw(st.permutations(requests)), len(said)


@settings(max_examples=examples(150), deadline=None)
@given(recorded_twice())
def test_n_requests_recorded_twice_are_n_calls(tmp_path_factory, recorded):
    requests, count = recorded
    trajectories, _ = convert_all(tmp_path_factory.mktemp("twice"), requests)
    calls = [call for trajectory in trajectories for call in trajectory.calls]
    assert len(calls) == count
    assert {call.response_id for call in calls} == {f"r{number}" for number in range(count)}


@settings(max_examples=examples(50), deadline=None)
@given(st.integers(1, 8))
def test_equal_requests_of_one_instrumentor_stay_apart(tmp_path_factory, count):
    spans = [client(2 + number, 1, "a", "b", None, **ran(number, 90 - number)) for number in range(count)]
    requests = [request_of(rollout(), scope="app"), *(request_of(span, scope=CLIENT) for span in spans)]
    (trajectory,), _ = convert_all(tmp_path_factory.mktemp("equal"), requests)
    assert len(trajectory.calls) == count


def streamed(number: int, parent: int, prompt: str, answer: str, *, first_token: int, **fields):
    """A stream's span as LlamaIndex's instrumentor ends it: when the generator was made."""
    heard = {"name": "First Token Stream Event", "timeUnixNano": str(1_000_000 + first_token)}
    return langchain(number, parent, prompt, answer, events=[heard], **fields)


def test_an_event_after_the_end_takes_nothing_from_a_span_around_another(tmp_path):
    (trajectory,), _ = convert(
        tmp_path,
        ("app", rollout()),
        (FRAMEWORK, streamed(2, 1, "a", "b", first_token=95, **ran(3, 80))),
        (CLIENT, client(3, 1, "a", "b", **ran(4, 70))),
    )
    assert len(trajectory.calls) == 1


@st.composite
def streamed_one_after_another(draw) -> tuple[list[Request], int]:
    """Streams of few prompts and answers, each seen by a framework that ended its span early, and by the client."""
    spans = [make_span(1, name="rollout x", attributes={"art.rollout.id": "r"}, **ran(0, 100_000))]
    scopes = ["app"]
    said = draw(st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from("ab")), max_size=8))
    for number, (prompt, answer) in enumerate(said):
        times = sorted(draw(st.lists(st.integers(1, 90), min_size=5, max_size=5, unique=True)))
        made, left, asked, heard, ended = (100 * number + time for time in times)
        spans.append(streamed(200 + number, 1, prompt, answer, first_token=heard, **ran(made, left)))
        spans.append(client(300 + number, 1, prompt, answer, f"r{number}", **ran(asked, ended)))
        scopes += [FRAMEWORK, CLIENT]
    requests = [request_of(span, scope=scope) for span, scope in zip(spans, scopes, strict=True)]
    return draw(st.permutations(requests)), len(said)


@settings(max_examples=examples(100), deadline=None)
@given(streamed_one_after_another())
def test_n_streams_recorded_twice_are_n_calls(tmp_path_factory, recorded):
    requests, count = recorded
    trajectories, _ = convert_all(tmp_path_factory.mktemp("streamed"), requests)
    calls = [call for trajectory in trajectories for call in trajectory.calls]
    assert [call.response_id for call in calls] == [f"r{number}" for number in range(count)]
