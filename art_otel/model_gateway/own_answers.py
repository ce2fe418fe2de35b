"""Own answers: answers and errors of the gateway itself, in the place of a model server, in the agent's dialect."""

from collections.abc import AsyncIterator, Mapping
from typing import Final, cast

import msgspec
from starlette.responses import JSONResponse
from starlette.types import Message, Send

from art_otel.exchange.api_dialects import API_DIALECTS, UNTRAINED_HEADER, is_array
from art_otel.exchange.assembly import WireDialect
from art_otel.exchange.chat_request import UntranslatableError
from art_otel.exchange.exchange import Exchange
from art_otel.exchange.translation import OK, last_answer
from art_otel.http import Answering, RawHeaders
from art_otel.model_gateway.upstreams import UpstreamError

_BAD_REQUEST: Final = 400
_JSON_TYPE: Final = "application/json"


class OwnAnswer:
    """A whole answer of the gateway, with the interface of a server's `Answer`.

    `untrained` is the mark of an answer that a traced app might record as the policy's own.
    """

    def __init__(self, status: int, content_type: str, body: bytes, *, untrained: str = "") -> None:
        self.status: Final = status
        mark = {UNTRAINED_HEADER.encode(): untrained.encode()} if untrained else {}
        self.headers: Final[Mapping[bytes, bytes]] = {b"content-type": content_type.encode(), **mark}
        self.raw_headers: Final[RawHeaders] = [*self.headers.items()]
        self._body = body

    async def pieces(self) -> AsyncIterator[bytes]:
        """The body, in one piece."""
        yield self._body

    def failed(self, _: UpstreamError) -> bytes:
        """No bytes: an answer of our own cannot break off."""
        return b""

    def close(self) -> None:
        """Nothing to close: there is no connection."""


def last_of_rollout(exchange: Exchange, limit: int, query: str) -> OwnAnswer:
    """An answer that ends the agent's loop, for a request beyond the limit of calls of its rollout."""
    text = f"The rollout has ended: it has used all of its {limit} model calls."
    made = last_answer(exchange.dialect, exchange.request, text, is_array=is_array(exchange.path, query))
    return OwnAnswer(OK, made.content_type, made.body, untrained="limit of calls")


def untranslatable(exchange: Exchange, why: UntranslatableError) -> OwnAnswer:
    """The error for a request that cannot be translated for its server, in the agent's dialect."""
    error = API_DIALECTS[exchange.dialect].error(_BAD_REQUEST, f"art-otel gateway: {why}", None, why.field)
    return OwnAnswer(_BAD_REQUEST, _JSON_TYPE, msgspec.json.encode(error))


async def send_error(status: int, message: str, method: str, answering: Answering, dialect: WireDialect | None) -> None:
    """Answer a request with an error of the gateway's own. `method` matters for HEAD, which gets no body."""
    response = error_response(status, message, dialect)
    await response({"type": "http", "method": method, "headers": []}, _nothing, cast(Send, answering.cycle.send))


def error_response(status: int, message: str, dialect: WireDialect | None = None) -> JSONResponse:
    """An error of the gateway's own in a dialect; without one, in a form that clients of OpenAI and Anthropic read."""
    error = {"message": f"art-otel gateway: {message}", "type": "gateway_error", "param": None, "code": None}
    if dialect is None:
        # Anthropic's clients read the outer type, OpenAI's only the error.
        return JSONResponse({"type": "error", "error": error}, status)
    return JSONResponse(API_DIALECTS[dialect].error(status, error["message"] or "", error, None), status)


async def _nothing() -> Message:
    return {"type": "http.disconnect"}
