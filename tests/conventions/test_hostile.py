"""Nothing that stands in attributes, events or log records raises, and what comes out holds the record's laws."""

import json

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from art_otel.calls import InferenceCall
from art_otel.conventions import (
    agent_name,
    merge_calls,
    parse_call,
    rewards_of,
    rewards_of_log,
    role_of,
    span_env_state,
)
from art_otel.trajectories.duplicate_groups import contradicts
from tests.conventions.builders import event, log, span
from tests.conventions.recorded import MODES, calls, logs, spans
from tests.gaps import unread

NAMES = sorted(
    {
        "ai.operationId",
        "ai.prompt.messages",
        "ai.prompt.tools",
        "ai.response.text",
        "ai.response.toolCalls",
        "events",
        "gcp.vertex.agent.llm_request",
        "gcp.vertex.agent.llm_response",
        "gen_ai.conversation.id",
        "langfuse.observation.input",
        "langfuse.observation.model.parameters",
        "langfuse.observation.output",
        "langfuse.observation.type",
        "langfuse.observation.usage_details",
        "langsmith.span.kind",
        "logfire.msg_template",
        "logfire.scrubbed",
        "mastra.metadata.body",
        "mastra.model_step.input",
        "mastra.span.type",
        "mlflow.chat.tools",
        "mlflow.spanInputs",
        "mlflow.spanOutputs",
        "mlflow.spanType",
        "raw_input",
        "request_data",
        "response",
        "response_data",
        "agentlightning.link.0.key_match",
        "agentlightning.reward.0.value",
        "agentops.task.output",
        "art.env_state",
        "art.extra.x",
        "art.logprobs.completion.0",
        "art.policy.version",
        "art.request.parameters",
        "art.response.choices",
        "art.reward",
        "art.tokens.completion.0",
        "art.tokens.prompt",
        "error.type",
        "gen_ai.agent.name",
        "gen_ai.completion",
        "gen_ai.completion.0.content",
        "gen_ai.completion.0.tool_calls.0.arguments",
        "gen_ai.evaluation.score.value",
        "gen_ai.event.content",
        "gen_ai.input.messages",
        "gen_ai.is_streaming",
        "gen_ai.operation.name",
        "gen_ai.output.messages",
        "gen_ai.prompt",
        "gen_ai.prompt.0.content",
        "gen_ai.prompt.0.role",
        "gen_ai.completion.0.function_call",
        "gen_ai.request.functions.0.parameters",
        "gen_ai.request.model",
        "gen_ai.request.stop_sequences",
        "gen_ai.request.structured_output_schema",
        "gen_ai.request.temperature",
        "gen_ai.response.finish_reasons",
        "gen_ai.response.id",
        "gen_ai.system_instructions",
        "gen_ai.tool.definitions",
        "gen_ai.usage.input_tokens",
        "input.value",
        "llm.chat.stop_sequences",
        "llm.hosted_vllm.choices",
        "llm.hosted_vllm.prompt_token_ids",
        "llm.hosted_vllm.usage",
        "llm.input_messages.0.message.contents.0.message_content.image.image.url",
        "llm.input_messages.0.message.content",
        "llm.input_messages.0.message.role",
        "llm.invocation_parameters",
        "llm.output_messages.0.message.role",
        "llm.output_messages.0.message.tool_calls.0.tool_call.function.arguments",
        "llm.request.functions.0.parameters",
        "llm.request.type",
        "llm.token_count.prompt",
        "llm.tools.0.tool.json_schema",
        "openai.api.type",
        "logprobs.content",
        "openinference.span.kind",
        "output.value",
        "prompt_token_ids",
        "response_token_ids",
        "rl.reward.score",
        "content",
        "message",
        "tool_calls",
        "index",
    }
)
EVENTS = (
    "gen_ai.user.message",
    "gen_ai.tool.message",
    "gen_ai.choice",
    "gen_ai.content.prompt",
    "gen_ai.content.completion",
    "gen_ai.client.inference.operation.details",
    "gen_ai.evaluation.result",
    "exception",
)
WORDS = (
    *("role", "content", "parts", "type", "text", "tool_call", "tool_calls", "function", "arguments", "name", "id"),
    *(
        "messages",
        "model",
        "prompt",
        "input",
        "output",
        "choices",
        "message",
        "logprobs",
        "token_ids",
        "tools",
        "usage",
    ),
    *(
        "summary",
        "reasoning",
        "image_url",
        "source",
        "blob",
        "tool_result",
        "refusal",
        "system",
        "instructions",
        "status",
    ),
)

leaves = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=5)
    | st.binary(max_size=5)
    | st.sampled_from((*WORDS, "user", "assistant", "chat", "LLM", "i4:1:AAAAAA==", "data:image/png;base64,AA=="))
)
structured = st.recursive(
    leaves,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(WORDS), inner, max_size=5),
    max_leaves=15,
)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.sampled_from(WORDS),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(WORDS), inner, max_size=5),
    max_leaves=15,
)
json_texts = json_values.map(json.dumps)
cut_texts = st.builds(lambda text, length: text[:length], json_texts, st.integers(0, 40))
values = structured | json_texts | cut_texts | json_values.map(repr) | st.lists(st.integers(-1, 2**31), max_size=3)
attributes = st.dictionaries(st.sampled_from(NAMES), values, max_size=8)
spans_of_anything = st.builds(
    lambda found, events, **fields: span(found, events=[event(name, inner) for name, inner in events], **fields),
    attributes,
    st.lists(st.tuples(st.sampled_from(EVENTS), attributes), max_size=3),
    name=st.sampled_from(
        (
            *("chat", "Response", "openai.response", "raw_gen_ai_request", "agentlightning.annotation", "reward x"),
            *("Completion", "openai.completion", "openai.embeddings", ""),
        )
    ),
    status=st.sampled_from(("unset", "ok", "error")),
    dropped_attributes_count=st.integers(0, 3),
)
logs_of_anything = st.lists(st.builds(log, st.sampled_from(EVENTS), values, attributes), max_size=3)


def holds_its_laws(call):
    """It is written as JSON and read again as the same, so its values are sound; lengths and indexes agree."""
    restored = msgspec.json.decode(msgspec.json.encode(plain(call)), type=dict)
    assert restored["span_id"] == call.span_id
    indexes = [choice.index for choice in call.choices or ()]
    assert indexes == sorted(set(indexes))
    for choice in call.choices or ():
        assert choice.token_ids is None or choice.logprobs is None or len(choice.token_ids) == len(choice.logprobs)
    for message in [*(call.input_messages or ()), *(choice.message for choice in call.choices or ())]:
        assert message.parts is None or isinstance(json.loads(message.parts), list)
        hash(message.identity)


def plain(call: InferenceCall):
    found = msgspec.structs.asdict(call)
    found |= {"prompt_token_ids": list(call.prompt_token_ids or ()), "tools": list(call.tools or ())}
    found["choices"] = [
        {
            **msgspec.structs.asdict(choice),
            "token_ids": list(choice.token_ids or ()),
            "logprobs": list(choice.logprobs or ()),
        }
        for choice in call.choices or ()
    ]
    return found


@settings(deadline=None)
@given(spans_of_anything, logs_of_anything)
def test_no_content_raises(one, records):
    holds_its_laws(parse_call(one, records))
    role_of(one)
    agent_name(one)
    span_env_state(one)
    rewards_of(one)
    for record in records:
        rewards_of_log(record)


@settings(deadline=None)
@given(spans_of_anything, spans_of_anything)
def test_merging_any_two_raises_nothing_and_loses_no_completion(one, other):
    first, second = parse_call(one), parse_call(other)
    assert contradicts(first, second) == contradicts(second, first)
    merged = merge_calls([first, second])
    holds_its_laws(merged)
    known = {choice.index for call in (first, second) for choice in call.choices or ()}
    assert {choice.index for choice in merged.choices or ()} == known
    assert (merged.input_messages is None) == (first.input_messages is None and second.input_messages is None)
    filled = {gap for call in (first, second) for gap in call.gaps} - {*merged.gaps}
    assert {*merged.gaps} <= {*first.gaps, *second.gaps}
    known_fields = {"prompt": merged.input_messages, "answer": merged.choices, "tools": merged.tools}
    is_one_whole = any(not call.gaps and call.input_messages and call.choices for call in (first, second))
    assert all(is_one_whole or known_fields.get(gap.field) is not None or gap.field == "call" for gap in filled)


@settings(deadline=None)
@given(spans_of_anything, logs_of_anything)
def test_a_call_is_read_the_same_twice_and_merging_it_with_itself_changes_nothing(one, records):
    call = parse_call(one, records)
    assert parse_call(one, records) == call
    merged = merge_calls([call, call])
    assert merged == call


@settings(deadline=None)
@given(st.sampled_from(MODES), st.data())
def test_a_real_call_cut_anywhere_raises_nothing_and_names_what_was_cut(mode, data):
    """As OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT does it: text is cut, other values stay."""
    limit = data.draw(st.integers(0, 3000))
    for recorded in spans(mode, "sync_tools"):
        if role_of(recorded) == "inference":
            kept = {
                name: value[:limit] if isinstance(value, str) else value for name, value in recorded.attributes.items()
            }
            records = [record for record in logs(mode, "sync_tools") if record.key == recorded.key]
            whole = parse_call(recorded, records)
            found = parse_call(msgspec.structs.replace(recorded, attributes=kept), records)
            holds_its_laws(found)
            bodies = ("gen_ai.input.messages", "gen_ai.output.messages", "input.value", "output.value")
            cut = {name for name in bodies if 0 < limit < len(recorded.attributes.get(name, ""))}
            assert cut <= set(unread(found))
            if not cut and limit > 1000:
                assert found.choices == whole.choices


@settings(deadline=None)
@given(st.sampled_from(MODES), st.sampled_from(["sync_tools", "n2", "error_retry"]))
def test_real_calls_hold_the_laws(mode, scenario):
    for call in calls(mode, scenario):
        holds_its_laws(call)
