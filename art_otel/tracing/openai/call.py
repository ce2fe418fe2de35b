"""CapturedCall: one call, its span and what passed of its answer.

Invariant: everything is written at the moment the span ends, whoever ends it, while it still records; then nothing of
ours is left on it. What comes later is for a call span around it that still runs. What the app or the instrumentor
wrote is never overwritten, but for an error they did not see.
"""

from collections.abc import Callable, Iterator
from functools import partial
from time import time_ns
from typing import Any, Final, cast

from opentelemetry import trace
from opentelemetry.semconv.attributes.error_attributes import ERROR_TYPE
from opentelemetry.trace import Span, StatusCode

from art_otel import attributes as names
from art_otel.conventions import response_attributes
from art_otel.conventions.dialects.art import lost_input
from art_otel.scrubbing import Scrubber
from art_otel.spans import Attributes
from art_otel.tracing.internal_errors import InternalErrorHandler
from art_otel.tracing.openai.answer import answer_attributes, failure
from art_otel.tracing.openai.exchange import RAW_HEADER, Options, Response
from art_otel.tracing.openai.openllmetry import is_openllmetry
from art_otel.tracing.openai.request import fields_of, messages, parameters, prompt, request_attributes_of
from art_otel.tracing.openai.response_tee import ResponseTee
from art_otel.tracing.sdk.ancestors import path_up
from art_otel.tracing.sdk.call_spans import is_call_by_now, runs_code
from art_otel.tracing.sdk.token_attributes import without_tokens

CAPTURING: Final = InternalErrorHandler("a call could not be captured; its span has no exact tokens")
_WAITING: Final = InternalErrorHandler("the span of a call could not wait for its answer")

_RESPONSES: Final = "/responses"
_COMPLETIONS: Final = ("/completions", _RESPONSES)
"""Where a model is asked for a completion; Chat Completions' path ends as that of Completions does."""

_FAILED: Final = "failed"
"""What a body of the Responses API may have as its status."""


def asks_for_completion(options: Options) -> bool:
    """Whether a request goes to Chat Completions, Completions or Responses."""
    return options.url.endswith(_COMPLETIONS) and options.method.lower() == "post"


def asks_responses(options: Options) -> bool:
    """Whether a request goes to the Responses API."""
    return options.url.endswith(_RESPONSES)


def current_call_span() -> Span | None:
    """The nearest span around this code that records an LLM call: another's may be current that is no call to us."""
    return next(_call_spans(trace.get_current_span()), None)


def is_call_of_rollout(span: Span) -> bool:
    """Whether a span is that of an LLM call in a rollout."""
    return names.ROLLOUT_ID in attributes_of(span) and is_call_by_now(span)


def attributes_of(span: Span) -> Attributes:
    """The attributes so far; the API has no word for them, the SDK has."""
    return cast(Attributes, getattr(span, "attributes", None) or {})


class CapturedCall:
    """A call whose response has begun. `policy_version` is None where nobody told it.

    `scrubber` reads what was asked and answered here, because ids spell what an instrumentor need not have recorded.
    `is_own` says that nobody else records the call.
    """

    def __init__(
        self,
        options: Options,
        response: Response,
        policy_version: str | None,
        scrubber: Scrubber | None,
        *,
        is_own: bool,
    ) -> None:
        self.response = response
        self._policy_version = policy_version
        self._scrubber = scrubber
        self._is_own = is_own
        self._tee = ResponseTee(response, responses=asks_responses(options))

    @property
    def is_to_come(self) -> bool:
        """Whether the app got the response before its body, and has not begun to read that."""
        return self._tee.is_to_come and RAW_HEADER in self.response.request.headers

    @property
    def is_over(self) -> bool:
        """Whether the app has all of the answer that it will get."""
        return self.response.is_closed or self._tee.error is not None

    def when_over(self, act: Callable[[], None]) -> None:
        """Do something once the app has the answer, or will not get more of it."""
        if self.response.is_closed:
            act()
        else:
            self._tee.when_over(act)

    def write_at_end_of(self, span: Span) -> None:
        """Write to the span as soon as it ends. One of ours ends with the answer, as does one that nobody would end."""
        ending = vars(span).get("end")
        if isinstance(ending, _Ending):
            ending.call = self  # the span asked again, and the last answer is the one
        else:
            vars(span)["end"] = _Ending(span, self)
        self.when_over(partial(self._over, span))

    def _over(self, span: Span) -> None:
        """Nobody gets more of the answer. OpenLLMetry ends the span of a stream that was left late, or never."""
        if span.is_recording() and (self._is_own or (self._tee.was_left and is_openllmetry(span))):
            span.end()

    def write(self, span: Span) -> None:
        """Set the captured attributes on a span that still records."""
        existing = attributes_of(span)
        content, body = self.response.request.content, self._tee.body() or {}
        request = fields_of(content)
        added: dict[str, str | bool] = {**parameters(request), **answer_attributes(body)}
        if self._scrubber is not None:
            added = _scanned(self._scrubber, prompt(request), added)
        if self._policy_version is not None:
            added[names.POLICY_VERSION] = self._policy_version
        if self._is_own:
            span.set_attributes(cast(Any, {**request_attributes_of(content), **response_attributes(body)}))
        elif lost_input(existing):
            added |= messages(request)
        span.set_attributes({name: value for name, value in added.items() if name not in existing})
        error = self._tee.error or (failure(body) if body.get("status") == _FAILED else None)
        if error is not None and ERROR_TYPE not in existing:
            tell_error(span, error)


def tell_error(span: Span, error: str) -> None:
    """Let the span be that of a call that failed."""
    span.set_attribute(ERROR_TYPE, error)
    span.set_status(StatusCode.ERROR, error)


def _scanned(scrubber: Scrubber, asked: list[str], answer: dict[str, str | bool]) -> dict[str, str | bool]:
    """The attributes of an answer: without tokens and marked where a secret was asked or answered.

    The ids of a prompt that nobody can read are left out as well.
    """
    if any(map(scrubber.holds_secret, (*asked, str(answer.get(names.RESPONSE_CHOICES, ""))))):
        return {**(without_tokens(answer) if scrubber.alters else answer), names.SCRUBBED_CONTENT: True}
    return {name: value for name, value in answer.items() if asked or name != names.PROMPT_TOKENS}


class _Ending:
    """`span.end` of a span that a call writes to."""

    def __init__(self, span: Span, call: CapturedCall) -> None:
        self.call = call
        self._span = span
        self._is_held = False

    def __call__(self, end_time: int | None = None) -> None:
        """End the span. One whose answer the app has yet to read ends with the response, at the time it was told."""
        if self._is_held:
            return
        with _WAITING:
            if self.call.is_to_come:
                self.call.when_over(partial(self._end, time_ns() if end_time is None else end_time))
                self._is_held = True
                return
        self._end(end_time)

    def _end(self, end_time: int | None) -> None:
        if vars(self._span).pop("end", None) is None:
            return
        with CAPTURING:
            self.call.write(self._span)
            if not self.call.is_over:
                self._hand_on()
        self._span.end(end_time)

    def _hand_on(self) -> None:
        """Let a call span around this one, which may run longer, be written with the rest of the answer."""
        around = next((span for span in _call_spans(self._span) if span is not self._span), None)
        if around is not None:
            self.call.write_at_end_of(around)


def _call_spans(span: Span) -> Iterator[Span]:
    """The span and those around it, the innermost first, that record an LLM call of its rollout and have not ended.

    What a tool or an agent asks is not what the call around it asks.
    """
    rollouts: set[object] = set()
    for around in path_up(span.get_span_context()):
        rollouts.add(attributes_of(around).get(names.ROLLOUT_ID))
        if len(rollouts) > 1:
            return
        if around.is_recording() and is_call_of_rollout(around):
            yield around
        elif runs_code(around):
            return
