"""Call spans: an exchange as the span of an LLM call, with the attributes that a traced client's span has.

Invariant: the span says what was sent and answered, whole, whatever instrumentor the agent has, and no more than that:
no header of the agent's, which may hold its keys. One conversion reads it and the live half's to equal calls.
"""

import os
import time
from hashlib import blake2b
from typing import Final
from urllib.parse import urlsplit

from art_otel import attributes as names
from art_otel.conventions import ERROR_TYPE, INSTANCE, values
from art_otel.exchange.attributes import asked_attributes, call_name, identity_attributes, request_body, response_body
from art_otel.exchange.exchange import CallFailure, Exchange
from art_otel.exchange.translation import Translation
from art_otel.model_gateway.addresses import Parent, RequestAddress
from art_otel.spans import Link, Resource, Scope, Span, Value
from art_otel.version import __version__

SCOPE: Final = Scope(name=names.GATEWAY_SCOPE, version=__version__)
"""Another scope than that of the live half, which may record the same call."""


def gateway_resource() -> Resource:
    """The resource of a gateway process, which no other process has."""
    instance = f"{os.getpid()}-{os.urandom(4).hex()}"
    return Resource(attributes={"service.name": "art-otel gateway", INSTANCE: instance})


def span_id() -> str:
    """A new id."""
    return os.urandom(8).hex()


def root_of(rollout_id: str, attempt: int = 1) -> Parent:
    """The ids of the own span of an attempt at a rollout that the gateway records."""
    name = rollout_id if attempt == 1 else f"{rollout_id}\0{attempt}"
    digest = blake2b(f"art-otel gateway {name}".encode(), digest_size=24).hexdigest()
    return Parent(digest[:32], digest[32:])


def call_span(exchange: Exchange, address: RequestAddress, server: str, resource: Resource) -> Span:
    """Build the span of an exchange, with its bodies; `exchanges.whole` makes it what a collector gets."""
    attributes = {**_begun(exchange, address, server), **request_body(exchange), **response_body(exchange)}
    failure = exchange.why_failed()
    if failure is not None:
        attributes[ERROR_TYPE] = failure.type
    return _span(call_name(attributes), attributes, address, resource, (exchange.start_ns, exchange.end_ns), failure)


def begun_attributes(exchange: Exchange, address: RequestAddress, server: str) -> dict[str, Value]:
    """What the span of a call in an app says as soon as the call begins."""
    return {**asked_attributes(exchange), **_begun(exchange, address, server)}


def _begun(exchange: Exchange, address: RequestAddress, server: str) -> dict[str, Value]:
    """What is said of a call beside its bodies."""
    attributes = identity_attributes(
        exchange.dialect, exchange.path, values.text(exchange.settings.get("model")), server
    )
    if exchange.translation is not None:
        attributes |= _translation_attributes(exchange.translation)
    return attributes if address.untrained is None else {**attributes, names.UNTRAINED: address.untrained}


def unread_span(request: str, address: RequestAddress, server: str, resource: Resource, start_ns: int) -> Span:
    """Build the span of a request that may have been a call: its rollout says that it could not be read."""
    return _span(request, unread_attributes(request, server), address, resource, (start_ns, now_ns()), None)


def unread_attributes(request: str, server: str) -> dict[str, Value]:
    """The attributes of such a span."""
    return {names.UNREAD_REQUEST: request, "server.address": urlsplit(server).hostname or server}


def _span(
    name: str,
    attributes: dict[str, Value],
    address: RequestAddress,
    resource: Resource,
    times: tuple[int, int],
    failure: CallFailure | None,
) -> Span:
    """Build a span below its rollout's own span, with a link to the agent's.

    Where the app records the rollout, it is below the app's span.
    """
    rollout_id, around = address.rollout_id, address.parent
    parent = root_of(rollout_id, address.attempt) if rollout_id is not None and address.is_ours else around
    linked = None if parent is around else around
    if rollout_id is not None:
        attributes = {names.ROLLOUT_ID: rollout_id, **attributes}
    return Span(
        trace_id=os.urandom(16).hex() if parent is None else parent.trace_id,
        span_id=span_id(),
        parent_span_id=None if parent is None else parent.span_id,
        name=name,
        kind="client",
        start_ns=times[0],
        end_ns=max(times),
        attributes=attributes,
        links=() if linked is None else (Link(trace_id=linked.trace_id, span_id=linked.span_id),),
        status="unset" if failure is None else "error",
        status_message="" if failure is None else failure.message or failure.type,
        scope=SCOPE,
        resource=resource,
    )


def _translation_attributes(translation: Translation) -> dict[str, Value]:
    """What the span of a call says of its translation."""
    left_out = {names.LEFT_OUT: [*translation.left_out]} if translation.left_out else {}
    return {names.TRANSLATED_FROM: translation.dialect, **left_out}


def now_ns() -> int:
    """The time, as spans have it."""
    return time.time_ns()
