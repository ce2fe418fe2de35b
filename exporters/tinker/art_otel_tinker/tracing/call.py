"""Call: the span of one sampled completion.

Invariant: its times are those of sampling, also where its logprobs come later. `action` is the list of tokens that the
environment got, the object itself.
"""

from collections.abc import Mapping
from time import time_ns
from typing import Final, cast

import msgspec
from opentelemetry import trace
from opentelemetry.semconv.attributes.error_attributes import ERROR_TYPE
from opentelemetry.trace import Span, SpanKind

from art_otel import attributes as names
from art_otel.calls import Logprobs, TokenIds
from art_otel.conventions import encode_ids, encode_logprobs
from art_otel_tinker.tracing.chat import JsonObject, chat_message, unparsed_tool_calls
from art_otel_tinker.tracing.internal_errors import handle_tinker_errors
from art_otel_tinker.tracing.policy import answer_of
from art_otel_tinker.tracing.prompt import Prompt
from art_otel_tinker.tracing.renderer import WatchedRenderer

SCOPE: Final = "art_otel_tinker"
MODEL: Final = "gen_ai.request.model"

_RESPONSE_ID: Final = "gen_ai.response.id"
_IDS: Final = f"{names.COMPLETION_TOKENS_PREFIX}0"
_LOGPROBS: Final = f"{names.COMPLETION_LOGPROBS_PREFIX}0"


class Call:
    """A call that has its tokens and waits for `end`. `answer` is the policy's answer, None until it is known."""

    def __init__(self, action: list[int], span: Span) -> None:
        self.action = action
        self.answer = answer_of(action)
        self._span = span
        self._ended_ns = time_ns()

    def end(self, error: BaseException | None = None) -> None:
        """End it. With an error its completion is no part of what the rollout became, and is not trained."""
        with handle_tinker_errors:
            logprobs = None if self.answer is None else self.answer.maybe_logprobs
            if logprobs is not None and len(logprobs) == len(self.action):
                self._span.set_attribute(_LOGPROBS, encode_logprobs(cast(Logprobs, Logprobs.of(logprobs))))
            sequence_id: object = getattr(self.answer, "sequence_id", None)
            if isinstance(sequence_id, str):
                self._span.set_attribute(_RESPONSE_ID, sequence_id)
            if error is not None:
                self._span.set_attribute(ERROR_TYPE, type(error).__name__)
        self._span.end(self._ended_ns)


def begin_call(
    prompt: Prompt,
    action: list[int],
    stop_reason: str | None,
    renderer: WatchedRenderer | None,
    about: Mapping[str, str],
) -> Call:
    """The call whose completion `action` is. `about` holds what all calls of the environment have on their spans."""
    model = about.get(MODEL)
    span_attributes = {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "tinker",
        **about,
        **prompt.attributes(),
        "gen_ai.usage.output_tokens": len(action),
        _IDS: encode_ids(cast(TokenIds, TokenIds.of(action))),
        **_message(action, stop_reason, renderer),
    }
    span = trace.get_tracer(SCOPE).start_span(
        "chat" if model is None else f"chat {model}",
        kind=SpanKind.CLIENT,
        start_time=prompt.asked_ns,
        attributes=span_attributes,
    )
    return Call(action, span)


def _message(action: list[int], stop_reason: str | None, renderer: WatchedRenderer | None) -> dict[str, str]:
    """What the tokens say, as the renderer parses them; parsing changes nothing."""
    # A message without `content` is unknown; `null` would say that nothing was sampled.
    choice: JsonObject = {"index": 0, "finish_reason": stop_reason, "message": {"role": "assistant"}}
    attributes: dict[str, str] = {}
    with handle_tinker_errors:
        if renderer is not None:
            message, termination = renderer.parse_response(list(action))
            choice["message"] = chat_message(message)
            attributes[f"{names.EXTRA}.termination"] = str(termination)
            if unparsed := unparsed_tool_calls(message):
                attributes[f"{names.EXTRA}.unparsed_tool_calls"] = msgspec.json.encode(unparsed).decode()
    return {**attributes, names.RESPONSE_CHOICES: msgspec.json.encode([choice]).decode()}
