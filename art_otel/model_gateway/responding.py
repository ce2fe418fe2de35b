"""Responding: what an agent is sent, over ASGI: the answer of a model server, or an error of the gateway's own.

Invariant: status and headers are the server's, but for those of a connection, and for the length of a body that was
changed.
"""

from typing import Final

from starlette.responses import JSONResponse
from starlette.types import Message, Send

from art_otel.exchange.api_dialects import API_DIALECTS
from art_otel.exchange.assembly import WireDialect
from art_otel.model_gateway.exact import Answers

OF_CONNECTION: Final = frozenset(
    [b"connection", b"keep-alive", b"proxy-connection", b"te", b"trailer", b"transfer-encoding", b"upgrade", b"expect"]
)
"""Headers that say something of one connection, and are not passed on."""

_NOT_ANSWERED: Final = OF_CONNECTION | {b"date"}
"""The gateway's own server writes a date."""


async def send_start(
    answered: Answers,
    send: Send,
    *,
    length: int | None = None,
    status: int | None = None,
    content_type: str | None = None,
    is_changed: bool = False,
) -> None:
    """Begin as the server began; `length`, `status` and `content_type` are those of a body that is not the server's.

    `is_changed` says that nobody knows how long the body will be, whatever the server said of its own.
    """
    headers = [(name.lower(), value) for name, value in answered.raw_headers]
    kept = [(name, value) for name, value in headers if name not in _NOT_ANSWERED]
    if length is not None or is_changed:
        kept = [(name, value) for name, value in kept if name != b"content-length"]
    if length is not None:
        kept.append((b"content-length", str(length).encode()))
    if content_type is not None:
        kept = [(name, value) for name, value in kept if name != b"content-type"]
        kept.append((b"content-type", content_type.encode()))
    await send({"type": "http.response.start", "status": status or answered.status, "headers": kept})


async def send_piece(piece: bytes, send: Send) -> None:
    """Send what there is."""
    if piece:
        await send({"type": "http.response.body", "body": piece, "more_body": True})


async def send_end(send: Send, rest: bytes = b"") -> None:
    """Send the rest, and end."""
    await send({"type": "http.response.body", "body": rest, "more_body": False})


async def send_error(status: int, message: str, method: str, send: Send, dialect: WireDialect | None) -> None:
    """Answer a request of this method with an error of the gateway's."""
    response = error_response(status, message, dialect)
    await response({"type": "http", "method": method, "headers": []}, _nothing, send)


def error_response(status: int, message: str, dialect: WireDialect | None = None) -> JSONResponse:
    """An error of the gateway's own in a dialect, else in the shape that clients of OpenAI and Anthropic read."""
    error = {"message": f"art-otel gateway: {message}", "type": "gateway_error", "param": None, "code": None}
    if dialect is None:
        return JSONResponse({"type": "error", "error": error}, status)
    return JSONResponse(API_DIALECTS[dialect].error(status, error["message"] or "", error, None), status)


async def _nothing() -> Message:
    return {"type": "http.disconnect"}
