"""Origin: the resource and the scope that made spans, which stand once before these in a bucket.

Invariant: a span and the origin taken from it are the span again. All spans of a process have one resource, and those
of an instrumentor one scope: small ones cost less in the span than an entry of their own.
"""

from typing import Final

import msgspec

from art_otel.spans import Resource, Scope, Span

_WORTH_AN_ENTRY: Final = 64
"""Bytes of a resource: each span has one, and most have the same."""

_LARGE_SCOPE: Final = 1024
"""Bytes of a scope that is taken from its spans: those of a process alternate, and most are small."""

_NO_RESOURCE: Final = Resource()
_NO_SCOPE: Final = Scope()


class Origin(msgspec.Struct, frozen=True, array_like=True):
    """Where spans come from. Without a scope they have their own."""

    resource: Resource = _NO_RESOURCE
    scope: Scope | None = None

    def put_into(self, span: Span) -> None:
        """Give it to a span that nobody else has yet."""
        msgspec.structs.force_setattr(span, "resource", self.resource)
        if self.scope is not None:
            msgspec.structs.force_setattr(span, "scope", self.scope)


class OriginFinder:
    """Finds the origins of spans that come one after the other. Those of a request share their objects."""

    def __init__(self) -> None:
        self._encoder = msgspec.msgpack.Encoder()
        self._resource: Resource | None = None
        self._scope: Scope | None = None
        self._has_scope = False
        self._encoded: bytes | None = None

    def of(self, span: Span) -> bytes | None:
        """The span's origin, encoded; None where it may stand in the span."""
        if span.resource is not self._resource or span.scope is not self._scope:
            self._resource, self._scope = span.resource, span.scope
            self._has_scope = len(self._encoder.encode(span.scope)) >= _LARGE_SCOPE
            is_large = self._has_scope or len(self._encoder.encode(span.resource)) >= _WORTH_AN_ENTRY
            origin = Origin(span.resource, span.scope if self._has_scope else None)
            self._encoded = self._encoder.encode(origin) if is_large else None
        return self._encoded

    def take_from(self, span: Span) -> Span:
        """The span that was asked for last, without its origin."""
        if self._has_scope:
            return msgspec.structs.replace(span, resource=_NO_RESOURCE, scope=_NO_SCOPE)
        return msgspec.structs.replace(span, resource=_NO_RESOURCE)
