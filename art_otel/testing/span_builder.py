"""SpanBuilder: spans built by hand, in OTel's GenAI attributes and ours.

Invariant: it counts its ids and its clock, so equal calls give equal spans.
"""

import json
from collections.abc import Sequence
from typing import Any, Final

from art_otel import attributes as names
from art_otel.calls import Choice, Message, TokenIds
from art_otel.conventions import genai_message
from art_otel.conventions.bodies.token_facts import encode_routed_experts, encode_sampling_mask, encode_weight_versions
from art_otel.conventions.bodies.tokens import encode_ids, encode_logprobs
from art_otel.spans import Attributes, Event, Link, Span, Value

_EPOCH_NS: Final = 1_700_000_000_000_000_000
_TICK_NS: Final = 1_000_000


class SpanBuilder:
    """Builds the spans of one trace. Each span starts a millisecond after the one built before it."""

    def __init__(self, *, trace: int = 1, start_ns: int = _EPOCH_NS) -> None:
        self.trace_id = f"{trace:032x}"
        self._start_ns = start_ns
        self._built = 0

    def span(self, name: str, *, parent: Span | None = None, **fields: Any) -> Span:  # noqa: ANN401 # Span's own fields
        """A span of any kind, a millisecond long; `fields` are any other fields of Span."""
        self._built += 1
        start_ns = self._start_ns + self._built * _TICK_NS
        defaults: dict[str, Any] = {
            "trace_id": self.trace_id,
            "span_id": f"{self._built:016x}",
            "parent_span_id": None if parent is None else parent.span_id,
            "start_ns": start_ns,
            "end_ns": start_ns + _TICK_NS,
        }
        return Span(name=name, **(defaults | fields))

    def rollout(self, rollout_id: str, *, attributes: Attributes | None = None) -> Span:
        """A rollout's root span, an hour long."""
        root_attributes = {names.ROLLOUT_ID: rollout_id, names.ROLLOUT_NAME: "test", **(attributes or {})}
        end_ns = self._start_ns + 3_600_000 * _TICK_NS
        return self.span(f"{names.ROLLOUT_SPAN_PREFIX}test", attributes=root_attributes, end_ns=end_ns)

    def step(self, parent: Span, index: int) -> Span:
        """A step's span, a second long."""
        end_ns = self._start_ns + (self._built + 1_000) * _TICK_NS
        return self.span(
            f"{names.STEP_SPAN_PREFIX}{index}", parent=parent, attributes={names.STEP_INDEX: index}, end_ns=end_ns
        )

    def chat(
        self,
        parent: Span,
        prompt: Sequence[Message],
        choices: Sequence[Choice],
        *,
        prompt_token_ids: TokenIds | None = None,
        attributes: Attributes | None = None,
    ) -> Span:
        """A chat call in current GenAI attributes, with token ids and logprobs in ours."""
        chat: dict[str, Value] = {
            "gen_ai.operation.name": "chat",
            "gen_ai.provider.name": "openai",
            "gen_ai.request.model": "policy",
            "gen_ai.response.id": f"response-{self._built + 1}",
            "gen_ai.input.messages": json.dumps([genai_message(message) for message in prompt]),
            "gen_ai.output.messages": json.dumps(
                [genai_message(choice.message) | {"finish_reason": choice.finish_reason} for choice in choices]
            ),
            "gen_ai.response.finish_reasons": [choice.finish_reason or "" for choice in choices],
            **_token_attributes(prompt_token_ids, choices),
            **(attributes or {}),
        }
        return self.span("chat policy", parent=parent, kind="client", attributes=chat)

    def reward(self, parent: Span, value: float, *, name: str = "reward", target: Span | None = None) -> Span:
        """A reward given later: a span of its own, linked to the span that it judges."""
        judged = target or parent
        event = Event(
            name="gen_ai.evaluation.result",
            time_ns=self._start_ns + (self._built + 1) * _TICK_NS,
            attributes={"gen_ai.evaluation.name": name, "gen_ai.evaluation.score.value": value},
        )
        link = Link(trace_id=judged.trace_id, span_id=judged.span_id)
        return self.span(f"{names.REWARD_SPAN_PREFIX}{name}", parent=parent, events=(event,), links=(link,))


def _token_attributes(prompt: TokenIds | None, choices: Sequence[Choice]) -> dict[str, Value]:
    tokens: dict[str, Value] = {} if prompt is None else {names.PROMPT_TOKENS: encode_ids(prompt)}
    for choice in choices:
        if choice.token_ids is not None:
            tokens[f"{names.COMPLETION_TOKENS_PREFIX}{choice.index}"] = encode_ids(choice.token_ids)
        if choice.logprobs is not None:
            tokens[f"{names.COMPLETION_LOGPROBS_PREFIX}{choice.index}"] = encode_logprobs(choice.logprobs)
        if choice.weight_versions is not None:
            tokens[f"{names.WEIGHT_VERSIONS_PREFIX}{choice.index}"] = encode_weight_versions(choice.weight_versions)
        if choice.routed_experts is not None:
            tokens[f"{names.ROUTED_EXPERTS_PREFIX}{choice.index}"] = encode_routed_experts(choice.routed_experts)
        if choice.sampling_mask is not None:
            tokens[f"{names.SAMPLING_MASK_PREFIX}{choice.index}"] = encode_sampling_mask(choice.sampling_mask)
    return tokens
