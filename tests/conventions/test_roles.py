"""What a span stands for, and what it says beside the call itself."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from art_otel.conventions import (
    agent_name,
    families_of,
    has_call_attributes,
    role_of,
    roles,
    span_env_state,
    span_extra,
)
from art_otel.conventions.dialects import art, litellm
from art_otel.tracing.api.context import SCOPE
from tests.conventions.builders import call, event, span
from tests.conversions import convert_files


@pytest.mark.parametrize(
    ("attributes", "role"),
    [
        ({"gen_ai.operation.name": "chat"}, "inference"),
        ({"gen_ai.operation.name": "text_completion"}, "inference"),
        ({"gen_ai.operation.name": "generate_content"}, "inference"),
        ({"gen_ai.operation.name": "completion"}, "inference"),
        ({"gen_ai.operation.name": "embeddings"}, "embeddings"),
        ({"gen_ai.operation.name": "fetch_response"}, "retrieval"),
        ({"gen_ai.operation.name": "invoke_agent", "gen_ai.request.model": "m"}, "agent"),
        ({"gen_ai.operation.name": "execute_tool"}, "tool"),
        ({"gen_ai.operation.name": "rerank", "gen_ai.request.model": "m"}, "other"),
        ({"openinference.span.kind": "LLM"}, "inference"),
        ({"openinference.span.kind": "AGENT"}, "agent"),
        ({"openinference.span.kind": "TOOL"}, "tool"),
        ({"openinference.span.kind": "EMBEDDING"}, "embeddings"),
        ({"openinference.span.kind": "RETRIEVER"}, "other"),
        ({"openinference.span.kind": "CHAIN"}, "other"),
        ({"openinference.span.kind": "RERANKER"}, "other"),
        ({"openinference.span.kind": "LLM", "input.value": "{}"}, "retrieval"),
        ({"openinference.span.kind": "UNKNOWN"}, "other"),
        ({"openinference.span.kind": "unknown", "llm.request.type": "chat"}, "inference"),
        ({"openinference.span.kind": "UNKNOWN", "traceloop.span.kind": "tool"}, "tool"),
        ({"openinference.span.kind": "UNKNOWN", "gen_ai.system": "openai"}, "inference"),
        ({"llm.request.type": "chat"}, "inference"),
        ({"llm.request.type": "completion"}, "inference"),
        ({"llm.request.type": "embedding"}, "embeddings"),
        ({"llm.request.type": "rerank", "gen_ai.request.model": "m"}, "other"),
        ({"traceloop.span.kind": "agent"}, "agent"),
        ({"traceloop.span.kind": "tool"}, "tool"),
        ({"traceloop.span.kind": "workflow"}, "other"),
        ({"gen_ai.request.model": "m"}, "inference"),
        ({"gen_ai.provider.name": "openai"}, "inference"),
        ({"gen_ai.system": "openai"}, "inference"),
        ({"gen_ai.operation.name": "chat", "gen_ai.input.messages": "[]"}, "retrieval"),
        ({"gen_ai.operation.name": "chat", "gen_ai.request.model": "m", "gen_ai.input.messages": "[]"}, "inference"),
        ({"gen_ai.operation.name": 5}, "other"),
        ({}, "other"),
    ],
)
def test_roles(attributes, role):
    assert role_of(span(attributes)) == role


SELF_TRACED = {"gen_ai.operation.name": "chat", "gen_ai.request.model": "m", "gen_ai.response.id": "r"}


@pytest.mark.parametrize("content", ["gen_ai.input.messages", "gen_ai.output.messages", "art.request.messages"])
def test_a_call_that_its_client_traced_alone_and_without_content_is_no_rollout(content):
    scope = "com.anthropic.sdk.python"
    assert role_of(span(SELF_TRACED, scope=scope)) == "uncaptured"
    assert role_of(span({**SELF_TRACED, content: "x"}, scope=scope)) == "inference"
    assert role_of(span(SELF_TRACED, scope=scope, parent_span_id="3" * 16)) == "inference"
    assert role_of(span(SELF_TRACED)) == "inference"


def test_an_app_that_records_nothing_else_is_told_what_to_set(tmp_path):
    recording = (Path(__file__).parent.parent / "dialects" / "langgraph_oi_anthropic.jsonl").read_text()
    alone = tmp_path / "alone.jsonl"
    alone.write_text(next(line for line in recording.splitlines() if "com.anthropic.sdk.python" in line))
    trajectories, report = convert_files(tmp_path, alone)
    assert not trajectories
    assert report.spans.ignored == {"call without content, alone in its trace": 1}
    assert "ANTHROPIC_OPEN_TELEMETRY_TRACES_CONTENT_MODE=content" in report.hints[0]


LITELLM = {"gen_ai.operation.name": "chat", "gen_ai.request.model": "m", "gen_ai.response.id": "r"}


@pytest.mark.parametrize("ours", [{"art.rollout.name": "x"}, {"art.step.index": 1}])
def test_our_own_span_of_a_rollout_or_step_is_no_call_whatever_stands_on_it(ours):
    written_on = span({**LITELLM, **ours}, scope="art_otel", kind="internal")
    assert role_of(written_on) == "other"
    assert has_call_attributes(written_on)
    assert not has_call_attributes(span(ours, scope="art_otel"))
    assert role_of(span({**LITELLM, **ours}, scope="app")) == "inference"
    assert not has_call_attributes(span({**LITELLM, **ours}, scope="app"))


def test_our_scope_is_that_of_our_tracer():
    assert art.ART_OTEL == SCOPE


def test_a_call_that_is_ours_because_its_instrumentor_lost_it_is_a_call():
    assert role_of(span(LITELLM, scope="art_otel")) == "inference"


def test_a_span_that_gives_back_a_request_only_prepares_it():
    prepared = {"openinference.span.kind": "LLM", "output.value": '{"messages": ["ChatMessage()"], "tools": []}'}
    assert role_of(span(prepared)) == "other"
    assert role_of(span({**prepared, "llm.output_messages.0.message.role": "assistant"})) == "inference"
    assert role_of(span({**prepared, "llm.token_count.total": 3})) == "inference"
    assert role_of(span({**prepared, "output.value": '{"choices": []}'})) == "inference"


LEFT = [
    "gen_ai.prompt.7.content",
    "gen_ai.completion.0.content",
    "gen_ai.input.messages",
    "gen_ai.output.messages",
    "llm.input_messages.3.message.role",
    "llm.output_messages.0.message.role",
    "gen_ai.usage.output_tokens",
    "llm.usage.total_tokens",
    "gen_ai.response.model",
]


@pytest.mark.parametrize("name", LEFT)
def test_a_request_is_known_by_what_the_limit_left(name):
    openai = "openinference.instrumentation.openai"
    assert role_of(span({name: "x"}, name="openai.chat")) == "inference"
    assert role_of(span({name: "x"}, name="ask")) == "inference"
    assert role_of(span({name: "x"}, name="ChatCompletion", kind="internal", scope=openai)) == "inference"
    assert role_of(span({name: "x"}, name="openai.chat", kind="server")) == "other"
    assert role_of(span({name: "x"}, name="ask", kind="internal")) == "other"


@pytest.mark.parametrize("name", LEFT)
@pytest.mark.parametrize(
    ("span_name", "role"),
    [
        ("openai.embeddings", "embeddings"),
        ("embeddings text-embedding-3", "embeddings"),
        ("CreateEmbeddings", "embeddings"),
        ("invoke_agent", "agent"),
        ("execute_tool search", "tool"),
        ("cohere.rerank", "other"),
    ],
)
def test_a_span_name_outlives_the_limit(name, span_name, role):
    assert role_of(span({name: "x"}, name=span_name)) == role
    assert role_of(span({name: "x", "gen_ai.request.model": "m"}, name=span_name)) == role


def test_an_agent_or_a_prompt_of_a_server_is_no_request():
    assert role_of(span({"gen_ai.agent.name": "a", "gen_ai.usage.input_tokens": 1}, name="planner")) == "other"
    assert role_of(span({"gen_ai.agent.name": "a", "gen_ai.usage.input_tokens": 1}, name="chat m")) == "inference"
    assert role_of(span({"gen_ai.prompt.name": "summarise"}, name="prompts/get summarise")) == "other"


@pytest.mark.parametrize(
    ("name", "scope", "dropped", "role"),
    [
        ("openai.chat", "opentelemetry.instrumentation.openai.v1", 1, "inference"),
        ("chat m", "opentelemetry.instrumentation.genai.openai", 1, "inference"),
        ("anthropic.completion", "opentelemetry.instrumentation.anthropic", 1, "inference"),
        ("ChatCompletion", "openinference.instrumentation.openai", 1, "inference"),
        ("openai.embeddings", "opentelemetry.instrumentation.openai.v1", 1, "embeddings"),
        ("openai.chat", "opentelemetry.instrumentation.openai.v1", 0, "other"),
        ("POST", "opentelemetry.instrumentation.openai.v1", 1, "other"),
        ("openai.chat", "app", 1, "other"),
        ("response", "openinference.instrumentation.openai_agents", 1, "other"),
        ("", "opentelemetry.instrumentation.openai.v1", 1, "other"),
    ],
)
def test_a_request_that_lost_everything_is_known_by_its_instrumentor_and_name(name, scope, dropped, role):
    kind = "internal" if scope.startswith("openinference") else "client"
    assert role_of(span({"k": "v"}, name=name, scope=scope, kind=kind, dropped_attributes_count=dropped)) == role


@pytest.mark.parametrize("kind", ["client", "unspecified"])
def test_a_reward_for_a_response_is_no_request_whatever_its_kind(kind):
    """Spans that are written by hand have no kind, and some stores lose it."""
    judged = {"gen_ai.response.id": "r", "art.reward": 1.0}
    assert role_of(span(judged, name="reward judge", kind=kind)) == "other"
    assert role_of(span({**judged, "gen_ai.request.model": "m"}, name="chat m", kind=kind)) == "inference"


def test_a_servers_own_span_is_other():
    attributes = {"gen_ai.usage.prompt_tokens": 5, "gen_ai.request.id": "r", "gen_ai.response.model": "m"}
    assert role_of(span(attributes, name="llm_request", kind="server")) == "other"
    assert role_of(span({"gen_ai.request.model": "m"}, kind="internal")) == "other"


@pytest.mark.parametrize("name", ["messages.count_tokens", "beta.messages.count_tokens"])
def test_a_count_of_a_prompts_tokens_is_no_call(name):
    said = {"openinference.span.kind": "LLM", "input.value": '{"messages": []}', "llm.token_count.prompt": 9}
    assert role_of(span(said, name=name)) == "other"


def test_litellms_raw_child_is_a_call_only_with_content():
    raw = {"gen_ai.request.model": "m", "llm.openai.messages": "[{'role': 'user'}]"}
    assert role_of(span(raw, name="raw_gen_ai_request", kind="internal")) == "other"
    raw["gen_ai.prompt.0.content"] = "q"
    assert role_of(span(raw, name="raw_gen_ai_request", kind="internal")) == "inference"


@pytest.mark.parametrize(
    ("name", "attributes", "agent"),
    [
        ("invoke_agent planner", {}, "planner"),
        ("invoke_agent planner", {"gen_ai.agent.name": "p"}, "p"),
        ("run", {"agent.name": "p"}, "p"),
        ("invoke_agent ", {}, None),
        ("run", {}, None),
    ],
)
def test_agent_names(name, attributes, agent):
    assert agent_name(span(attributes, name=name)) == agent


def test_a_span_named_as_an_agents_is_an_agents():
    assert role_of(span(name="invoke_agent planner", kind="internal")) == "agent"


def test_env_state_and_extra():
    attributes = {
        "art.env_state": '{"board": [1], "turn": 1}',
        "art.env_state.turn": 2,
        "art.env_state.note": "x",
        "art.extra": "not an object",
        "art.extra.sampler": '{"top": 1}',
    }
    one = span(attributes)
    assert span_env_state(one) == {"board": [1], "turn": 2, "note": "x"}
    assert span_extra(one) == {"sampler": {"top": 1}}
    assert (call(attributes).env_state, call(attributes).extra) == (span_env_state(one), span_extra(one))
    assert span_env_state(span({"art.env_state": '{"board": [1'})) == {}


def test_failures():
    raised = event("exception", {"exception.type": "ValueError", "exception.message": "bad"})
    assert (call({}, events=[raised]).error_type, call({}, events=[raised]).failed) == (None, False)
    found = call({}, events=[raised], status="error")
    assert (found.error_type, found.error) == ("ValueError", "bad")
    found = call({"error.type": "timeout"})
    assert (found.error_type, found.error, found.failed) == ("timeout", None, True)
    assert call({}, status="error").failed


NAMED = st.dictionaries(
    st.sampled_from(
        [
            *("gen_ai.operation.name", "gen_ai.request.model", "gen_ai.system", "gen_ai.provider.name"),
            *("gen_ai.input.messages", "gen_ai.completion.0.content", "gen_ai.response.id", "gen_ai.agent.name"),
            *("openinference.span.kind", "traceloop.span.kind", "llm.request.type", "llm.token_count.total"),
            *("agent.name", "http.method", "input.value", "xgen_ai.system", ""),
        ]
    ),
    st.sampled_from(["chat", "LLM", "tool", "", 3]),
    max_size=3,
)
NAMES = st.sampled_from(["chat m", "GET /", "openai.chat", "invoke_agent x", "invoke_agent", litellm.RAW_SPAN])
SCOPES = st.sampled_from(["http", "opentelemetry.instrumentation.openai.v1"])
KINDS = st.sampled_from(["client", "internal", "unspecified"])


@given(NAMED, NAMES, SCOPES, KINDS, st.integers(0, 1))
def test_an_unmarked_span_has_no_role_by_any_convention(attributes, name, scope, kind, dropped):
    plain = span(attributes, name=name, scope=scope, kind=kind, dropped_attributes_count=dropped)
    families = families_of(attributes)
    if roles._is_unmarked(plain, families):
        assert roles._named_role(plain, families) == "other"
    assert (role_of(plain) == "other") or not roles._is_unmarked(plain, families)
