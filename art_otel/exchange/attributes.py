"""Attributes: what of an exchange stands on the span of its call, on its way to the spool and to collectors.

Invariant: a request is read from the bytes that were sent, so nothing the app does to its messages later changes it.
`conventions.exchanges` says what bodies mean.
"""

import json
from codecs import BOM_UTF8
from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType
from urllib.parse import urlsplit

import msgspec

from art_otel import attributes as names
from art_otel.conventions.dialects.genai import (
    API_TYPE,
    OPERATION_NAME,
    PROVIDERS,
    REQUEST_MODEL,
    RESPONSE_ID,
    RESPONSES,
)
from art_otel.conventions.exchanges import whole_attributes
from art_otel.conventions.values import json_object
from art_otel.exchange.api_dialects import API_DIALECTS
from art_otel.exchange.assembly import WireDialect
from art_otel.exchange.exchange import Exchange, answer_head
from art_otel.spans import Value


def call_name(attributes: Mapping[str, Value]) -> str:
    """The name of a call's span: its operation and its model."""
    model, operation = attributes.get(REQUEST_MODEL), attributes[OPERATION_NAME]
    return str(operation) if model is None else f"{operation} {model}"


def identity_attributes(dialect: WireDialect, path: str, model: str | None, server: str) -> dict[str, Value]:
    """What is known of a call before its bodies are read. `server` is a URL or a host."""
    return {
        OPERATION_NAME: API_DIALECTS[dialect].operation,
        PROVIDERS[0]: _provider(dialect, path),
        **({} if model is None else {REQUEST_MODEL: model}),
        **({API_TYPE: RESPONSES} if dialect == "responses" else {}),
        "server.address": _host(server),
    }


@lru_cache(maxsize=256)  # an app asks the same servers for the same models, again and again
def call_identity(dialect: WireDialect, path: str, model: str | None, server: str) -> tuple[str, Mapping[str, Value]]:
    """The name of a call's span, and what is known of it before its bodies are read."""
    attributes = identity_attributes(dialect, path, model, server)
    return call_name(attributes), MappingProxyType(attributes)


def _provider(dialect: WireDialect, path: str) -> str:
    if dialect == "gemini" and "/projects/" in path:
        return "gcp.vertex_ai"
    return API_DIALECTS[dialect].provider


@lru_cache(maxsize=64)
def _host(server: str) -> str:
    return urlsplit(server).hostname or server


def request_body(exchange: Exchange) -> dict[str, Value]:
    """The request as it was sent; nothing of one that is no JSON object."""
    if exchange.dialect == "gemini":  # whose path has a part of it
        return {names.REQUEST_BODY: msgspec.json.encode(exchange.request).decode()} if exchange.request else {}
    if not exchange.fields and not exchange.request:
        return {}
    return {names.REQUEST_BODY: _plainly_escaped(exchange.body)}


def response_body(exchange: Exchange) -> dict[str, Value]:
    """The answer as it came, joined where it streamed, its id, and what is known beside it, once it has ended."""
    attributes: dict[str, Value] = {}
    if (body := exchange.answer_body()) is not None:
        attributes[names.RESPONSE_BODY] = _plainly_escaped(body)
        if (response_id := exchange.response_id) is not None:
            attributes[RESPONSE_ID] = response_id  # rewards are brought to it before anybody reads the body
    if exchange.is_cut:
        attributes[names.MISSING] = ["answer"]
    if exchange.sampled is not None:
        attributes |= exchange.sampled.attributes()
    if exchange.policy_version is not None:
        attributes[names.POLICY_VERSION] = exchange.policy_version
    if exchange.was_left:
        attributes[names.CLOSED_BY_APP] = "left"
    return attributes


def body_attributes(asked: bytes, answered: bytes = b"") -> dict[str, Value]:
    """Both bodies of a call as they were, and the id of the answer; nothing of one that is no JSON object."""
    attributes: dict[str, Value] = {}
    # OpenRouter sends blanks until the model answers.
    asked, answered = asked.removeprefix(BOM_UTF8).lstrip(), answered.removeprefix(BOM_UTF8).lstrip()
    if asked.startswith(b"{"):
        attributes[names.REQUEST_BODY] = _plainly_escaped(asked)
    if answered.startswith(b"{"):
        head = answer_head(answered)
        said = None if head is not None else json_object(answered)
        if head is not None or said is not None:
            attributes[names.RESPONSE_BODY] = _plainly_escaped(answered)
            identifier = (said or {}).get("id") if head is None else head.id
            if isinstance(identifier, str) and identifier:
                attributes[RESPONSE_ID] = identifier
    return attributes


def _plainly_escaped(body: bytes) -> str:
    r"""The JSON text with characters that need no escape written plainly, so that a secret looks like one.

    .NET writes "a\u002Bb", PHP "a\/b", Python "\u9879", which the owner's own patterns may name.
    """
    if rb"\/" in body or rb"\u" in body:
        try:
            body = msgspec.json.encode(msgspec.json.decode(body))
        except (msgspec.MsgspecError, UnicodeDecodeError, OverflowError, RecursionError):
            said = json_object(body)  # NaN, numbers beyond 64 bits, half a surrogate
            if said is not None:
                return json.dumps(said, ensure_ascii=False)
    return body.decode(errors="replace")


def asked_attributes(exchange: Exchange) -> dict[str, Value]:
    """What was asked, as a collector gets it."""
    return whole_attributes(request_body(exchange))


def answered_attributes(exchange: Exchange) -> dict[str, Value]:
    """What was answered, as a collector gets it."""
    return whole_attributes(response_body(exchange))
