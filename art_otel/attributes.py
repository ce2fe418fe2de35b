"""Every attribute, span and event name that is ours. docs/spec/attributes.md owns the table of meanings.

Foreign names (GenAI, OpenInference, OpenLLMetry, Agent Lightning) live in `art_otel.conventions` only.
"""

from typing import Final, Literal, TypeAlias

ROLLOUT_ID: Final = "art.rollout.id"
ROLLOUT_NAME: Final = "art.rollout.name"
ROLLOUT_JOINED_ID: Final = "art.rollout.joined_id"
"""The value of an attribute that joins the traces of one rollout (`rollout_attributes`), as a live app wrote it."""

ROLLOUT_ATTEMPT: Final = "art.rollout.attempt"
ROLLOUT_TRACE_ID: Final = "art.rollout.trace_id"
ROLLOUT_EDITION: Final = "art.rollout.edition"
SPANS_STARTED: Final = "art.rollout.spans.started"
SPANS_ENDED: Final = "art.rollout.spans.ended"
CALLS_PREFIX: Final = "art.rollout.calls."
"""How many calls of the rollout a gateway began, by the `service.instance.id` that stands behind the prefix."""

ROLLOUT_ARGUMENTS: Final = "art.rollout.arguments"
ROLLOUT_RESULT: Final = "art.rollout.result"
ROLLOUT_PROVISIONAL: Final = "art.rollout.provisional"
GROUP_ID: Final = "art.group.id"
GATHERING_ID: Final = "art.gathering.id"
"""Of the call of a gathering function that ran the rollout: a group id in another one is another group."""

SPLIT: Final = "art.split"
TRAINING_STEP: Final = "art.training.step"
POLICY_VERSION: Final = "art.policy.version"
POLICY_VERSION_END: Final = "art.policy.version.end"
REWARD: Final = "art.reward"
REWARD_CHOICE: Final = "art.reward.choice"
REWARD_TOKEN_START: Final = "art.reward.token_start"  # noqa: S105 # of tokens that a model sampled
REWARD_TOKEN_END: Final = "art.reward.token_end"  # noqa: S105 # as above
REWARD_EVALUATION: Final = "art.reward.evaluation"
REWARD_ORDER: Final = "art.reward.order"
REWARD_SPAN_ID: Final = "art.reward.span_id"
"""On a reward span: the id of the span that it judges, where nothing says in which trace that is."""

ROLLOUT_FACTS: Final = "art.rollout.facts"
"""On a reward span, as JSON: attributes of the rollout that it names (group, split, metadata), given afterwards."""

STEP_INDEX: Final = "art.step.index"
UNTRAINED: Final = "art.untrained"
"""What is sampled at or below the span is not for the policy to learn from. The value says what it is for: `judge`."""

GATEWAY_SCOPE: Final = "art_otel.gateway"
"""The instrumentation scope of calls that the gateway records: their messages are all that went over the wire."""

UNREAD_REQUEST: Final = "art.unread_request"
"""On a span of the gateway: the model server took a request that may ask for a completion, in an unknown dialect."""

METRIC_PREFIX: Final = "art.metric."
METADATA_PREFIX: Final = "art.metadata."
MAX_CALLS: Final = "art.metadata.max_calls"
"""How many calls the gateway lets the rollout make."""

MAX_CALLS_REACHED: Final = "art.metadata.max_calls_reached"
METADATA_JSON_PREFIX: Final = "art.metadata_json."
ENV_STATE: Final = "art.env_state"
EXTRA: Final = "art.extra"

PROMPT_TOKENS: Final = "art.tokens.prompt"
COMPLETION_TOKENS_PREFIX: Final = "art.tokens.completion."
COMPLETION_LOGPROBS_PREFIX: Final = "art.logprobs.completion."
LOGPROBS_MODE: Final = "art.logprobs.mode"
WEIGHT_VERSIONS_PREFIX: Final = "art.tokens.weight_versions."
ROUTED_EXPERTS_PREFIX: Final = "art.tokens.routed_experts."
SAMPLING_MASK_PREFIX: Final = "art.tokens.sampling_mask."
PROMPT: Final = "art.extra.prompt"
PROMPT_REASON: Final = "art.extra.prompt_reason"
KEPT_REASONING: Final = "art.extra.kept_reasoning"
PLACEHOLDERS: Final = "art.extra.placeholders"
TRANSLATED_FROM: Final = "art.extra.translated_from"
LEFT_OUT: Final = "art.extra.left_out"
"""The fields of the agent's request that the server did not get, because its dialect has no word for them."""

RESPONSE_CHOICES: Final = "art.response.choices"
RESPONSE_END: Final = "art.response.end"
CLOSED_BY_APP: Final = "art.stream.closed_by_app"
"""The app closed the stream of the answer before it ended: `left`, or `finished` where it says that so it ends one."""

REQUEST_BODY: Final = "art.request.body"
RESPONSE_BODY: Final = "art.response.body"
"""The bodies of an exchange as they were, in the lines of a gateway; `conventions.exchanges` says what they mean."""

REQUEST_PARAMETERS: Final = "art.request.parameters"
REQUEST_MESSAGES: Final = "art.request.messages"
MISSING: Final = "art.missing"

SCRUBBED: Final = "art.scrubbed"
SCRUBBED_CONTENT: Final = "art.scrubbed.content"

ROLLOUT_SPAN_PREFIX: Final = "rollout "
STEP_SPAN_PREFIX: Final = "step "
UNTRAINED_SPAN_PREFIX: Final = "untrained "
REWARD_SPAN_PREFIX: Final = "reward "
REWARD_NAME: Final = "reward"
"""The name of a reward that was given without one."""

RewardSource: TypeAlias = Literal["attribute", "evaluation", "reward_span", "rl", "agentlightning"]
"""How a reward was recorded. All but `evaluation` say that it is a reward, whatever its name is."""

HISTORY_EVENT: Final = "art.history"
HISTORY_CHOICE: Final = "art.history.choice"
LOG_EVENT: Final = "art.log"
LOG_MESSAGE: Final = "art.log.message"

PROJECT: Final = "art.project"
MODEL: Final = "art.model"
