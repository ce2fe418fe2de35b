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
from art_otel.conventions import ERROR_TYPE, INSTANCE, response_attributes
from art_otel.conventions.dialects.genai import API_TYPE, OPERATION_NAME, PROVIDERS, REQUEST_MODEL, RESPONSES
from art_otel.model_gateway.addresses import Address, Parent
from art_otel.model_gateway.exchanges import Dialect, Exchange
from art_otel.spans import Link, Resource, Scope, Span, Value
from art_otel.tracing.openai.bodies import answer_attributes, request_attributes_of
from art_otel.version import __version__

SCOPE: Final = Scope(name=names.GATEWAY_SCOPE, version=__version__)
"""Another scope than that of the live half, which may record the same call."""

_PROVIDERS: Final[dict[Dialect, str]] = {"messages": "anthropic"}
_OPERATIONS: Final[dict[Dialect, str]] = {"completions": "text_completion"}


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


def call_span(exchange: Exchange, address: Address, server: str, resource: Resource) -> Span:
    """Build the span of an exchange with a server.

    It is below its rollout's own span and links to the agent's; where the app records the rollout, it is below that.
    """
    rollout_id, around = address.rollout_id, address.parent
    parent = root_of(rollout_id) if rollout_id is not None and address.is_ours else around
    linked = None if parent is around else around
    attributes = {**asked_attributes(exchange, address, server), **answered_attributes(exchange)}
    failure = exchange.why_failed()
    if failure is not None:
        attributes[ERROR_TYPE] = failure.type
    if rollout_id is not None:
        attributes = {names.ROLLOUT_ID: rollout_id, **attributes}
    return Span(
        trace_id=os.urandom(16).hex() if parent is None else parent.trace_id,
        span_id=span_id(),
        parent_span_id=None if parent is None else parent.span_id,
        name=call_name(attributes),
        kind="client",
        start_ns=exchange.start_ns,
        end_ns=max(exchange.start_ns, exchange.end_ns),
        attributes=attributes,
        links=() if linked is None else (Link(trace_id=linked.trace_id, span_id=linked.span_id),),
        status="unset" if failure is None else "error",
        status_message="" if failure is None else failure.message or failure.type,
        scope=SCOPE,
        resource=resource,
    )


def call_name(attributes: dict[str, Value]) -> str:
    """The name that the span of a call has."""
    model = attributes.get(REQUEST_MODEL)
    operation = attributes[OPERATION_NAME]
    return operation if model is None else f"{operation} {model}"


def asked_attributes(exchange: Exchange, address: Address, server: str) -> dict[str, Value]:
    """The attributes that say what was asked, and what for, as soon as a call begins."""
    attributes: dict[str, Value] = {
        OPERATION_NAME: _OPERATIONS.get(exchange.dialect, "chat"),
        PROVIDERS[0]: _PROVIDERS.get(exchange.dialect, "openai"),
        "server.address": urlsplit(server).hostname or server,
        **request_attributes_of(exchange.request, exchange.fields),
    }
    if exchange.dialect == "responses":
        attributes[API_TYPE] = RESPONSES
    if address.untrained is not None:
        attributes[names.UNTRAINED] = address.untrained
    return attributes


def answered_attributes(exchange: Exchange) -> dict[str, Value]:
    """The attributes that say what was answered, once the call has ended."""
    answer = exchange.answer
    attributes: dict[str, Value] = (
        {} if answer is None else {**response_attributes(answer), **answer_attributes(answer)}
    )
    if exchange.sampled is not None:
        attributes |= exchange.sampled.attributes()
    if exchange.policy_version is not None:
        attributes[names.POLICY_VERSION] = exchange.policy_version
    if exchange.was_left:
        attributes[names.CLOSED_BY_APP] = "left"
    return attributes


def now_ns() -> int:
    """The time, as spans have it."""
    return time.time_ns()
