"""Call: one call of the openai client with all its retries, from the first request to the end of the recording span.

    client.request()          __enter__: this call is the current one (a ContextVar)
      ├─ a try is built       begin: an instrumentor's call span is around it? use that span; else start a span of ours
      ├─ a response begins    answer: read the body while the app reads it, into an `Exchange`; put `_SpanEnd` in the
      │                       place of `span.end` of an instrumentor's span, since the instrumentor ends that span
      └─ the client returns   __exit__
    the span ends             write what was captured, then call the span's real `end`

Invariant: attributes are written at the moment the span ends, because a span that has ended takes no more. Whoever ends
an instrumentor's span, they are written, and then the span has its own `end` again; a span of ours is ended here alone.
An answer that goes on after its span has ended is written to the next call span around it that still runs. A value of
the app or the instrumentor is never overwritten; only an error that neither of them saw is added.
"""

import os
from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar, Token
from functools import partial
from time import time_ns
from typing import TYPE_CHECKING, Any, Final, cast

from opentelemetry import context as otel_context
from opentelemetry import trace
from opentelemetry.semconv.attributes.error_attributes import ERROR_TYPE
from opentelemetry.trace import Span, SpanKind

from art_otel import attributes as names
from art_otel.calls import StreamClose
from art_otel.conventions.content_names import without_tokens
from art_otel.conventions.exchanges import (
    answer_attributes,
    answered_attributes,
    asked_attributes,
    lost_messages,
    parameters,
    prompt,
    whole_attributes,
)
from art_otel.conventions.values import raw_fields
from art_otel.exchange.api_dialects import UNTRAINED_HEADER, call_identity, dialect_of
from art_otel.exchange.exchange import Exchange, other_facts, request_body, response_body
from art_otel.exchange.failures import LONGEST_MESSAGE
from art_otel.exchange.token_requests import RequestAdditions
from art_otel.scrubbing import Scrubber
from art_otel.spans import Attributes, Value
from art_otel.tracing.api.context import tracer
from art_otel.tracing.api.run import CLOSED, set_error
from art_otel.tracing.internal_errors import InternalErrorHandler
from art_otel.tracing.openai.client import Options, Request, Response
from art_otel.tracing.openai.stream import ResponseTee
from art_otel.tracing.sdk.processor import is_spooled_only
from art_otel.tracing.sdk.rollout_registry import is_call_by_now, is_followed, path_up, runs_code
from art_otel.tracing.sdk.span_lines import texts_are_clean

if TYPE_CHECKING:
    from opentelemetry.context import Context

    from art_otel.exchange.assembly import WireDialect

CAPTURING: Final = InternalErrorHandler("a call could not be captured; its span has no exact tokens")

_OF_CLIENT: Final = ("chat", "completions", "responses")
"""The dialects in which openai's client asks for completions."""

OPENLLMETRY: Final = "opentelemetry.instrumentation.openai"
_CLIENT_S: Final = (f"{OPENLLMETRY}.", "opentelemetry.instrumentation.genai.openai")
"""Scopes of instrumentors that write as messages what the client sent and got, and nothing else."""

_SUPPRESSED: Final = ("suppress_instrumentation", getattr(otel_context, "_SUPPRESS_INSTRUMENTATION_KEY", ""))
"""The context keys by which an app, or an instrumentor that records the call itself, turns instrumentation off.

OTel has two: a plain string of older instrumentors, and the key of its API.
"""


def asks_for_completion(options: Options) -> bool:
    """Whether a request goes to Chat Completions, Completions or Responses."""
    return dialect_of(options.url) in _OF_CLIENT and options.method.lower() == "post"


def model_of(options: Options) -> str | None:
    """The model that the request names; None where the body names none."""
    body = options.json_data
    model = cast(Mapping[str, object], body).get("model") if isinstance(body, Mapping) else None
    model = (options.extra_json or {}).get("model", model)
    return model if isinstance(model, str) else None


class ClientCall:
    """One call of the client; `with ClientCall():` surrounds the client's `request` method.

    - `span` records the call: the instrumentor's span around the request, or a span of ours (`is_own` is then True).
      None before the first try, and where nothing records the call.
    - `is_in_rollout` says whether that span is in a rollout: else nothing is captured.
    - `request` is the request of the last try; `exchange` is that request with its answer, as far as the app has it.
      None before there is one.
    - `injected` is the `InjectedRequest` of that try, if art-otel asked the server for something that the app must not
      see in its answer; else None.
    - `tee` reads the body of a response that was still open when it began; None if the body was there at once.
    - `policy_version` is the version of the weights. `ask_version` gave it when the request left and is asked again
      when the answer ends; `ask_version` is None where a response header names the version.
    """

    __slots__ = (
        "_attached_span",
        "_dialect",
        "_has_begun",
        "_path",
        "_scrubber",
        "_stream_close",
        "_token",
        "ask_version",
        "exchange",
        "injected",
        "is_in_rollout",
        "is_own",
        "policy_version",
        "request",
        "span",
        "tee",
    )

    def __init__(self) -> None:
        self.span: Span | None = None
        self.is_own = False
        self.is_in_rollout = False
        self._has_begun = False
        self._path = ""
        self._dialect: WireDialect = "chat"
        self.request: Request | None = None
        self.injected: object = None
        self.exchange: Exchange | None = None
        self.tee: ResponseTee | None = None
        self.policy_version: str | None = None
        self.ask_version: Callable[[], str | None] | None = None
        self._scrubber: Scrubber | None = None
        self._stream_close: StreamClose = "left"
        self._attached_span: Token[Context] | None = None
        self._token: Token[ClientCall | None] | None = None

    def __enter__(self) -> None:
        """Make this the current call, before the client's first try."""
        self._token = _current.set(self)

    def __exit__(self, _kind: object, error: BaseException | None, _traceback: object) -> None:
        """Finish the call: the client has a response, whose body may still be open, or raises an error."""
        for token in (self._token, self._attached_span):
            if token is not None:
                try:  # noqa: SIM105 # `suppress` takes several times as long
                    token.var.reset(cast(Any, token))
                except ValueError:  # a coroutine that is closed in another context than it began in
                    pass
        if self._attached_span is not None or error is not None:
            try:
                self._leave(error)
            except Exception as fault:  # noqa: BLE001 # the app gets its own answer or error
                CAPTURING.note(fault)

    def begin(self, client: Any, options: Options, *, may_record: bool) -> None:  # noqa: ANN401 # as openai
        """Before the first try is sent, look for the call span around it, and start one of ours where there is none.

        `may_record` is False where only calls that an instrumentor records are captured. Later tries change nothing.
        """
        if self._has_begun:
            return
        self._has_begun, self._path = True, options.url
        self._dialect = dialect_of(options.url) or "chat"
        context = otel_context.get_current()
        around = trace.get_current_span(context)
        self.span = next(_call_spans(around), None)
        self.is_in_rollout = self.span is not None
        if self.span is not None or not may_record or any(map(context.get, _SUPPRESSED)):
            return
        # An instrumentor records this call, but with a TracerProvider that art-otel does not record. A second span of
        # ours would show the app one call twice.
        if not is_followed(around) and is_call_by_now(around):
            return
        self.span, self.is_own = _start(client, options, context), True
        self.is_in_rollout = names.ROLLOUT_ID in attributes_of(self.span)
        self._attached_span = otel_context.attach(trace.set_span_in_context(self.span, context))

    def trace_headers(self) -> dict[str, str]:
        """The headers of W3C Trace Context that name the span as parent; {} where the span is in no rollout.

        A gateway or a traced server needs them to join the rollout, and not every instrumentor sends them. For example
        `{"traceparent": "00-<32 hex digits of the trace>-<16 of the span>-01"}`.
        """
        if self.span is None or not self.is_in_rollout:
            return {}
        # Spelled here, because OTel's propagator would make a whole context for these few characters.
        context = self.span.get_span_context()
        ids = f"{trace.format_trace_id(context.trace_id)}-{trace.format_span_id(context.span_id)}"
        state = context.trace_state.to_header() if context.trace_state else ""
        return {"traceparent": f"00-{ids}-{context.trace_flags:02x}", **({"tracestate": state} if state else {})}

    def answer(
        self, response: Response, scrubber: Scrubber | None, stream_close: StreamClose, additions: RequestAdditions
    ) -> bool:
        """Take the response that has begun, and write to the span when the span ends.

        Returns False, and captures nothing, where no span records the call or its span is in no rollout.

        `scrubber` looks for secrets in the request and the answer. The span's texts do not suffice: token ids spell the
        whole answer, also what an instrumentor did not record. `stream_close` says what it means that the app closes a
        stream early. `additions` are what art-otel asked the server for and the app did not.
        """
        span = self.span
        if span is None or not span.is_recording():  # a span that ended with an earlier try takes no more attributes
            span = self.span = current_call_span()
            self.is_own, self.is_in_rollout = False, span is not None
        if span is None or not self.is_in_rollout:
            return False
        if (label := response.headers.get(UNTRAINED_HEADER)) is not None:
            span.set_attribute(names.UNTRAINED, label)  # a gateway's own answer, as where no call is left
        exchange = Exchange(self._dialect, self._path, response.request.content, time_ns())
        exchange.begin(response.status_code, str(response.headers.get("content-type", "")).encode())
        self.tee = None
        if response.is_closed:
            exchange.read([response.content])
        else:
            self.tee = ResponseTee(response, exchange, additions)
        self.exchange, self._scrubber, self._stream_close = exchange, scrubber, stream_close
        self._write_at_end_of(span)
        return True

    def _leave(self, error: BaseException | None) -> None:
        span = self.span
        if span is None:
            return
        if error is not None and not self.is_own and self.exchange is None and self.is_in_rollout and self.request:
            # OpenLLMetry loses a prompt with an image, and no answer will show it.
            asked = raw_fields(self.request.content)
            span.set_attributes(
                lost_messages(attributes_of(span), asked, records_content=partial(_records_content, span))
            )
        if self.is_own:
            if error is not None and span.is_recording():
                if self.request is not None:  # a failed call keeps its prompt, which is all that can be known of it
                    body = request_body(Exchange(self._dialect, self._path, self.request.content, time_ns()))
                    span.set_attributes(cast(Any, body if is_spooled_only(span) else whole_attributes(body)))
                _tell_exception(span, error)
                self.end(span, None)
            elif self.exchange is None:
                span.end()
            return
        if error is None or isinstance(error, Exception):
            return
        # For example CancelledError: OpenLLMetry catches Exception only, and would never end its span.
        if span.is_recording() and _is_openllmetry(span):
            _tell_exception(span, error)
            span.end()

    def _write_at_end_of(self, span: Span) -> None:
        """Have the captured attributes written when the span ends.

        `_SpanEnd` takes the place of `span.end` of an instrumentor's span. When the answer is over, `_over` ends a span
        of ours, and a span of OpenLLMetry that would stay open.
        """
        ending = vars(span).get("end")
        if isinstance(ending, _SpanEnd):
            ending.call = self  # a second call below one span, as of a library that retries: the last answer counts
        elif not self.is_own:
            vars(span)["end"] = _SpanEnd(span, self)
        if self.tee is None or self.tee.is_over:
            self._over(span)
        else:
            self.tee.when_over(partial(self._over, span))

    def _over(self, span: Span) -> None:
        """End a span of ours, or one that OpenLLMetry leaves open: the app has all of the answer that it will get."""
        if not span.is_recording():
            return
        if self.is_own:
            self.end(span, None)
        # OpenLLMetry ends the span of a stream that the app left too late, or never.
        elif self.tee is not None and self.tee.was_left and _is_openllmetry(span):
            span.end()

    def write(self, span: Span) -> bool:
        """Set the captured attributes on a span that still records.

        Returns True only if the scrubber read the whole request and answer and found no secret in them.
        """
        exchange, tee = self.exchange, self.tee
        if exchange is None:
            return False
        if tee is not None:
            tee.copy()
            exchange.note_closed(self._stream_close if tee.is_closed_by_app else None)
        # The exchange may be written to two spans, and each may have a version of its own.
        has_version = self.policy_version is None or names.POLICY_VERSION in attributes_of(span)
        exchange.policy_version = None if has_version else self.policy_version
        exchange.policy_version_end = None if has_version or self.ask_version is None else self.ask_version()
        is_clean = False
        if self.is_own and is_spooled_only(span):  # only our reader gets the span, and parses the bodies, not the app
            span.set_attributes(cast(Any, {**request_body(exchange), **response_body(exchange)}))
        else:
            is_clean = self._write_parsed(span, exchange)
        failure = exchange.why_failed()
        if failure is not None and ERROR_TYPE not in attributes_of(span):
            set_error(span, failure.type, failure.message or failure.type)
        return is_clean

    def _write_parsed(self, span: Span, exchange: Exchange) -> bool:
        """Set what the bodies mean, for a collector: all of it on a span of ours, else what the instrumentor lacks."""
        existing, fields, answer = attributes_of(span), exchange.fields, exchange.answer or {}
        if self.is_own:
            added = {**asked_attributes(exchange.body), **answered_attributes(answer)}
        else:
            added = {
                **parameters(fields),
                **answer_attributes(answer),
                **lost_messages(existing, fields, records_content=partial(_records_content, span)),
            }
        is_clean = False
        if self._scrubber is not None:
            added, is_clean = _scanned(self._scrubber, prompt(fields), added)
        added |= other_facts(exchange)
        span.set_attributes(cast(Any, {name: value for name, value in added.items() if name not in existing}))
        return is_clean

    def end(self, span: Span, end_time: int | None) -> None:
        """Write to the span, and end it.

        Where `write` found no secret, the span processor is told so and does not scan the same texts a second time.
        """
        is_clean = False
        if self.is_own:
            vars(span).pop("end", None)  # of a call that was made inside this one, as by a transport of the app
        try:
            is_clean = self.write(span)
            if self.tee is not None and not self.tee.is_over and not self.is_own:
                self._hand_on(span)
        except Exception as fault:  # noqa: BLE001 # the span ends all the same
            CAPTURING.note(fault)
        # Only of spans in these scopes is it known that every text in them is from the two bodies that were scanned.
        if not is_clean or self._scrubber is None or not (self.is_own or _scope(span).startswith(_CLIENT_S)):
            span.end(end_time)
            return
        with texts_are_clean(span.get_span_context(), self._scrubber):
            span.end(end_time)

    def _hand_on(self, span: Span) -> None:
        """Let the next call span around this one, which may run longer, get the rest of the answer.

        A framework's span and a client instrumentor's span may both record one call, and the inner one ends first.
        """
        around = next((outer for outer in _call_spans(span) if outer is not span), None)
        if around is not None:
            self._write_at_end_of(around)


_current: Final[ContextVar[ClientCall | None]] = ContextVar("art-otel-call", default=None)


def current_call() -> ClientCall | None:
    """The call of the client in which this code runs; None outside of calls."""
    return _current.get()


def current_call_span() -> Span | None:
    """The nearest span around this code that records an LLM call and still runs.

    The current span itself may be none, for example an HTTP client's span within the call.
    """
    return next(_call_spans(trace.get_current_span()), None)


def attributes_of(span: Span) -> Attributes:
    """The attributes that a span has so far; {} for spans that are not the SDK's, since OTel's API cannot read them."""
    attributes: Attributes | None = getattr(span, "attributes", None)
    return {} if attributes is None else attributes


class _SpanEnd:
    """The function in the place of `span.end` on an instrumentor's span. It restores the real one when called."""

    __slots__ = ("_is_held", "_span", "call")

    def __init__(self, span: Span, call: ClientCall) -> None:
        self.call = call
        self._span = span
        self._is_held = False

    def __call__(self, end_time: int | None = None) -> None:
        """End the span; a raw response that the app has yet to read is waited for.

        With `with_raw_response` an instrumentor ends its span before the body is read. Then the attributes are written
        when the body is closed, and the span gets the end time of this first call.
        """
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
    """The running call spans of one rollout, from this span outwards.

    The search stops at the span of a tool or an agent: a call that a tool makes is not the call around the tool.
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


def _scanned(scrubber: Scrubber, asked: list[str], answer: dict[str, Value]) -> tuple[dict[str, Value], bool]:
    """Return the attributes that may be written, and whether prompt and answer were read and hold no secret.

    With a secret in them, the token ids are left out if the scrubber alters texts, and the call is marked. The ids of a
    prompt that has no readable text, such as one given as ids, are left out: no scrubber can look into them.
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
    """Whether OpenLLMetry made the span and is not configured to leave out prompts and answers."""
    return _is_openllmetry(span) and os.environ.get("TRACELOOP_TRACE_CONTENT", "true").lower() == "true"


def _scope(span: Span) -> str:
    return str(getattr(getattr(span, "instrumentation_scope", None), "name", ""))


def _start(client: Any, options: Options, context: "Context") -> Span:  # noqa: ANN401 # as openai
    host = str(getattr(client.base_url, "host", "") or "")
    name, attributes = call_identity(dialect_of(options.url) or "chat", options.url, model_of(options), host)
    return tracer().start_span(name, context, SpanKind.CLIENT, cast(Any, attributes))


def _tell_exception(span: Span, error: BaseException) -> None:
    if isinstance(error, GeneratorExit):  # the app closed the coroutine that waited for the answer
        set_error(span, *CLOSED)
    else:
        kind = type(error).__name__
        set_error(span, kind, str(error)[:LONGEST_MESSAGE] or kind)
