"""Gateway: model servers as agents see them, with every call recorded.

    agent ─► Gateway ─► model server          a request comes, belongs to a rollout, goes to a server, streams back
                │
                └─► Ingest ─► spool ─► …      and is a span, as if the agent had sent it to the receiver

Invariant: status, headers and bytes are the server's, each piece as it comes; when the agent leaves, the server is
left. The span of a call is in the spool before the agent has the last of the answer. API keys go to the server and
nowhere else. The gateway's own paths are /healthz, /metrics, /rollout/ID/end, /rollout/ID/reward and the receiver's.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol, TypeAlias, get_args
from uuid import uuid4

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from art_otel.conventions import values
from art_otel.data.model_names import ANOTHER_MODEL, is_among
from art_otel.errors import UsageError
from art_otel.exchange.bodies import CallFailure
from art_otel.exchange.chat_request import UntranslatableError
from art_otel.exchange.exchange import FIRST_REFUSAL, Exchange, dialect_of
from art_otel.exchange.token_requests import TokenRequests
from art_otel.exchange.translation import CHAT_PATH, Translation
from art_otel.http import CONNECTION, BodyLimits, TimedProtocol, WebPageCheck
from art_otel.model_gateway.addresses import (
    RequestAddress,
    RequestTarget,
    is_for_gateway,
    read_address,
    read_target,
)
from art_otel.model_gateway.call_spans import call_span, gateway_resource, now_ns, unread_span
from art_otel.model_gateway.connections import Answer, RawHeaders, UnreachableError, UpstreamError
from art_otel.model_gateway.conversations import Conversations
from art_otel.model_gateway.exact import Answers, ExactTokens
from art_otel.model_gateway.forwarding import Forwarding
from art_otel.model_gateway.other_requests import UnreadRequests, may_sample, plain
from art_otel.model_gateway.own_answers import OwnAnswer, last_of_rollout, untranslatable
from art_otel.model_gateway.responding import (
    OF_CONNECTION,
    error_response,
    send_end,
    send_error,
    send_piece,
    send_start,
)
from art_otel.model_gateway.rollout_paths import RolloutPaths, is_of_rollout
from art_otel.model_gateway.rollouts import GatewayRollout, Rollouts
from art_otel.model_gateway.translating import Translate, Translating, chat_exchange, chat_headers
from art_otel.model_gateway.upstreams import Upstream, Upstreams
from art_otel.receiver.export import ExportRefusedError, ReceivedRecords
from art_otel.receiver.ingest import RUNNING, UNWRITABLE
from art_otel.receiver.receiver import Receiver, ReceiverOptions
from art_otel.spans import Span
from art_otel.tracing.internal_errors import InternalErrorHandler

if TYPE_CHECKING:
    from starlette.routing import Route

Tokens: TypeAlias = Literal["auto", "passthrough", "exact", "off"]
"""How token ids are had: `auto` is `exact` where the server can, else `passthrough`."""

LIMITS: Final = BodyLimits(all_bytes=1 << 30, seconds=300.0)
"""Bodies are held until they are recorded."""

_OWN_PATHS: Final = ("/healthz", "/metrics", "/v1/traces", f"/v1/traces{RUNNING}", "/v1/logs")
_OWN_PREFIX: Final = "/v1/rollouts/"
_NOT_SENT: Final = OF_CONNECTION | {b"host", b"content-length"}
_LOOK_EVERY: Final = 0.5

_ENDS: Final = "the gateway ends"

_READING: Final = InternalErrorHandler("an answer could not be read; its call is recorded as far as it was")
_RECORDING: Final = InternalErrorHandler("a call could not be recorded; its rollout says that it is missing")
_CONTINUING: Final = InternalErrorHandler("a call could not be brought to the conversation it continues")


@dataclass(frozen=True, kw_only=True, slots=True)
class GatewayOptions:
    """`upstreams` are the addresses of the model servers; `receiver` says where to listen and what to keep.

    `otlp` is the address of a collector that gets the spans as well. `models` are names or globs, `!` excludes, as of
    `art_otel.batches`: calls that ask for another model are marked as untrained. `max_calls` is how many calls a
    rollout may have; each one behind them is answered with a text that ends the agent's loop.
    """

    upstreams: Sequence[str]
    receiver: ReceiverOptions = field(default_factory=lambda: ReceiverOptions(bodies=LIMITS))
    tokens: Tokens = "auto"
    keep_reasoning: bool = False
    policy_version_header: str | None = None
    otlp: str | None = None
    models: tuple[str, ...] | None = None
    translate: Translate = "auto"
    max_calls: int | None = None


@dataclass(kw_only=True, slots=True)
class _RelayedCall:
    """A request on its way. `exchange` is None where it asks for no completion, and is not recorded.

    `may_sample` says that it may ask for one in a dialect that is not known.
    `own_answer` is what the gateway answers itself: the server is not asked.
    `told` is done when a receiver knows of it. `has_begun` says that the agent has the beginning of an answer, `is_cut`
    that it gets no end of it.
    `end_in_app` ends its span where that is one of the app around the gateway.
    """

    method: str
    target: RequestTarget
    headers: RawHeaders
    body: bytes
    address: RequestAddress
    upstream: Upstream
    rollout: GatewayRollout | None = None
    exchange: Exchange | None = None
    may_sample: bool = False
    own_answer: OwnAnswer | None = None
    start_ns: int = field(default_factory=now_ns)
    told: asyncio.Future[None] | None = None
    end_in_app: Callable[[], None] | None = None
    is_recorded: bool = False
    has_begun: bool = False
    is_cut: bool = False

    @property
    def path(self) -> str:
        """Path and query for the server."""
        if self.translation is not None:
            return CHAT_PATH
        return f"{self.target.path}?{self.target.query}" if self.target.query else self.target.path

    @property
    def translation(self) -> Translation | None:
        """How the agent asked, where the server is asked in another dialect."""
        return None if self.exchange is None else self.exchange.translation


class AppRollouts(Protocol):
    """The rollouts that run in the gateway's own process, whose calls its tracer records."""

    def begin(self, exchange: Exchange, address: RequestAddress, server: str) -> Callable[[], None] | None:
        """Begin the span of a call, and give what ends it; None where its rollout is none of them."""
        ...

    def note_unread(self, request: str, start_ns: int, address: RequestAddress, server: str) -> bool:
        """Record a request that could not be read; False where its rollout is none of them."""
        ...

    def has(self, rollout_id: str) -> bool:
        """Whether a rollout is one of them."""
        ...


class Gateway:
    """A receiver with the model servers behind the same address. It is the receiver's Front.

    Raises UsageError for options that make no sense.
    """

    def __init__(self, options: GatewayOptions, app: AppRollouts | None = None) -> None:
        if options.tokens not in get_args(Tokens):
            raise UsageError(f"tokens={options.tokens!r}: write one of {', '.join(get_args(Tokens))}")
        if options.translate not in get_args(Translate):
            raise UsageError(f"translate={options.translate!r}: write one of {', '.join(get_args(Translate))}")
        if options.max_calls is not None and options.max_calls < 1:
            raise UsageError(f"max_calls={options.max_calls}: give a whole number, 1 or more")
        self.options = options
        self._app = app
        resource = gateway_resource()
        self._resource = resource
        self._rollouts = Rollouts(resource=resource, grace=options.receiver.grace)
        self.routes: Sequence[Route] = RolloutPaths(
            rollouts=self._rollouts,
            read=lambda request: self.receiver.bodies.read(request),  # noqa: PLW0108 # the receiver comes later
            write=self._write,
            synced=self._synced,
            is_of_app=lambda rollout_id: app is not None and app.has(rollout_id),
        ).routes
        self._conversations = Conversations()
        self._unread = UnreadRequests()
        self._upstreams = Upstreams(options.upstreams)
        self._token_requests = TokenRequests()
        self._exact = (
            ExactTokens(self._upstreams, keep_reasoning=options.keep_reasoning)
            if options.tokens in ("auto", "exact")
            else None
        )
        samplers = None if self._exact is None else self._exact.samplers
        self._translating = (
            Translating(self._upstreams, samplers, wants_ids=options.tokens != "off")
            if options.translate == "auto"
            else None
        )
        self._looking: asyncio.Task[None] | None = None
        self._running: dict[asyncio.Task[Any], _RelayedCall] = {}
        self.receiver = Receiver(options.receiver, self)
        self._forwarding = (
            None
            if options.otlp is None
            else Forwarding(options.otlp, self.receiver.ingest.scrubbed, self.receiver.metrics, self._rollouts)
        )

    @property
    def url(self) -> str:
        """Where it listens."""
        return self.receiver.url

    def application(self, receiver: ASGIApp) -> ASGIApp:
        """Answer what is for the gateway's own paths by the receiver, and everything else by a model server."""
        proxy = WebPageCheck(self._proxy, self.options.receiver.http, self.receiver_refused)

        async def dispatch(scope: Scope, receive: Receive, send: Send) -> None:
            if scope["type"] != "http" or _is_own(scope["path"]):
                await receiver(scope, receive, send)
            else:
                await proxy(scope, receive, send)

        return dispatch

    def receiver_refused(self, path: str, status: int, why: str) -> None:
        """Count a request that a guard refused."""
        self.receiver.metrics.refused(status, why, path=path)

    async def start(self) -> None:
        """Begin to look for rollouts that are over. Raises UsageError where a server cannot what it has to."""
        for upstream in self._upstreams:
            if self.options.tokens == "exact" and self._exact is not None:
                await self._exact.samplers.check(upstream)
        self._looking = asyncio.create_task(self._look())
        if self._forwarding is not None:
            self._forwarding.start()

    async def leave(self) -> None:
        """Cut the calls that run: their rollouts say so, and the agents see no end."""
        for relaying, call in self._running.items():
            if call.exchange is not None and not call.is_recorded:
                call.exchange.failure = CallFailure("GatewayEnded", _ENDS)
            relaying.cancel()

    async def stop(self) -> None:
        """End all rollouts, and leave the servers."""
        if self._looking is not None:
            self._looking.cancel()
        self._write_once([*self._rollouts.close()])
        if self._forwarding is not None:
            await self._forwarding.stop()
        self._upstreams.close()

    async def _proxy(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request as a model server does."""
        request = Request(scope, receive)
        if request.headers.get("upgrade", "").lower() == "websocket":
            await error_response(501, "no websocket passes here; ask by HTTP")(scope, receive, send)
            return
        try:
            target = read_target(scope["raw_path"].decode("ascii"), scope["query_string"].decode("ascii"))
            async with self.receiver.bodies.read(request) as body:
                call = await self._begin(request, target, body)
                await self._pass_through(call, send, scope["extensions"][CONNECTION]["connection"])
        except (UsageError, UnicodeDecodeError) as error:
            await error_response(400, str(error))(scope, receive, send)
        except HTTPException as refused:
            await error_response(refused.status_code, refused.detail)(scope, receive, send)

    async def _begin(self, request: Request, target: RequestTarget, body: bytes) -> _RelayedCall:
        """Read where a request belongs, and choose its server, and the dialect in which that is asked."""
        path = plain(target.path)
        dialect = dialect_of(path) if request.method == "POST" else None
        exchange = None if dialect is None else Exchange(dialect, path, body, now_ns())
        headers = dict(request.headers)  # a dictionary finds them at once
        address = read_address(target, headers, None if exchange is None else exchange.request)
        if exchange is not None and address.untrained is None:
            is_policys = is_among(self.options.models, values.text(exchange.request.get("model")))
            address = address if is_policys else address._replace(untrained=ANOTHER_MODEL)
        asked, own_answer = exchange, None
        upstream = self._upstreams.choose(address.rollout_id)
        if exchange is not None:
            exchange, own_answer = await self._translate(exchange, address, upstream, request.headers.raw, target.query)
        elif self._translating is not None and request.method == "POST":
            own_answer = await self._translating.count(path, body, upstream, _for_server(request.headers.raw))
        if exchange is not None and address.source == "conversation":
            address = address._replace(rollout_id=uuid4().hex)
            with _CONTINUING:
                known = self._conversations.rollout_of(exchange.request)
                address = address if known is None else address._replace(rollout_id=known)
            if exchange is asked:  # what was translated, was so for its server
                upstream = self._upstreams.choose(address.rollout_id)
        limit = self._rollouts.reached_limit(address, self.options.max_calls)
        if asked is not None and limit is not None:
            exchange, own_answer = None, last_of_rollout(asked, limit, target.query)
        call = _RelayedCall(
            method=request.method,
            target=target,
            headers=request.headers.raw,
            body=body,
            address=address,
            upstream=upstream,
            exchange=exchange,
            own_answer=own_answer,
            may_sample=dialect is None and may_sample(request.method, path, body, headers.get("content-encoding", "")),
        )
        if exchange is not None:
            with _RECORDING:
                call.end_in_app = None if self._app is None else self._app.begin(exchange, address, call.upstream.url)
            if address.rollout_id is not None and address.is_ours and call.end_in_app is None:
                call.rollout = self._rollouts.begin_call(address.rollout_id, address, exchange.start_ns)
                if self._forwarding is not None:
                    call.told = self._forwarding.running_calls.add(call.rollout)
        return call

    async def _translate(
        self, exchange: Exchange, address: RequestAddress, upstream: Upstream, headers: RawHeaders, query: str
    ) -> tuple[Exchange, OwnAnswer | None]:
        """A request as its server is asked it, and the refusal where its server cannot be asked."""
        if self._translating is None:
            return exchange, None
        sent, is_trained = _for_server(headers), address.untrained is None
        made = await self._translating.translate(exchange, upstream, sent, query, is_trained=is_trained)
        if isinstance(made, UntranslatableError):
            return exchange, untranslatable(exchange, made)
        return (exchange if made is None else chat_exchange(exchange, made)), None

    async def _pass_through(self, call: _RelayedCall, send: Send, connection: TimedProtocol) -> None:
        """Relay a call until it is answered, the agent leaves or the gateway ends; then the server is left as well.

        Where the answer has no end, the agent's connection has none.
        """
        relaying = asyncio.current_task()
        assert relaying is not None  # noqa: S101 # a coroutine runs in a task
        self._running[relaying] = call
        call.upstream.open += 1
        try:
            connection.when_left(relaying.cancel)
            await self._relay(call, send)
        except asyncio.CancelledError:
            relaying.uncancel()  # the request has been dealt with, and its task ends as others do
            connection.when_left(None)
            self._record(call)
            if call.has_begun:
                call.is_cut = True
            elif not connection.is_left:  # the gateway ends
                await send_error(503, _ENDS, call.method, send)
        finally:
            connection.when_left(None)
            del self._running[relaying]
            call.upstream.open -= 1
            self._record(call)
        if call.is_cut and not connection.is_left:
            await connection.end()

    async def _relay(self, call: _RelayedCall, send: Send) -> None:
        """Ask the server, and hand on what it answers."""
        try:
            answered = await self._ask(call)
        except UpstreamError as error:
            what = "cannot be reached" if isinstance(error, UnreachableError) else "broke off"
            await self._fail(call, error, send, what)
            return
        except asyncio.CancelledError:
            if call.exchange is not None and call.exchange.failure is None:
                call.exchange.failure = CallFailure("CancelledError")
            raise
        try:
            await self._hand_on(call, answered, send)
        except UpstreamError as error:
            await self._fail(call, error, send, "broke off", answered.failed(error) if call.has_begun else b"")
        except asyncio.CancelledError:
            exchange = call.exchange
            if exchange is not None and not (call.is_recorded or exchange.failure):
                if exchange.has_sampled:
                    exchange.was_left = True
                else:
                    exchange.failure = CallFailure("CancelledError")
            raise
        finally:
            answered.close()

    async def _ask(self, call: _RelayedCall) -> Answers:
        """Send a request to be sampled from ids, or with token ids asked for; with less where that is refused."""
        exchange, server = call.exchange, call.upstream.url
        if call.own_answer is not None:
            return call.own_answer
        if exchange is not None and self._exact is not None:
            exact = await self._exact.ask(exchange, call.upstream, exchange.path, self._headers(call), call.address)
            if exact is not None:
                return exact
        if exchange is None or self.options.tokens == "off":
            return await self._send(call)
        asking = self._token_requests.begin(server, exchange.path, exchange.request)
        exchange.added = asking.additions
        answered = await self._send(call)
        while asking.may_be_why(answered.status):
            asking.ask_less(answered.status, await _read(answered))
            exchange.added = asking.additions
            answered = await self._send(call)
            asking.answered(answered.status)
        return answered

    async def _send(self, call: _RelayedCall) -> Answer:
        headers, exchange = self._headers(call), call.exchange
        body = call.body if exchange is None else exchange.body
        if exchange is not None and exchange.added.is_hidden:
            headers += [(name.encode(), value.encode()) for name, value in exchange.added.ask.headers.items()]
            body = exchange.added.body(exchange.fields) or body
        return await self._upstreams.send(call.upstream, call.method, call.path, headers, body)

    def _headers(self, call: _RelayedCall) -> list[tuple[bytes, bytes]]:
        """The headers of a request that are for its server."""
        headers = _for_server(call.headers)
        if call.exchange is not None:  # what is compressed nobody could read on its way
            headers = [(name, value) for name, value in headers if name != b"accept-encoding"]
            headers.append((b"accept-encoding", b"identity"))
        if call.translation is not None:
            headers = chat_headers(headers, call.target.query)
        return headers

    async def _hand_on(self, call: _RelayedCall, answered: Answers, send: Send) -> None:
        """Send the answer piece by piece. What ends it waits until the call is recorded."""
        exchange, translation = call.exchange, call.translation
        if exchange is None:
            if call.may_sample and answered.status < FIRST_REFUSAL:
                self._note_unread(call)
            call.has_begun = True
            await send_start(answered, send)
            async for piece in answered.pieces():
                await send_piece(piece, send)
            await send_end(send)
            return
        exchange.begin(answered.status, answered.headers.get("content-type", "").encode())
        if self.options.policy_version_header is not None:
            exchange.policy_version = answered.headers.get(self.options.policy_version_header.lower())
        if exchange.is_stream:
            call.has_begun = True
            stream_type = None if translation is None else translation.stream_type
            is_changed = translation is not None or exchange.added.is_hidden
            await send_start(answered, send, content_type=stream_type, is_changed=is_changed)
        async for piece in answered.pieces():
            passed = _taken(exchange, piece)
            if translation is not None:
                passed = translation.take(passed)
            if exchange.is_over:
                await self._finish(call)
            await send_piece(passed, send)
        status, rest = answered.status, _rest(exchange)
        if translation is not None:
            status, rest = translation.rest(status, rest, is_stream=exchange.is_stream)
        await self._finish(call)
        if not exchange.is_stream:
            call.has_begun = True
            await send_start(answered, send, status=status, length=len(rest))
        await send_end(send, rest)

    async def _fail(self, call: _RelayedCall, error: UpstreamError, send: Send, what: str, last: bytes = b"") -> None:
        """The server cannot be reached, or broke off. What the agent has begun to get ends with `last`, or is cut."""
        self.receiver.metrics.add("art_otel_gateway_upstream_errors_total")
        if call.exchange is not None and not call.is_recorded:
            call.exchange.failure = CallFailure(type(error).__name__, str(error))
        await self._finish(call)
        if call.has_begun and call.exchange is not None and call.translation is None:
            await send_piece(_rest(call.exchange), send)
        if last and call.translation is not None:
            last = call.translation.take(last) + call.translation.end()
        if last:
            await send_end(send, last)
        elif call.has_begun:
            call.is_cut = True
        else:
            await send_error(502, f"the model server at {call.upstream.shown} {what}: {error}", call.method, send)

    async def _finish(self, call: _RelayedCall) -> None:
        """Record a call durably, and see that the receiver at the other end of `--otlp` knows that it began."""
        if call.exchange is not None and not call.is_recorded:
            self._record(call)
            if not await self._synced() and call.rollout is not None:
                self._rollouts.end_again(call.rollout)
        if call.told is not None and self._forwarding is not None:
            await self._forwarding.running_calls.wait(call.told)

    def _record(self, call: _RelayedCall) -> None:
        """Write the span of a call, once. The rollout counts it also where that fails."""
        exchange, rollout = call.exchange, call.rollout
        if exchange is None or call.is_recorded:
            return
        call.is_recorded = True
        exchange.end_ns = now_ns()
        if call.translation is not None and call.translation.failure is not None and exchange.failure is None:
            exchange.failure = CallFailure("TranslationError", call.translation.failure)  # the agent got no answer
        outcome = None if exchange.sampled is None else exchange.sampled.outcome
        of_rollout = [] if rollout is None else self._rollouts.end_call(rollout)
        is_written = False
        with _RECORDING:
            if call.end_in_app is not None:
                call.end_in_app()
                is_written = True
            else:
                span = call_span(exchange, call.address, call.upstream.url, self._resource)
                is_written = self._write_once([*of_rollout, span])
        self.receiver.metrics.add(f"art_otel_gateway_{'calls' if is_written else 'unrecorded_calls'}_total")
        if outcome is not None:
            self.receiver.metrics.add("art_otel_gateway_prompts_total", labels=f'{{outcome="{outcome}"}}')
        if rollout is not None and not is_written:
            self._rollouts.end_again(rollout)
        if call.address.source == "conversation" and call.address.rollout_id is not None:
            with _CONTINUING:
                self._conversations.answered(call.address.rollout_id, exchange.request, exchange.answer or {})

    def _note_unread(self, call: _RelayedCall) -> None:
        """Say of a request that it may have been a call: in the log, and on its rollout, if that is known."""
        path, address, server = plain(call.target.path), call.address, call.upstream.url
        request = f"POST {self._unread.warn(path)}"
        with _RECORDING:
            if self._app is not None and self._app.note_unread(request, call.start_ns, address, server):
                return
            if address.rollout_id is None and address.parent is None:  # it continues no conversation that can be read
                return
            of_rollout: list[Span] = []
            if address.rollout_id is not None and address.is_ours:
                of_rollout = self._rollouts.end_call(
                    self._rollouts.begin_call(address.rollout_id, address, call.start_ns)
                )
            self._write_once([*of_rollout, unread_span(request, address, server, self._resource, call.start_ns)])

    def _write(self, spans: Sequence[Span]) -> bool:
        """Write spans to the spool; False, logged there, where the disk refuses them."""
        if not spans:
            return True
        try:
            self.receiver.ingest.write(ReceivedRecords(records=[*spans]))
        except ExportRefusedError as refused:
            self.receiver.metrics.refused(refused.status, str(refused))
            return False
        if self._forwarding is not None:
            self._forwarding.add(spans)
        return True

    async def _synced(self) -> bool:
        """Wait for the disk, where it has to have what was written; False, as `_write` is, where it refuses."""
        is_synced = await self.receiver.ingest.synced()
        if not is_synced:
            self.receiver.metrics.refused(503, UNWRITABLE)
        return is_synced

    def _write_once(self, spans: Sequence[Span]) -> bool:
        """Write spans that nobody writes again: the collector gets them also where the disk refuses them."""
        is_written = self._write(spans)
        if not is_written and self._forwarding is not None:
            self._forwarding.add(spans)
        return is_written

    async def _look(self) -> None:
        """Write what ended by being quiet, as long as the gateway runs; the receiver waits for what has not."""
        while True:
            await asyncio.sleep(min(_LOOK_EVERY, self.options.receiver.grace))
            with _RECORDING:
                self._rollouts.end_quiet(now_ns(), self._write)
                self.receiver.finished.keep_open(self._rollouts.open)


def _is_own(path: str) -> bool:
    return is_of_rollout(path) or path in _OWN_PATHS or path.startswith(_OWN_PREFIX)


def _for_server(headers: RawHeaders) -> list[tuple[bytes, bytes]]:
    return [(name, value) for name, value in headers if name not in _NOT_SENT and not is_for_gateway(name, value)]


async def _read(answered: Answer) -> bytes:
    try:
        return b"".join([piece async for piece in answered.pieces()])
    finally:
        answered.close()


def _taken(exchange: Exchange, piece: bytes) -> bytes:
    with _READING:
        return exchange.take(piece)
    return piece


def _rest(exchange: Exchange) -> bytes:
    with _READING:
        return exchange.rest()
    return exchange.refusal()
