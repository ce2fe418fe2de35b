"""Conventions: a span and its log records -> InferenceCall. The only package with third-party attribute names.

How a span becomes a call:
1. `roles`: role_of(span) says what the span represents. Only one with the role "inference" is a call.
2. `dialects/`: each convention that instrumentors record calls in (GenAI, OpenInference, OpenLLMetry, …) has a module,
   its dialect. `dialects.DIALECTS` lists them, the most trusted first. A dialect whose `matches(names)` is true reads
   the span; `names` are those of the span's attributes.
3. `facts`: every dialect gives CallFacts, the fields of a call that it recorded. merge_facts merges two: when
   both have a field, the more trusted dialect wins.
4. `call`: parse_call does 2 and 3 and adds what is on every span: times, failure, finish reasons.

What dialects share: `attributes/` reads values of attributes and names in `cut` those that were truncated or are
damaged, `bodies/` reads the JSON of messages, tools, tokens, requests and responses, `caches/` keeps what was parsed,
because a call repeats the history of its conversation. Beside calls, `rewards` reads rewards, `tool_spans` reads
executions of tools, and `history_events` reads messages that an app put behind a completion.

To add a dialect: a module in `dialects/` with a `Dialect`, its line in `DIALECTS`, a recording in `tests/dialects/`.

Invariant: all dialects give the same records, unknown is None, and nothing here raises for what a span contains.
"""

from art_otel.conventions.agent_instructions import agent_instructions, with_agent_instructions
from art_otel.conventions.attributes.values import integer, json_value, number
from art_otel.conventions.bodies.failure import ERROR_TYPE, failure_of, is_cancellation
from art_otel.conventions.bodies.tokens import encode_ids, encode_logprobs
from art_otel.conventions.call import parse_call
from art_otel.conventions.callless_recorders import client_instrumentor
from art_otel.conventions.capture_switches import ANTHROPIC_SDK, capture_switch
from art_otel.conventions.dialects.art import SCOPE as ART_OTEL
from art_otel.conventions.dialects.art import span_env_state, span_extra
from art_otel.conventions.dialects.claude_code import exchange_of
from art_otel.conventions.dialects.genai import response_id_of_details
from art_otel.conventions.dialects.genai_events import is_completion_event
from art_otel.conventions.dialects.genai_writer import genai_message, request_attributes, response_attributes
from art_otel.conventions.dialects.wrapper_spans import is_request_only, is_wrapper_method, recorder_of
from art_otel.conventions.history_events import (
    RecordedMessage,
    history_attributes,
    history_messages,
    recorded_messages,
)
from art_otel.conventions.known import CONTENT_ATTRIBUTES, is_convention_attribute
from art_otel.conventions.recorders.sent_by_frameworks import retried_tool_call, with_retried_tools
from art_otel.conventions.recordings import merge_calls, request_key
from art_otel.conventions.rewards import (
    EVALUATION,
    BadReward,
    RecordedReward,
    evaluation_attributes,
    has_response,
    rewards_of,
    rewards_of_log,
)
from art_otel.conventions.role import Role
from art_otel.conventions.roles import agent_name, has_call_attributes, may_be_call, may_have_role, role_of
from art_otel.conventions.sampled import is_same_but_for_thinking, is_structured_output, without_thinking
from art_otel.conventions.tool_spans import (
    ToolFacts,
    execution_attributes,
    execution_name,
    result_attributes,
    tool_facts,
)

__all__ = [
    "ANTHROPIC_SDK",
    "ART_OTEL",
    "CONTENT_ATTRIBUTES",
    "ERROR_TYPE",
    "EVALUATION",
    "BadReward",
    "RecordedMessage",
    "RecordedReward",
    "Role",
    "ToolFacts",
    "agent_instructions",
    "agent_name",
    "capture_switch",
    "client_instrumentor",
    "encode_ids",
    "encode_logprobs",
    "evaluation_attributes",
    "exchange_of",
    "execution_attributes",
    "execution_name",
    "failure_of",
    "genai_message",
    "has_call_attributes",
    "has_response",
    "history_attributes",
    "history_messages",
    "integer",
    "is_cancellation",
    "is_completion_event",
    "is_convention_attribute",
    "is_request_only",
    "is_same_but_for_thinking",
    "is_structured_output",
    "is_wrapper_method",
    "json_value",
    "may_be_call",
    "may_have_role",
    "merge_calls",
    "number",
    "parse_call",
    "recorded_messages",
    "recorder_of",
    "request_attributes",
    "request_key",
    "response_attributes",
    "response_id_of_details",
    "result_attributes",
    "retried_tool_call",
    "rewards_of",
    "rewards_of_log",
    "role_of",
    "span_env_state",
    "span_extra",
    "tool_facts",
    "with_agent_instructions",
    "with_retried_tools",
    "without_thinking",
]
