"""Conventions: a span and its log records -> InferenceCall. The only package with foreign attribute names.

How a span becomes a call:
1. `roles`: role_of(span) says what the span represents. Only one with the role "inference" is a call.
2. `dialects/`: each convention that instrumentors record calls in (GenAI, OpenInference, OpenLLMetry, …) has a module,
   its dialect. `dialects.DIALECTS` lists them, the most trusted first. Those that may be on the span, by the names of
   its attributes, read it.
3. `facts`: every dialect gives CallFacts, the fields of a call that it recorded. merge_facts makes one of two: where
   both know a field, the more trusted dialect wins.
4. `call`: parse_call does 2 and 3 and adds what is on every span: times, failure, finish reasons.

What dialects share: `attributes/` reads values of attributes and names those that cannot be read (`cut`), `bodies/`
reads the JSON of messages, tools, tokens, requests and responses, `caches/` keeps what was parsed, because a call
repeats the history of its conversation. Beside calls, `rewards` reads rewards, and `tool_spans` executions of tools.

Invariant: all dialects give the same records, unknown is None, and nothing here raises for what a span contains.
"""

from art_otel.conventions.attributes.known import is_convention_attribute
from art_otel.conventions.attributes.values import integer, json_value, number
from art_otel.conventions.bodies.failure import ERROR_TYPE, failure_of, is_cancellation
from art_otel.conventions.call import parse_call
from art_otel.conventions.capture_switches import capture_switch
from art_otel.conventions.dialects.art import env_state_of, extra_of
from art_otel.conventions.dialects.genai_events import is_completion_event
from art_otel.conventions.dialects.wrapper_spans import is_method, only_asks, repeats_response
from art_otel.conventions.recordings import asked_of, merge_calls
from art_otel.conventions.rewards import (
    EVALUATION,
    BadReward,
    GivenReward,
    evaluation_attributes,
    is_own_response,
    rewards_of,
    rewards_of_log,
)
from art_otel.conventions.roles import Role, agent_name, holds_call, may_be_call, may_have_role, role_of
from art_otel.conventions.tool_spans import ToolFacts, tool_facts

__all__ = [
    "ERROR_TYPE",
    "EVALUATION",
    "BadReward",
    "GivenReward",
    "Role",
    "ToolFacts",
    "agent_name",
    "asked_of",
    "capture_switch",
    "env_state_of",
    "evaluation_attributes",
    "extra_of",
    "failure_of",
    "holds_call",
    "integer",
    "is_cancellation",
    "is_completion_event",
    "is_convention_attribute",
    "is_method",
    "is_own_response",
    "json_value",
    "may_be_call",
    "may_have_role",
    "merge_calls",
    "number",
    "only_asks",
    "parse_call",
    "repeats_response",
    "rewards_of",
    "rewards_of_log",
    "role_of",
    "tool_facts",
]
