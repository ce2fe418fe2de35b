"""In process: a gateway inside the app that runs the rollouts, for agents that are other programs.

Invariant: if an agent got its address from `url()` inside a rollout, its calls are spans of that rollout. The app's own
tracer makes them, below the span in which `url()` was called; so they are counted, scrubbed, gathered and exported as
all others. Calls to any other address of the gateway are recorded as by `art-otel gateway`.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import asynccontextmanager
from functools import partial
from typing import Final, Unpack
from urllib.parse import quote

from opentelemetry import context as otel_context
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import NonRecordingSpan, Span, SpanContext, SpanKind, TraceFlags
from opentelemetry.util.types import Attributes

from art_otel import attributes as names
from art_otel.conventions.exchanges import whole_attributes
from art_otel.exchange.exchange import Exchange, response_body
from art_otel.http import Address
from art_otel.model_gateway.addresses import PREFIX, UNTRAINED_PREFIX, RequestAddress
from art_otel.model_gateway.gateway import LIMITS, Gateway, GatewayOptions
from art_otel.model_gateway.rollouts import CALL_SCOPE, begun_call, unread_attributes
from art_otel.model_gateway.settings import GatewayKeywords
from art_otel.receiver.receiver import ReceiverOptions
from art_otel.receiver.settings import ReceiverKeywords, keywords_of_receiver
from art_otel.tracing.api.context import running_trajectory, untrained_label
from art_otel.tracing.api.run import set_error

_CLEAN_AT: Final = 256
"""With so many addresses, those of ended rollouts are forgotten."""


class LocalGateway:
    """The running gateway of `art_otel.gateway`. `url()` is its address for agents."""

    def __init__(self, options: GatewayOptions) -> None:
        self._contexts: dict[tuple[str, str | None], Context] = {}
        """The contexts in which `url` was called, by rollout id and the label of untrained calls (None: trained)."""
        self._calls: Counter[str] = Counter()
        """How many calls of each of these rollouts began."""
        self._gateway = Gateway(options, self)

    def url(self, path: str = "") -> str:
        """Return an agent's base URL, of the running rollout if there is one. `path`, such as `/v1`, is appended.

        In a block of `untrained`, it is an address whose calls are marked.
        """
        context = otel_context.get_current()
        running, label = running_trajectory(context), untrained_label(context)
        path = path if not path or path.startswith("/") else f"/{path}"  # else it would be a part of the id
        if label is not None:
            path = f"{UNTRAINED_PREFIX}{quote(label, safe='')}{path}"
        if running is None:
            return f"{self._gateway.url}{path}"
        if running.span.is_recording():
            self._remember(running.rollout_id, label, context)
        return f"{self._gateway.url}{PREFIX}{quote(running.rollout_id, safe='')}{path}"

    def start(self) -> None:
        """Start listening. Raises UsageError where the address cannot be used."""
        self._gateway.receiver.start()

    def stop(self) -> None:
        """Answer the requests that have come, and stop."""
        self._gateway.receiver.stop()

    def begin(self, exchange: Exchange, address: RequestAddress, server: str) -> Callable[[], None] | None:
        """Begin the span of a call, and return a function that ends it; None if `url` gave its rollout no address."""
        context = self._context(address)
        if context is None:
            return None
        self._calls[address.rollout_id or ""] += 1
        name, attributes = begun_call(exchange, address, server)
        return partial(_end, _start(name, context, attributes, exchange.start_ns), exchange)

    def reached_limit(self, address: RequestAddress, max_calls: int | None) -> int | None:
        """The limit of calls of a rollout that has reached it, which is noted in its metadata; else None."""
        context = self._context(address)
        limit = address.settings.get(names.MAX_CALLS, max_calls)
        if context is None or limit is None or self._calls[address.rollout_id or ""] < int(limit):
            return None
        running = running_trajectory(context)
        if running is not None:
            running.span.set_attributes({names.MAX_CALLS_REACHED: True})
        return int(limit)

    def note_unread(self, request: str, start_ns: int, address: RequestAddress, server: str) -> bool:
        """Record a request that could not be read; False if `url` gave its rollout no address."""
        context = self._context(address)
        if context is not None:
            _start(request, context, unread_attributes(request, server), start_ns).end()
        return context is not None

    def _context(self, address: RequestAddress) -> Context | None:
        """The context for a call's span; None where `url` gave the rollout no address.

        That is the context in which `url` was called, or the agent's own span, if the agent is in the same trace.
        """
        rollout_id = address.rollout_id or ""
        context = self._contexts.get((rollout_id, address.untrained)) or self._contexts.get((rollout_id, None))
        if context is None or address.parent is None:
            return context
        around = trace.get_current_span(context).get_span_context()
        # An agent with a trace of its own: its spans are not below ours, so the call goes below the span of `url`.
        if int(address.parent.trace_id, 16) != around.trace_id:
            return context
        traced = SpanContext(
            around.trace_id,
            int(address.parent.span_id, 16),
            is_remote=True,
            trace_flags=TraceFlags(TraceFlags.SAMPLED if address.parent.is_sampled else TraceFlags.DEFAULT),
            trace_state=around.trace_state,
        )
        return trace.set_span_in_context(NonRecordingSpan(traced), context)

    def has(self, rollout_id: str) -> bool:
        """Whether `url` gave a rollout an address."""
        return any(known == rollout_id for known, _ in list(self._contexts))

    def _remember(self, rollout_id: str, label: str | None, context: Context) -> None:
        if len(self._contexts) >= _CLEAN_AT:
            for key, given in list(self._contexts.items()):
                running = running_trajectory(given)
                if running is None or running.ended:
                    self._contexts.pop(key, None)
                    self._calls.pop(key[0], None)
        self._contexts[rollout_id, label] = context


def _start(name: str, context: Context, attributes: Attributes, start_ns: int) -> Span:
    tracer = trace.get_tracer(CALL_SCOPE.name, CALL_SCOPE.version)
    return tracer.start_span(name, context, kind=SpanKind.CLIENT, attributes=attributes, start_time=start_ns)


def _end(span: Span, exchange: Exchange) -> None:
    span.set_attributes(whole_attributes(response_body(exchange)))
    failure = exchange.why_failed()
    if failure is not None:
        set_error(span, failure.type, failure.message or failure.type)
    span.end(max(exchange.start_ns, exchange.end_ns))


class LocalGatewayKeywords(GatewayKeywords, ReceiverKeywords):
    """What `gateway` takes: the settings of a gateway, and those of its receiver."""


@asynccontextmanager
async def gateway(
    upstream: str | Iterable[str],
    *,
    listen: str = "127.0.0.1:0",
    **settings: Unpack[LocalGatewayKeywords],
) -> AsyncGenerator[LocalGateway]:
    """Run a gateway in front of one or several model servers while the block runs, like `art-otel gateway`.

        async with art_otel.gateway("http://vllm:8000") as gateway:
            @art_otel.rollout
            def solve(task):
                subprocess.run(["agent", task], env={**os.environ, "OPENAI_BASE_URL": gateway.url("/v1")})
                art_otel.reward(score(task))

    Inside a rollout, `url()` is an address of this rollout: calls to it belong to the rollout. Calls to other addresses
    of the gateway are kept below `dir` (default: ART_OTEL_DIR, else .art).

    The settings are the options of `art-otel gateway`: `tokens`, `keep_reasoning`, `policy_version_header`, `models`
    (names or globs, `!` excludes, such as `["policy-*", "!*judge*"]`: calls that ask for another model are marked as
    untrained), `translate`, `max_calls`; and those of `art_otel.receive` for its receiver. Raises UsageError for an
    address or a setting that cannot be used.
    """
    of_receiver, of_gateway = keywords_of_receiver(settings)
    options = GatewayOptions(
        upstreams=[upstream] if isinstance(upstream, str) else [*upstream],
        receiver=ReceiverOptions(http=Address.parse(listen), limits=LIMITS, **of_receiver),
        **of_gateway,
    )
    local = LocalGateway(options)
    await asyncio.to_thread(local.start)
    try:
        yield local
    finally:
        await asyncio.to_thread(local.stop)
