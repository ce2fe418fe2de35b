"""Conventions: a span and its log records -> InferenceCall. The only package with third-party attribute names.

How a span becomes a call:
1. `roles`: role_of(span) says what the span represents. Only one with the role "inference" is a call.
2. `dialects/`: each convention that instrumentors record calls in (GenAI, OpenInference, OpenLLMetry, …) is a dialect.
   `dialects.DIALECTS` lists them, the most trusted first. A dialect reads the spans that have one of the attributes
   that show it (`shown_by`).
3. `facts`: every dialect gives CallFacts, the fields of a call that it recorded. merge_facts merges two: when
   both have a field, the more trusted dialect wins.
4. `call`: parse_call does 2 and 3 and adds what is on every span: times, failure, finish reasons. merge_calls makes one
   call of what several instrumentors recorded.
5. `gaps`: what of the call is not what was sent and sampled, and which recorders lose or rewrite what.

What dialects share: `attribute_names` splits names, once for the spans of one instrumentor, `attributes` reads values,
`values` narrows them, `bodies/` reads the JSON of messages, parts, tools, tokens, requests and responses, `vocabulary`
has the words for operations and finish reasons, `frameworks` knows what is sent otherwise than it is recorded. Beside
calls, `rewards` reads rewards and `tool_spans` reads executions of tools. `wrapper_spans` knows spans that are no
request of their own, and `recommended_setup` says what to install or switch on.

To add a dialect: a module in `dialects/` with a `Dialect`, its line in `DIALECTS`, a recording in `tests/dialects/`.

Invariant: all dialects give the same records, unknown is None, and nothing here raises for what a span contains.
"""

from art_otel.conventions.attribute_names import NameFamilies as NameFamilies
from art_otel.conventions.attribute_names import families_of as families_of
from art_otel.conventions.bodies.messages import join_messages as join_messages
from art_otel.conventions.bodies.tokens import encode_ids as encode_ids
from art_otel.conventions.bodies.tokens import encode_logprobs as encode_logprobs
from art_otel.conventions.call import is_same_but_for_thinking as is_same_but_for_thinking
from art_otel.conventions.call import is_structured_output as is_structured_output
from art_otel.conventions.call import merge_calls as merge_calls
from art_otel.conventions.call import parse_call as parse_call
from art_otel.conventions.call import request_key as request_key
from art_otel.conventions.call import without_thinking as without_thinking
from art_otel.conventions.dialects import CONTENT_ATTRIBUTES as CONTENT_ATTRIBUTES
from art_otel.conventions.dialects import is_convention_attribute as is_convention_attribute
from art_otel.conventions.dialects.art import ART_OTEL as ART_OTEL
from art_otel.conventions.dialects.art import RecordedMessage as RecordedMessage
from art_otel.conventions.dialects.art import history_attributes as history_attributes
from art_otel.conventions.dialects.art import history_messages as history_messages
from art_otel.conventions.dialects.art import recorded_messages as recorded_messages
from art_otel.conventions.dialects.art import span_env_state as span_env_state
from art_otel.conventions.dialects.art import span_extra as span_extra
from art_otel.conventions.dialects.claude_code import begins_exchange as begins_exchange
from art_otel.conventions.dialects.claude_code import exchange_of as exchange_of
from art_otel.conventions.dialects.dialect import Role as Role
from art_otel.conventions.dialects.genai import genai_message as genai_message
from art_otel.conventions.dialects.genai import request_attributes as request_attributes
from art_otel.conventions.dialects.genai import response_attributes as response_attributes
from art_otel.conventions.dialects.genai import response_id_of_details as response_id_of_details
from art_otel.conventions.dialects.genai_events import is_completion_event as is_completion_event
from art_otel.conventions.failures import failure_kind as failure_kind
from art_otel.conventions.failures import is_refusal as is_refusal
from art_otel.conventions.frameworks import AgentContent as AgentContent
from art_otel.conventions.frameworks import agent_content as agent_content
from art_otel.conventions.frameworks import agent_conversation as agent_conversation
from art_otel.conventions.frameworks import is_reason_assumed as is_reason_assumed
from art_otel.conventions.frameworks import retried_tool_call as retried_tool_call
from art_otel.conventions.frameworks import with_agent_content as with_agent_content
from art_otel.conventions.frameworks import with_agent_conversation as with_agent_conversation
from art_otel.conventions.frameworks import with_retried_tools as with_retried_tools
from art_otel.conventions.recommended_setup import capture_switch as capture_switch
from art_otel.conventions.recommended_setup import client_instrumentor as client_instrumentor
from art_otel.conventions.references import references_of as references_of
from art_otel.conventions.references import with_content as with_content
from art_otel.conventions.rewards import EVALUATION as EVALUATION
from art_otel.conventions.rewards import SPAN_NAME as SPAN_NAME
from art_otel.conventions.rewards import BadReward as BadReward
from art_otel.conventions.rewards import RecordedReward as RecordedReward
from art_otel.conventions.rewards import evaluation_attributes as evaluation_attributes
from art_otel.conventions.rewards import has_response as has_response
from art_otel.conventions.rewards import may_give_to_others as may_give_to_others
from art_otel.conventions.rewards import rewards_of as rewards_of
from art_otel.conventions.rewards import rewards_of_log as rewards_of_log
from art_otel.conventions.roles import ANTHROPIC_SDK as ANTHROPIC_SDK
from art_otel.conventions.roles import agent_name as agent_name
from art_otel.conventions.roles import has_call_attributes as has_call_attributes
from art_otel.conventions.roles import may_be_call as may_be_call
from art_otel.conventions.roles import may_be_run as may_be_run
from art_otel.conventions.roles import may_have_role as may_have_role
from art_otel.conventions.roles import names_model as names_model
from art_otel.conventions.roles import role_of as role_of
from art_otel.conventions.tool_spans import ToolFacts as ToolFacts
from art_otel.conventions.tool_spans import execution_attributes as execution_attributes
from art_otel.conventions.tool_spans import execution_name as execution_name
from art_otel.conventions.tool_spans import result_attributes as result_attributes
from art_otel.conventions.tool_spans import tool_facts as tool_facts
from art_otel.conventions.values import integer as integer
from art_otel.conventions.values import json_value as json_value
from art_otel.conventions.values import number as number
from art_otel.conventions.vocabulary import EARLY_ENDS as EARLY_ENDS
from art_otel.conventions.vocabulary import ERROR_TYPE as ERROR_TYPE
from art_otel.conventions.vocabulary import INSTANCE as INSTANCE
from art_otel.conventions.vocabulary import NOTHING_OF_CLAUDE as NOTHING_OF_CLAUDE
from art_otel.conventions.vocabulary import failure_of as failure_of
from art_otel.conventions.vocabulary import is_cancellation as is_cancellation
from art_otel.conventions.vocabulary import is_gemini as is_gemini
from art_otel.conventions.vocabulary import is_responses_api_id as is_responses_api_id
from art_otel.conventions.wrapper_spans import is_request_only as is_request_only
from art_otel.conventions.wrapper_spans import is_wrapper_method as is_wrapper_method
from art_otel.conventions.wrapper_spans import recorder_of as recorder_of
