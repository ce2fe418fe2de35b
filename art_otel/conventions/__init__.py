"""Conventions: a span and its log records -> InferenceCall. The only package with foreign attribute names.

Invariant: each module knows one attribute convention, all give the same records, and nothing here raises for what a
recording contains.
"""

from art_otel.conventions.attributes.known import is_foreign
from art_otel.conventions.attributes.values import integer, json_value, number
from art_otel.conventions.bodies.failure import ERROR_TYPE, failure_of, is_cancellation
from art_otel.conventions.call import parse_call
from art_otel.conventions.capture_switches import capture_switch
from art_otel.conventions.dialects.art import env_state_of, extra_of
from art_otel.conventions.dialects.genai_events import tells_completion
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
from art_otel.conventions.roles import AGENT_NAME, Role, agent_name, holds_call, may_be_call, may_tell_role, role_of
from art_otel.conventions.tool_spans import ToolFacts, tool_facts

__all__ = [
    "AGENT_NAME",
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
    "is_foreign",
    "is_method",
    "is_own_response",
    "json_value",
    "may_be_call",
    "may_tell_role",
    "merge_calls",
    "number",
    "only_asks",
    "parse_call",
    "repeats_response",
    "rewards_of",
    "rewards_of_log",
    "role_of",
    "tells_completion",
    "tool_facts",
]
