"""Own answers: what the gateway answers in the place of a model server, in the agent's dialect; its errors, too."""

from collections.abc import AsyncIterator, Mapping
from typing import Final, cast

import msgspec
from starlette.responses import JSONResponse
from starlette.types import Message, Send

from art_otel import attributes as names
from art_otel.exchange.api_dialects import API_DIALECTS
from art_otel.exchange.assembly import WireDialect
from art_otel.exchange.chat_request import UntranslatableError
from art_otel.exchange.exchange import Exchange
from art_otel.exchange.gemini import is_array
from art_otel.exchange.translation import OK, last_answer
from art_otel.http import Answering, RawHeaders
from art_otel.model_gateway.upstreams import UpstreamError

_BAD_REQUEST: Final = 400
_JSON_TYPE: Final = "application/json"


class OwnAnswer:
    """A whole answer, like one of a server. `untrained` is the mark of one that an app might record as the policy's."""

    def __init__(self, status: int, content_type: str, body: bytes, *, untrained: str = "") -> None:
        self.status: Final = status
        mark = {names.UNTRAINED_HEADER.encode(): untrained.encode()} if untrained else {}
        self.headers: Final[Mapping[bytes, bytes]] = {b"content-type": content_type.encode(), **mark}
        self.raw_headers: Final[RawHeaders] = [*self.headers.items()]
        self._body = body

    async def pieces(self) -> AsyncIterator[bytes]:
        """The body."""
        yield self._body

    def failed(self, _: UpstreamError) -> bytes:
        """Nothing: it cannot break off."""
        return b""

    def close(self) -> None:
        """There is nobody to leave."""


def last_of_rollout(exchange: Exchange, limit: int, query: str) -> OwnAnswer:
    """What ends the loop of an agent whose rollout has had all its calls, to a request that is no call any more."""
    text = f"The rollout has ended: it has used all of its {limit} model calls."
    made = last_answer(exchange.dialect, exchange.request, text, is_array=is_array(exchange.path, query))
    return OwnAnswer(OK, made.content_type, made.body, untrained="limit of calls")


def untranslatable(exchange: Exchange, why: UntranslatableError) -> OwnAnswer:
    """The refusal of a request that its server cannot be asked, as the agent's dialect has it."""
    error = API_DIALECTS[exchange.dialect].error(_BAD_REQUEST, f"art-otel gateway: {why}", None, why.field)
    return OwnAnswer(_BAD_REQUEST, _JSON_TYPE, msgspec.json.encode(error))


async def send_error(status: int, message: str, method: str, answering: Answering, dialect: WireDialect | None) -> None:
    """Answer a request of this method with an error of the gateway's."""
    response = error_response(status, message, dialect)
    await response({"type": "http", "method": method, "headers": []}, _nothing, cast(Send, answering.cycle.send))


def error_response(status: int, message: str, dialect: WireDialect | None = None) -> JSONResponse:
    """An error of the gateway's own in a dialect, else in the shape that clients of OpenAI and Anthropic read."""
    error = {"message": f"art-otel gateway: {message}", "type": "gateway_error", "param": None, "code": None}
    if dialect is None:
        return JSONResponse({"type": "error", "error": error}, status)
    return JSONResponse(API_DIALECTS[dialect].error(status, error["message"] or "", error, None), status)


async def _nothing() -> Message:
    return {"type": "http.disconnect"}
