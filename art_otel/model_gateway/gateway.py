"""Gateway: passes requests of agents to model servers, and records every call.

    agent ─► Gateway ─► model server          a request comes, belongs to a rollout, goes to a server, streams back
                │
                └─► Ingest ─► spool ─► …      and becomes a span, as if the agent had sent one to the receiver

Invariant: the agent gets the server's status, headers and bytes, each piece of a stream as it comes. Only what the
gateway itself asked for is taken out, and an answer in another dialect is translated. When the agent hangs up, the
gateway hangs up on the server. The span of a call is in the spool before the agent has the last piece of the answer.
API keys go to the server and nowhere else. The gateway's own paths are /healthz, /metrics, /rollout/ID/end,
/rollout/ID/reward and those of the receiver.
"""

import asyncio
import time
from collections.abc import Awaitable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Receive, Scope, Send

from art_otel.data.model_names import ANOTHER_MODEL, is_among
from art_otel.errors import UsageError
from art_otel.exchange.api_dialects import API_DIALECTS, CHAT, dialect_of
from art_otel.exchange.chat_request import UntranslatableError
from art_otel.exchange.exchange import FIRST_ERROR, Exchange
from art_otel.exchange.failures import CallFailure
from art_otel.exchange.token_requests import NO_ADDITIONS, RequestAdditions, TokenRequests
from art_otel.http import CONNECTION, Answering, BodyLimits, RawHeaders, WebPageCheck
from art_otel.model_gateway.addresses import (
    MAY_NAME,
    Conversations,
    RequestTarget,
    is_for_gateway,
    is_of_rollout,
    read_address,
    read_target,
)
from art_otel.model_gateway.attempts import ATTEMPTS, Attempts
from art_otel.model_gateway.exact import AnyAnswer, ExactTokens
from art_otel.model_gateway.forwarding import Forwarding
from art_otel.model_gateway.id_server import read
from art_otel.model_gateway.other_requests import UnreadRequests, may_sample
from art_otel.model_gateway.own_answers import error_response, last_of_rollout, send_error, untranslatable
from art_otel.model_gateway.relayed_call import Recorder, RelayedCall
from art_otel.model_gateway.rollout_paths import RolloutPaths
from art_otel.model_gateway.rollouts import Rollouts, call_span, gateway_resource, now_ns, unread_span
from art_otel.model_gateway.server_abilities import ServerAbilities
from art_otel.model_gateway.settings import GatewaySettings, read_models
from art_otel.model_gateway.translating import Translating, chat_exchange, chat_headers
from art_otel.model_gateway.upstreams import Answer, UnreachableError, UpstreamError, Upstreams
from art_otel.receiver.export import ExportRefusedError
from art_otel.receiver.ingest import RUNNING_PATH, UNWRITABLE
from art_otel.receiver.receiver import Receiver, ReceiverOptions
from art_otel.spans import Span
from art_otel.tracing.internal_errors import InternalErrorHandler

if TYPE_CHECKING:
    from starlette.routing import Route

    from art_otel.model_gateway.in_process import LocalGateway
    from art_otel.model_gateway.worker import GatewayWorker

LIMITS: Final = BodyLimits(all_bytes=1 << 30, seconds=300.0)
"""Limits for the bodies of requests, which are held in memory until their calls are recorded."""

_OWN_PATHS: Final = ("/healthz", "/metrics", "/v1/traces", f"/v1/traces{RUNNING_PATH}", "/v1/logs")
_OWN_PREFIX: Final = "/v1/rollouts/"


def is_of_receiver(path: str) -> bool:
    """Whether the receiver answers at a path."""
    return path in _OWN_PATHS or path.startswith(_OWN_PREFIX)


_OF_CONNECTION: Final = frozenset(
    [b"connection", b"keep-alive", b"proxy-connection", b"te", b"trailer", b"transfer-encoding", b"upgrade", b"expect"]
)
_NOT_SENT: Final = _OF_CONNECTION | {b"host", b"content-length"}
_NOT_SENT_OF_CALL: Final = _NOT_SENT | {b"accept-encoding"}
"""The gateway reads answers on their way, so it asks for uncompressed ones."""
_AS_IT_IS: Final = (b"accept-encoding", b"identity")
_NOT_ANSWERED: Final = _OF_CONNECTION | {b"date"}
"""Headers of an answer that the agent does not get; the gateway's own HTTP server writes its own date."""
_NOT_CHANGED: Final = _NOT_ANSWERED | {b"content-length"}

_LOOK_EVERY: Final = 0.5

_ENDS: Final = "the gateway ends"

_READING: Final = InternalErrorHandler("an answer could not be read; its call is recorded up to that point")
_RECORDING: Final = InternalErrorHandler("a call could not be recorded; its rollout says that it is missing")
_CONTINUING: Final = InternalErrorHandler("a call could not be linked to the conversation that it continues")


@dataclass(frozen=True, kw_only=True)
class GatewayOptions(GatewaySettings):
    """The settings of a gateway, with its addresses.

    `upstreams` are the URLs of the model servers; `receiver` says where to listen and what to keep. `otlp` is the URL
    of a collector that gets the spans as well.
    """

    upstreams: Sequence[str]
    receiver: ReceiverOptions = field(default_factory=lambda: ReceiverOptions(limits=LIMITS))
    otlp: str | None = None


class Gateway:
    """A receiver with the model servers behind the same address; it is the receiver's `Front`.

    `app` has the rollouts of the app around this gateway, if there is one, and records their calls itself. `worker` is
    given to one of several worker processes, which has no receiver of its own. Raises UsageError for invalid options.
    """

    def __init__(
        self, options: GatewayOptions, app: "LocalGateway | None" = None, worker: "GatewayWorker | None" = None
    ) -> None:
        self.options = options
        self._models = read_models(options.models)
        self._app = app
        resource = gateway_resource()
        self._resource = resource
        self._worker = worker
        self._attempts = Attempts(options.receiver.folder / ATTEMPTS, options.receiver.retain)
        self._rollouts = Rollouts(resource=resource, grace=options.receiver.grace, attempts=self._attempts)
        self.routes: Sequence[Route] = RolloutPaths(
            rollouts=self._rollouts,
            read=lambda scope, receive: self._recorder.bodies.read(scope, receive),  # noqa: PLW0108 # it comes later
            write=self._write,
            synced=self._synced,
            is_of_app=lambda rollout_id: app is not None and app.has(rollout_id),
            is_elsewhere=None if worker is None else worker.is_elsewhere,
        ).routes
        self._conversations = Conversations()
        self._unread = UnreadRequests()
        self._upstreams = Upstreams(options.upstreams)
        self._token_requests = TokenRequests()
        self._abilities = abilities = {one.url: ServerAbilities(self._upstreams, one) for one in self._upstreams}
        self._exact = (
            ExactTokens(self._upstreams, abilities, keep_reasoning=options.keep_reasoning)
            if options.tokens in ("auto", "exact")
            else None
        )
        is_translating = options.translate == "auto"
        self._translating = Translating(self._upstreams, abilities, options.tokens) if is_translating else None
        self._looking: asyncio.Task[None] | None = None
        self._is_ending = False
        self._running: dict[asyncio.Task[Any], RelayedCall] = {}
        self._receiver = None if worker is not None else Receiver(options.receiver, self)
        self._recorder: Recorder = worker or self.receiver
        self._forwarding = (
            None
            if options.otlp is None
            else Forwarding(options.otlp, self._recorder.ingest.scrubbed, self._recorder.metrics, self._rollouts)
        )

    @property
    def receiver(self) -> Receiver:
        """The gateway's receiver; a worker has none."""
        assert self._receiver is not None  # noqa: S101 # a worker's is that of its parent
        return self._receiver

    @property
    def url(self) -> str:
        """The address at which the gateway listens."""
        return self.receiver.url

    def application(self, receiver: ASGIApp) -> ASGIApp:
        """An application that answers the gateway's own paths by the receiver, all others by a model server."""
        proxy = WebPageCheck(self._proxy, self.options.receiver.http, self.receiver_refused)

        def dispatch(scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
            path = scope.get("path", "")
            is_own = is_of_receiver(path) or is_of_rollout(path)
            return (receiver if scope["type"] != "http" or is_own else proxy)(scope, receive, send)

        return dispatch

    def receiver_refused(self, path: str, status: int, why: str) -> None:
        """Count a request that was refused before it reached a path (a web page's, or one without the token)."""
        self._recorder.metrics.refused(status, why, path=path)

    async def start(self) -> None:
        """Start looking for rollouts that are over. Raises UsageError if `tokens="exact"` and a server cannot do it."""
        for abilities in self._abilities.values():
            if self.options.tokens == "exact":
                await abilities.check_exact()
        self._looking = asyncio.create_task(self._look())
        if self._forwarding is not None:
            self._forwarding.start()

    async def leave(self) -> None:
        """Break off the running calls, which are recorded as failed, and refuse new ones."""
        self._is_ending = True
        for relaying, call in self._running.items():
            if call.exchange is not None and not call.is_recorded:
                call.exchange.failure = CallFailure("GatewayEnded", _ENDS)
            relaying.cancel()

    async def stop(self) -> None:
        """End all rollouts, and close the connections to the servers."""
        if self._looking is not None:
            self._looking.cancel()
        self._write([*self._rollouts.close()], is_last=True)
        if self._forwarding is not None:
            await self._forwarding.stop()
        self._upstreams.close()
        self._attempts.close()

    async def _proxy(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request as a model server does, in three steps.

        `_begin` finds the rollout, the server and the dialect of the request. `_relay` asks the server, and passes the
        answer to the agent piece by piece. `_record` writes the span of the call before the last piece.
        """
        if self._is_ending:
            await error_response(503, _ENDS)(scope, receive, send)
            return
        # Reversed, so that of several headers with one name the first one is kept.
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in reversed(scope["headers"])}
        if headers.get("upgrade", "").lower() == "websocket":
            await error_response(501, "WebSockets are not supported; use HTTP")(scope, receive, send)
            return
        try:
            target = read_target(scope["raw_path"].decode("ascii"), scope["query_string"].decode("ascii"))
            async with self._recorder.bodies.read(scope, receive) as body:
                call = await self._begin(scope, target, headers, body)
                if call is not None:
                    await self._pass_through(call, scope["extensions"][CONNECTION]["answering"])
        except (UsageError, UnicodeDecodeError) as error:
            await error_response(400, str(error))(scope, receive, send)
        except HTTPException as refused:
            await error_response(refused.status_code, refused.detail)(scope, receive, send)

    async def _begin(
        self, scope: Scope, target: RequestTarget, headers: Mapping[str, str], body: bytes
    ) -> RelayedCall | None:
        """Find the rollout of a request, its server, and the dialect in which to ask the server.

        Returns None if another worker has the rollout; that worker then answers the request.
        """
        method: str = scope["method"]
        raw_headers: RawHeaders = scope["headers"]
        dialect = dialect_of(target.plain) if method == "POST" else None
        asked = None if dialect is None else Exchange(dialect, target.plain, body, now_ns())
        address = read_address(target, headers, None if asked is None else asked.settings)
        if asked is not None and self._models is not None and address.untrained is None:
            is_policys = is_among(self._models, asked.model)
            address = address if is_policys else address._replace(untrained=ANOTHER_MODEL)
        if self._worker is not None:
            # A call that names no rollout continues a conversation; worker 0 (key "") knows all conversations.
            key = address.rollout_id or ("" if address.parent is None else address.parent.trace_id)
            if (key or asked is not None) and await self._worker.is_elsewhere(scope, body, key):
                return None
        if asked is not None and address.source == "conversation":
            known = None
            with _CONTINUING:
                known = self._conversations.rollout_of(asked.request)
            address = address._replace(rollout_id=known or uuid4().hex)
        upstream = self._upstreams.choose(address.rollout_id)
        # The server gets the agent's headers, but for those of the connection and those that name a rollout.
        not_sent = _NOT_SENT if asked is None else _NOT_SENT_OF_CALL
        for_server = [
            (name, value)
            for name, value in raw_headers
            if name not in not_sent and (name not in MAY_NAME or not is_for_gateway(name, value))
        ]
        if asked is not None:
            for_server.append(_AS_IT_IS)
        path = f"{target.path}?{target.query}" if target.query else target.path
        exchange, translation, own_answer = asked, None, None
        if self._translating is not None and asked is None and method == "POST":
            own_answer = await self._translating.count(target.plain, body, upstream, for_server)
        elif self._translating is not None and asked is not None and asked.may_be_translated:
            is_trained = address.untrained is None
            made = await self._translating.translate(asked, upstream, for_server, target.query, is_trained=is_trained)
            if isinstance(made, UntranslatableError):
                own_answer = untranslatable(asked, made)
            elif made is not None:
                exchange, translation, path = chat_exchange(asked, made), made, CHAT.path
                for_server = chat_headers(for_server, target.query)
        if asked is not None:
            limit = self._rollouts.reached_limit(address, self.options.max_calls)
            if self._app is not None and limit is None:
                limit = self._app.reached_limit(address, self.options.max_calls)
            if limit is not None:
                exchange, own_answer = None, last_of_rollout(asked, limit, target.query)
        call = RelayedCall(
            method=method,
            target=target,
            path=path,
            headers=for_server,
            body=body,
            address=address,
            upstream=upstream,
            start_ns=now_ns() if asked is None else asked.start_ns,
            dialect=dialect,
            asked=asked,
            exchange=exchange,
            translation=translation,
            own_answer=own_answer,
            may_sample=asked is None and may_sample(method, target.plain, body, headers.get("content-encoding", "")),
        )
        if exchange is not None:
            if self._app is not None:
                with _RECORDING:
                    call.end_in_app = self._app.begin(exchange, address, upstream.url)
            if address.rollout_id is not None and address.is_ours and call.end_in_app is None:
                call.rollout = rollout = self._rollouts.begin_call(address.rollout_id, address, exchange.start_ns)
                call.address = address.of_attempt(rollout.attempt)
                if self._worker is not None:
                    call.slot = self._worker.begin_call(rollout, exchange.start_ns)
                if self._forwarding is not None:
                    call.told = self._forwarding.running_calls.add(rollout)
        return call

    async def _pass_through(self, call: RelayedCall, answering: Answering) -> None:
        """Relay a call until it is answered, the agent hangs up, or the gateway stops. The call is recorded always.

        If the answer breaks off, so does the agent's connection: else the agent would take a part for the whole.
        """
        relaying, connection = asyncio.current_task(), answering.connection
        assert relaying is not None  # noqa: S101 # a coroutine runs in a task
        self._running[relaying] = call
        call.upstream.open += 1
        try:
            connection.when_left(relaying.cancel)
            await self._relay(call, answering)
        except asyncio.CancelledError:
            relaying.uncancel()  # the cancellation was meant for the relaying only; the task goes on to its normal end
            connection.when_left(None)
            self._record(call)
            if call.has_begun:
                call.is_broken_off = True
            elif not connection.is_left:  # the gateway ends
                await send_error(503, _ENDS, call.method, answering, call.dialect)
        finally:
            connection.when_left(None)
            del self._running[relaying]
            call.upstream.open -= 1
            self._record(call)
        if call.is_broken_off and not connection.is_left:
            await connection.end()

    async def _relay(self, call: RelayedCall, answering: Answering) -> None:
        """Ask the server, and pass its answer to the agent. Note on the exchange what breaks it off."""
        try:
            answered = await self._ask(call)
        except UpstreamError as error:
            what = "cannot be reached" if isinstance(error, UnreachableError) else "broke off"
            await self._fail(call, error, answering, what)
            return
        except asyncio.CancelledError:
            if call.exchange is not None and call.exchange.failure is None:
                call.exchange.failure = CallFailure("CancelledError")
            raise
        try:
            await self._hand_on(call, answered, answering)
        except UpstreamError as error:
            await self._fail(call, error, answering, "broke off", answered.failed(error) if call.has_begun else b"")
        except asyncio.CancelledError:
            exchange = call.exchange
            if exchange is not None and not (call.is_recorded or exchange.failure):
                if exchange.has_sampled:  # the agent saw enough: its stream is a turn that was left, and no failure
                    exchange.note_closed("left")
                else:
                    exchange.failure = CallFailure("CancelledError")
            raise
        finally:
            answered.close()

    async def _ask(self, call: RelayedCall) -> AnyAnswer:
        """Get the server's answer: sampled from token ids where the server can do that, else with token ids asked for.

        If the server refuses the additions, it is asked again with less, in the end with the agent's own request.
        """
        exchange, upstream = call.exchange, call.upstream
        if call.own_answer is not None:
            return call.own_answer
        if exchange is None or self.options.tokens == "off":
            return await self._send(call)
        abilities = self._abilities[upstream.url]
        # What `samples_from_ids` would say without asking: nothing is awaited for most calls.
        may_be_exact = self._exact is not None and time.monotonic() >= abilities.lacks_ids_until
        if self._exact is not None and may_be_exact and API_DIALECTS[exchange.dialect].is_rendered:
            is_exact = None
            with suppress(UpstreamError):  # a server that cannot be reached: the request below will say so
                is_exact = await abilities.samples_from_ids(call.headers)
            if is_exact:
                exact = await self._exact.ask(exchange, upstream, call.headers, call.address)
                if exact is not None:
                    return exact
        asking = self._token_requests.begin(upstream.url, exchange.path, exchange.settings)
        return await asking.ask(partial(self._send, call), read)

    async def _send(self, call: RelayedCall, added: RequestAdditions = NO_ADDITIONS) -> Answer:
        headers, exchange, body = call.headers, call.exchange, call.body
        if exchange is not None:
            exchange.added, body = added, exchange.body
            if added.is_hidden:
                headers = [*headers, *((name.encode(), value.encode()) for name, value in added.ask.headers.items())]
                body = added.body(exchange.fields) or body
        return await self._upstreams.send(call.upstream, call.method, call.path, headers, body)

    async def _hand_on(self, call: RelayedCall, answered: AnyAnswer, answering: Answering) -> None:
        """Send the answer piece by piece. The piece that ends it is held until the call is recorded.

        An agent whose answer is whole may ask for its trajectory at once, and the call must be in it.
        """
        exchange, translation = call.exchange, call.translation
        if exchange is None:
            if call.may_sample and answered.status < FIRST_ERROR:
                self._note_unread(call)
            call.has_begun = True
            await answering.begin(answered.status, _kept_headers(answered))
            async for piece in answered.pieces():
                await answering.send(piece)
            await answering.end()
            return
        exchange.begin(answered.status, answered.headers.get(b"content-type", b""))
        if self.options.policy_version_header is not None:
            version = answered.headers.get(self.options.policy_version_header.lower().encode())
            exchange.policy_version = None if version is None else version.decode("latin-1")
        is_stream = exchange.is_stream
        if is_stream:
            call.has_begun = True
            stream_type = None if translation is None else translation.stream_type
            is_changed = translation is not None or exchange.added.is_hidden
            await answering.begin(answered.status, _kept_headers(answered, stream_type, is_changed=is_changed))
        async for piece in answered.pieces():
            try:
                passed = exchange.take(piece)
            except Exception as error:  # noqa: BLE001 # a fault of ours: the agent gets the answer as it came
                _READING.note(error)
                passed = piece
            if not is_stream and exchange.is_cut and not call.has_begun:
                if translation is not None:
                    raise UpstreamError("the answer is too long to be translated")
                call.has_begun = True
                await answering.begin(answered.status, _kept_headers(answered))
            if translation is not None:
                passed = translation.take(passed)
            if is_stream and exchange.is_over:
                await self._finish(call)
            if passed:
                await answering.send(passed)
        status, rest = answered.status, _rest(exchange)
        if translation is not None:
            status, rest = translation.rest(status, rest, is_stream=is_stream)
        await self._finish(call)
        if call.has_begun:
            await answering.end(rest)
            return
        call.has_begun = True
        held_type = None if translation is None else translation.held_type(status)
        await answering.send_whole(status, _kept_headers(answered, held_type, is_changed=True), rest)

    async def _fail(
        self, call: RelayedCall, error: UpstreamError, answering: Answering, what: str, last: bytes = b""
    ) -> None:
        """Record that the server cannot be reached or broke off, and tell the agent.

        The agent gets status 502, or, if the answer has begun, the piece `last` or a broken connection.
        """
        self._recorder.metrics.add("art_otel_gateway_upstream_errors_total")
        if call.exchange is not None and not call.is_recorded:
            call.exchange.failure = CallFailure(type(error).__name__, str(error))
        await self._finish(call)
        if call.has_begun and call.exchange is not None and call.translation is None:
            await answering.send(_rest(call.exchange))
        if last and call.translation is not None:
            last = call.translation.take(last) + call.translation.end()
        if last:
            await answering.end(last)
        elif call.has_begun:
            call.is_broken_off = True
        else:
            why = f"the model server at {call.upstream.shown} {what}: {error}"
            await send_error(502, why, call.method, answering, call.dialect)

    async def _finish(self, call: RelayedCall) -> None:
        """Record a call durably, and wait until the collector of `--otlp` knows that the call began."""
        if call.exchange is not None and not call.is_recorded:
            self._record(call)
            if not await self._synced() and call.rollout is not None:
                self._rollouts.reopen(call.rollout)
        if call.told is not None and self._forwarding is not None:
            await self._forwarding.running_calls.wait(call.told)

    def _record(self, call: RelayedCall) -> None:
        """Write the span of a call, once. If that fails, the rollout counts the call all the same, as missing."""
        exchange, rollout = call.exchange, call.rollout
        if exchange is None or call.is_recorded:
            return
        call.is_recorded = True
        exchange.end_ns = now_ns()
        if call.translation is not None and call.translation.failure is not None and exchange.failure is None:
            exchange.failure = CallFailure("TranslationError", call.translation.failure)  # the agent got no answer
        of_rollout = [] if rollout is None else self._rollouts.end_call(rollout)
        try:
            if call.end_in_app is not None:
                call.end_in_app()
                is_written = True
            else:
                span = call_span(exchange, call.address, call.upstream.url, self._resource)
                is_written = self._write([*of_rollout, span], is_last=True)
        except Exception as error:  # noqa: BLE001 # a fault of ours: the agent gets its answer
            _RECORDING.note(error)
            is_written = False
        self._recorder.metrics.add(f"art_otel_gateway_{'calls' if is_written else 'unrecorded_calls'}_total")
        if exchange.sampled is not None:
            self._recorder.metrics.add(
                "art_otel_gateway_prompts_total", labels=f'{{outcome="{exchange.sampled.outcome}"}}'
            )
        if rollout is not None and not is_written:
            self._rollouts.reopen(rollout)
        if call.slot is not None and self._worker is not None:
            self._worker.end_call(call.slot)
        if call.asked is not None and call.address.source == "conversation" and call.address.rollout_id is not None:
            with _CONTINUING:
                self._conversations.answered(call.address.rollout_id, call.asked.request, exchange.answer or {})

    def _note_unread(self, call: RelayedCall) -> None:
        """Note that an unreadable request may have been a call: in the log, and on its rollout, if it has one."""
        address, server = call.address, call.upstream.url
        request = f"POST {self._unread.warn(call.target.plain)}"
        with _RECORDING:
            if self._app is not None and self._app.note_unread(request, call.start_ns, address, server):
                return
            if address.rollout_id is None and address.parent is None:  # it continues no conversation that can be read
                return
            of_rollout: list[Span] = []
            if address.rollout_id is not None and address.is_ours:
                rollout = self._rollouts.begin_call(address.rollout_id, address, call.start_ns)
                address = address.of_attempt(rollout.attempt)
                of_rollout = self._rollouts.end_call(rollout)
            span = unread_span(request, address, server, self._resource, call.start_ns)
            self._write([*of_rollout, span], is_last=True)

    def _write(self, spans: Sequence[Span], *, is_last: bool = False) -> bool:
        """Write spans to the spool; False where the disk refuses them, which the spool logs.

        The collector gets written spans only, unless `is_last` says that the write will not be tried again.
        """
        is_written = True
        try:
            if spans:
                self._recorder.ingest.write(spans)
        except ExportRefusedError as refused:
            self._recorder.metrics.refused(refused.status, str(refused))
            is_written = False
        if spans and self._forwarding is not None and (is_written or is_last):
            self._forwarding.add(spans)
        return is_written

    async def _synced(self) -> bool:
        """With `--fsync`, wait until the disk itself has the written spans; False where it refuses."""
        is_synced = await self._recorder.ingest.synced()
        if not is_synced:
            self._recorder.metrics.refused(503, UNWRITABLE)
        return is_synced

    async def _look(self) -> None:
        """End quiet rollouts, again and again, and tell the receiver which rollouts are still open."""
        while True:
            await asyncio.sleep(min(_LOOK_EVERY, self.options.receiver.grace))
            with _RECORDING:
                self._rollouts.end_quiet(now_ns(), self._write)
                self._recorder.keep_open(self._rollouts.open)


def _rest(exchange: Exchange) -> bytes:
    """The part of an answer that the agent has not got yet; as it came from the server if it cannot be read."""
    try:
        return exchange.rest()
    except Exception as error:  # noqa: BLE001 # a fault of ours
        _READING.note(error)
        return exchange.as_it_came()


def _kept_headers(answered: AnyAnswer, content_type: str | None = None, *, is_changed: bool = False) -> RawHeaders:
    """The headers of an answer that the agent gets; `content_type` replaces the server's in a translated answer.

    `is_changed` says that the body may be longer or shorter than the server's, so its content-length is left out.
    """
    left_out = _NOT_CHANGED if is_changed else _NOT_ANSWERED
    kept = [(lower, value) for name, value in answered.raw_headers if (lower := name.lower()) not in left_out]
    if content_type is None:
        return kept
    return [*(header for header in kept if header[0] != b"content-type"), (b"content-type", content_type.encode())]
