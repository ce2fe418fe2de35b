"""Call: one request of the client with all its tries, from where it leaves to the end of the span that records it.

Invariant: a request that no span of a call surrounds gets a standard inference span of art-otel, which begins where the
request leaves, is current until the client is done, and ends with the answer. Everything is written at the moment the
span ends, whoever ends it, while it still records; then nothing of ours is left on it. What comes later is for a call
span around it that still runs. What the app or the instrumentor wrote is never overwritten, but for an error they did
not see. The call that this code is part of stands in a ContextVar.
"""

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from contextvars import ContextVar, Token
from functools import partial
from time import time_ns
from typing import TYPE_CHECKING, Any, Final, cast

from opentelemetry import context as otel_context
from opentelemetry import trace
from opentelemetry.semconv.attributes.error_attributes import ERROR_TYPE
from opentelemetry.trace import Span, SpanKind, StatusCode

from art_otel import attributes as names
from art_otel.calls import StreamClose
from art_otel.conventions import request_attributes, response_attributes, values
from art_otel.conventions.content_names import without_tokens
from art_otel.conventions.dialects.genai import RESPONSE_ID
from art_otel.conventions.exchanges import (
    answer_attributes,
    lost_messages,
    parameters,
    prompt,
    spoken,
    whole_attributes,
)
from art_otel.conventions.values import json_object, raw_fields
from art_otel.exchange.api_dialects import call_identity, dialect_of
from art_otel.exchange.exchange import (
    FAILED,
    LONGEST_MESSAGE,
    CallFailure,
    Exchange,
    answer_head,
    answered_body,
    asked_body,
    failure_in,
    plainly_escaped,
)
from art_otel.exchange.token_requests import RequestAdditions
from art_otel.scrubbing import Scrubber
from art_otel.spans import Attributes, Value
from art_otel.tracing.api.context import tracer
from art_otel.tracing.api.run import CLOSED
from art_otel.tracing.internal_errors import InternalErrorHandler
from art_otel.tracing.openai.client import Options, Request, Response
from art_otel.tracing.openai.stream import ResponseTee
from art_otel.tracing.sdk.processor import is_spooled_only
from art_otel.tracing.sdk.rollout_registry import is_call_by_now, is_followed, path_up, runs_code
from art_otel.tracing.sdk.span_lines import texts_are_clean

if TYPE_CHECKING:
    from opentelemetry.context import Context

CAPTURING: Final = InternalErrorHandler("a call could not be captured; its span has no exact tokens")

_COMPLETIONS: Final = ("/completions", "/responses")
"""Where a model is asked for a completion; Chat Completions' path ends as that of Completions does."""

OPENLLMETRY: Final = "opentelemetry.instrumentation.openai"
_CLIENT_S: Final = (f"{OPENLLMETRY}.", "opentelemetry.instrumentation.genai.openai")
"""Scopes of instrumentors that write as messages what the client sent and got, and nothing else."""

_SUPPRESSED: Final = ("suppress_instrumentation", getattr(otel_context, "_SUPPRESS_INSTRUMENTATION_KEY", ""))
"""What an app, or an instrumentor that records the call itself, sets in the context, under either name of OTel's."""


def asks_for_completion(options: Options) -> bool:
    """Whether a request goes to Chat Completions, Completions or Responses."""
    return options.url.endswith(_COMPLETIONS) and options.method.lower() == "post"


def model_of(options: Options) -> str | None:
    """The model that is asked, as far as the options say."""
    body = options.json_data
    model = cast(Mapping[str, object], body).get("model") if isinstance(body, Mapping) else None
    return model if isinstance(model, str) else None


class ClientCall:
    """One call. As a context manager it is what surrounds the client's request.

    `span` records it: the instrumentor's that was around the request as it left, or one of ours (`is_own`). It is None
    before the first try leaves, and where nothing records the call. `request` is that of the last try, `asked` what is
    asked with it beside the app, until it is answered. `tee` is the body of an answer that was not whole when it began.
    `policy_version` is the version of the weights, which `ask_version` gave as that request left, and gives again as
    the answer ends; the latter is None where the answer names it.
    """

    __slots__ = (
        "_attached_span",
        "_has_begun",
        "_options",
        "_response",
        "_scrubber",
        "_stream_close",
        "_token",
        "ask_version",
        "asked",
        "is_own",
        "policy_version",
        "request",
        "span",
        "tee",
    )

    def __init__(self) -> None:
        self.span: Span | None = None
        self.is_own = False
        self._has_begun = False
        self._options: Options | None = None
        self.request: Request | None = None
        self.asked: object = None
        self._response: Response | None = None
        self.tee: ResponseTee | None = None
        self.policy_version: str | None = None
        self.ask_version: Callable[[], str | None] | None = None
        self._scrubber: Scrubber | None = None
        self._stream_close: StreamClose = "left"
        self._attached_span: Token[Context] | None = None
        self._token: Token[ClientCall | None] | None = None

    def __enter__(self) -> None:
        """The client begins with the request."""
        self._token = _current.set(self)

    def __exit__(self, _kind: object, error: BaseException | None, _traceback: object) -> None:
        """The client is done with the request, by an answer or by an error."""
        for token in (self._token, self._attached_span):
            if token is not None:
                with suppress(ValueError):  # its coroutine was closed in another context
                    token.var.reset(cast(Any, token))
        if self._attached_span is not None or error is not None:
            try:
                self._leave(error)
            except Exception as fault:  # noqa: BLE001 # the app gets its own answer or error
                CAPTURING.note(fault)

    def begin(self, client: Any, options: Options, *, may_record: bool) -> None:  # noqa: ANN401 # as openai
        """Before the first try is sent, look for the span around it, and create one where there is none."""
        if self._has_begun:
            return
        self._has_begun = True
        self._options = options
        self.span = current_call_span()
        if self.span is not None or not may_record or any(map(otel_context.get_value, _SUPPRESSED)):
            return
        around = trace.get_current_span()
        if not is_followed(around) and is_call_by_now(around):  # of a provider that is not recorded
            return
        self.span, self.is_own = _start(client, options), True
        self._attached_span = otel_context.attach(trace.set_span_in_context(self.span))

    def trace_headers(self) -> dict[str, str]:
        """What lets a gateway, or a traced server, know of the span: not every instrumentor does so for its own.

        As W3C's Trace Context has it. OTel's propagator would make a context for it.
        """
        if self.span is None or names.ROLLOUT_ID not in attributes_of(self.span):
            return {}
        context = self.span.get_span_context()
        ids = f"{trace.format_trace_id(context.trace_id)}-{trace.format_span_id(context.span_id)}"
        state = context.trace_state.to_header() if context.trace_state else ""
        return {"traceparent": f"00-{ids}-{context.trace_flags:02x}", **({"tracestate": state} if state else {})}

    def answer(
        self,
        options: Options,
        response: Response,
        scrubber: Scrubber | None,
        stream_close: StreamClose,
        additions: RequestAdditions,
    ) -> bool:
        """Take the response that has begun, and write to the span as soon as that ends.

        False where no span records it, or its span is in no rollout.

        `scrubber` reads what was asked and answered here, because ids spell what an instrumentor need not have
        recorded. `stream_close` is what it means if the app closes the stream before it ends. `additions` are what the
        server was asked for beside the app.
        """
        span = self.span
        if span is None or not span.is_recording():
            span = self.span = current_call_span()
            self.is_own = False
        if span is None or names.ROLLOUT_ID not in attributes_of(span):
            return False
        if (label := response.headers.get(names.UNTRAINED_HEADER)) is not None:
            span.set_attribute(names.UNTRAINED, label)  # a gateway's own answer, as where no call is left
        self._response = response
        self._scrubber = scrubber
        self._stream_close = stream_close
        if response.is_closed:
            self.tee = None
        else:
            self.tee = ResponseTee(response, _exchange(options, response.request), additions)
        self._write_at_end_of(span)
        return True

    @property
    def is_in_rollout(self) -> bool:
        """Whether the span that records the call is in a rollout."""
        return self.span is not None and names.ROLLOUT_ID in attributes_of(self.span)

    def _leave(self, error: BaseException | None) -> None:
        span = self.span
        if span is None:
            return
        if error is not None and not self.is_own and self._response is None and self.is_in_rollout and self.request:
            # OpenLLMetry loses a prompt with an image, and no answer will show it.
            asked = raw_fields(self.request.content)
            span.set_attributes(
                lost_messages(attributes_of(span), asked, records_content=partial(_records_content, span))
            )
        if self.is_own and error is not None and span.is_recording():
            if self.request is not None:
                asked = asked_body(self.request.content)
                span.set_attributes(cast(Any, asked if is_spooled_only(span) else whole_attributes(asked)))
            _fail(span, error)
        elif self.is_own and self._response is None:
            span.end()
        elif error is None or isinstance(error, Exception) or not span.is_recording():
            return
        elif not self.is_own and _is_openllmetry(span):  # it catches Exception only, and would never end its span
            _fail(span, error)

    def _write_at_end_of(self, span: Span) -> None:
        """Write to the span as soon as it ends. One of ours ends with the answer, as does one that nobody would end."""
        ending = vars(span).get("end")
        if isinstance(ending, _SpanEnd):
            ending.call = self  # the span asked again, and the last answer is the one
        else:
            vars(span)["end"] = _SpanEnd(span, self)
        if self.tee is None or self.tee.is_over:
            self._over(span)
        else:
            self.tee.when_over(partial(self._over, span))

    def _over(self, span: Span) -> None:
        """Nobody gets more of the answer. OpenLLMetry ends the span of a stream that was left late, or never."""
        is_left = self.tee is not None and self.tee.was_left and _is_openllmetry(span)
        if (self.is_own or is_left) and span.is_recording():
            span.end()

    def write(self, span: Span) -> bool:
        """Set the captured attributes on a span that still records. Whether a scan of all of them found no secret."""
        tee, response = self.tee, self._response
        if response is None:
            return False
        existing = attributes_of(span)
        if self.is_own and is_spooled_only(span):
            self._write_bodies(span, response, existing)
            return False
        asked, answered = response.request.content, self._answered(response)
        request = raw_fields(asked)
        added: dict[str, str | bool] = {**parameters(request), **answer_attributes(answered)}
        if not self.is_own:
            added |= lost_messages(existing, request, records_content=partial(_records_content, span))
        is_clean = False
        if self._scrubber is not None:
            added, is_clean = _scanned(self._scrubber, prompt(request), added)
        added |= self._versions(existing)
        if tee is not None and tee.is_cut:
            span.set_attribute(names.MISSING, ["answer"])
        if tee is not None and tee.is_closed_by_app and is_unfinished(answered):
            added[names.CLOSED_BY_APP] = self._stream_close
        added = {name: value for name, value in added.items() if name not in existing}
        if self.is_own:
            added |= cast(
                Any, {**request_attributes(json_object(asked) or {}), **response_attributes(spoken(answered))}
            )
        span.set_attributes(added)
        failure = None if tee is None else tee.failure
        if failure is None and (answered.get("error") or answered.get("status") == FAILED):
            failure = failure_in(answered)
        if failure is not None and ERROR_TYPE not in existing:
            _tell_error(span, failure)
        return is_clean

    def _write_bodies(self, span: Span, response: Response, existing: Attributes) -> None:
        """Set both bodies as they were: whoever reads the spool says what they mean."""
        tee = self.tee
        added = {**asked_body(response.request.content), **self._versions(existing)}
        failure = None if tee is None else tee.failure
        if tee is not None and (joined := tee.json()) is not None:
            added[names.RESPONSE_BODY] = plainly_escaped(joined)
            if tee.response_id is not None:
                added[RESPONSE_ID] = tee.response_id
        else:
            answered = response.content if tee is None else tee.content()
            added |= answered_body(answered)
            if failure is None and (b'"error"' in answered or b'"failed"' in answered):  # most answers have neither
                head = answer_head(answered)
                if head is not None and (head.error or head.status == FAILED):
                    failure = failure_in(json_object(answered) or {})
        if tee is not None and tee.is_cut:
            added[names.MISSING] = ["answer"]
        if tee is not None and tee.is_closed_by_app and is_unfinished(tee.joined() or {}):
            added[names.CLOSED_BY_APP] = self._stream_close
        span.set_attributes(cast(Any, added))
        if failure is not None:
            _tell_error(span, failure)

    def _versions(self, existing: Attributes) -> dict[str, str]:
        """The version of the weights as the request left, and as the answer ended if that is another."""
        if self.policy_version is None or names.POLICY_VERSION in existing:
            return {}
        at_end = None if self.ask_version is None else self.ask_version()
        versions = {names.POLICY_VERSION: self.policy_version}
        if at_end is not None and at_end != self.policy_version:
            versions[names.POLICY_VERSION_END] = at_end
        return versions

    def _answered(self, response: Response) -> dict[str, Value]:
        """The body of the answer, as far as it came; empty where it is no JSON object."""
        joined = None if self.tee is None else self.tee.joined()
        if joined is not None:
            return joined
        return json_object(response.content if self.tee is None else self.tee.content()) or {}

    def end(self, span: Span, end_time: int | None) -> None:
        """Write to the span and end it. The span processor that is told so need not scan the same texts again."""
        is_clean = False
        try:
            is_clean = self.write(span)
            if self.tee is not None and not self.tee.is_over:
                self._hand_on(span)
        except Exception as fault:  # noqa: BLE001 # the span ends all the same
            CAPTURING.note(fault)
        if not is_clean or self._scrubber is None or not (self.is_own or _scope(span).startswith(_CLIENT_S)):
            span.end(end_time)
            return
        with texts_are_clean(span.get_span_context(), self._scrubber):
            span.end(end_time)

    def _hand_on(self, span: Span) -> None:
        """Let a call span around this one, which may run longer, be written with the rest of the answer."""
        around = next((outer for outer in _call_spans(span) if outer is not span), None)
        if around is not None:
            self._write_at_end_of(around)


_RUNNING: Final = (None, "queued", "in_progress")


def is_unfinished(body: dict[str, Value]) -> bool:
    """Whether the body of an answer does not say how it ended."""
    if "output" in body:
        return body.get("status") in _RUNNING
    choices = [values.mapping(choice) or {} for choice in values.items(body.get("choices")) or ()]
    return not choices or any(choice.get("finish_reason") is None for choice in choices)


_current: Final[ContextVar[ClientCall | None]] = ContextVar("art-otel-call", default=None)


def current_call() -> ClientCall | None:
    """The call that this code is part of."""
    return _current.get()


def current_call_span() -> Span | None:
    """The nearest span around this code that records an LLM call: another's may be current that is no call to us."""
    return next(_call_spans(trace.get_current_span()), None)


def attributes_of(span: Span) -> Attributes:
    """The attributes so far; the API has no word for them, the SDK has."""
    return cast(Attributes, getattr(span, "attributes", None) or {})


class _SpanEnd:
    """`span.end` of a span that a call writes to."""

    __slots__ = ("_is_held", "_span", "call")

    def __init__(self, span: Span, call: ClientCall) -> None:
        self.call = call
        self._span = span
        self._is_held = False

    def __call__(self, end_time: int | None = None) -> None:
        """End the span. One whose answer the app has yet to read ends with the response, at the time it was told."""
        if self._is_held:
            return
        if (tee := self.call.tee) is not None and tee.is_raw:
            with CAPTURING:
                if tee.is_to_come:
                    tee.when_over(partial(self._end, time_ns() if end_time is None else end_time))
                    self._is_held = True
                    return
        self._end(end_time)

    def _end(self, end_time: int | None) -> None:
        if vars(self._span).pop("end", None) is not None:
            self.call.end(self._span, end_time)


def _call_spans(span: Span) -> Iterator[Span]:
    """The span and those around it, the innermost first, that record an LLM call of its rollout and have not ended.

    What a tool or an agent asks is not what the call around it asks.
    """
    rollout: object = None
    is_first = True
    for around in path_up(span.get_span_context()):
        its_rollout = attributes_of(around).get(names.ROLLOUT_ID)
        if not is_first and its_rollout != rollout:
            return
        rollout, is_first = its_rollout, False
        if rollout is not None and around.is_recording() and is_call_by_now(around):
            yield around
        elif runs_code(around):
            return


def _scanned(scrubber: Scrubber, asked: list[str], answer: dict[str, str | bool]) -> tuple[dict[str, str | bool], bool]:
    """Return the attributes of an answer, and whether no secret was asked or answered.

    Where one was, tokens are left out and the call is marked. The ids of a prompt that nobody can read are left out.
    """
    texts = [*asked, str(answer.get(names.RESPONSE_CHOICES, ""))]
    if scrubber.may_hold_secret(texts) and any(map(scrubber.holds_secret, texts)):
        return {**(without_tokens(answer) if scrubber.alters else answer), names.SCRUBBED_CONTENT: True}, False
    if not asked:
        answer.pop(names.PROMPT_TOKENS, None)
    return answer, bool(asked)


def _is_openllmetry(span: Span) -> bool:
    """Whether OpenLLMetry's instrumentor of the openai client made the span."""
    return _scope(span).startswith(f"{OPENLLMETRY}.")


def _records_content(span: Span) -> bool:
    """Whether OpenLLMetry made the span, and was not told to leave out what is asked and answered."""
    return _is_openllmetry(span) and os.environ.get("TRACELOOP_TRACE_CONTENT", "true").lower() == "true"


def _scope(span: Span) -> str:
    return str(getattr(getattr(span, "instrumentation_scope", None), "name", ""))


def _exchange(options: Options, request: Request) -> Exchange:
    """The exchange that begins with a request of these options."""
    return Exchange(dialect_of(options.url) or "chat", options.url, request.content, time_ns())


def _start(client: Any, options: Options) -> Span:  # noqa: ANN401 # as openai
    host = str(getattr(client.base_url, "host", "") or "")
    name, attributes = call_identity(dialect_of(options.url) or "chat", options.url, model_of(options), host)
    return tracer().start_span(name, kind=SpanKind.CLIENT, attributes=cast(Any, attributes))


def _tell_error(span: Span, failure: CallFailure) -> None:
    """Let the span be that of a call that failed. What the message says may tell whether it is the policy's doing."""
    span.set_attribute(ERROR_TYPE, failure.type)
    span.set_status(StatusCode.ERROR, failure.message or failure.type)


def _fail(span: Span, error: BaseException) -> None:
    if isinstance(error, GeneratorExit):  # its coroutine is closed
        _tell_error(span, CallFailure(*CLOSED))
    else:
        _tell_error(span, CallFailure(type(error).__name__, str(error)[:LONGEST_MESSAGE]))
    span.end()
