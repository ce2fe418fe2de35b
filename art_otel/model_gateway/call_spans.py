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
from art_otel.exchange.attributes import answered_attributes, asked_attributes, call_name, identity_attributes
from art_otel.exchange.bodies import CallFailure
from art_otel.exchange.exchange import Exchange
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


def root_of(rollout_id: str) -> Parent:
    """The ids of the own span of a rollout that the gateway records."""
    digest = blake2b(f"art-otel gateway {rollout_id}".encode(), digest_size=24).hexdigest()
    return Parent(digest[:32], digest[32:])


def call_span(exchange: Exchange, address: RequestAddress, server: str, resource: Resource) -> Span:
    """Build the span of an exchange with a server."""
    attributes = {**begun_attributes(exchange, address, server), **answered_attributes(exchange)}
    failure = exchange.why_failed()
    if failure is not None:
        attributes[ERROR_TYPE] = failure.type
    return _span(call_name(attributes), attributes, address, resource, (exchange.start_ns, exchange.end_ns), failure)


def begun_attributes(exchange: Exchange, address: RequestAddress, server: str) -> dict[str, Value]:
    """What the span of a call says as soon as the call begins."""
    model = values.text(exchange.request.get("model"))
    attributes = {
        **identity_attributes(exchange.dialect, exchange.path, model, server),
        **asked_attributes(exchange),
    }
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
    parent = root_of(rollout_id) if rollout_id is not None and address.is_ours else around
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


def now_ns() -> int:
    """The time, as spans have it."""
    return time.time_ns()
