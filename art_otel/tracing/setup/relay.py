"""Relay: tracers that ask for each span which provider makes it.

Invariant: a tracer that somebody holds goes on working when the provider behind it changes. OTel's own ProxyTracer asks
once only.
"""

from abc import abstractmethod
from typing import Final, NamedTuple

from opentelemetry.trace import ProxyTracer, ProxyTracerProvider, Tracer, TracerProvider
from opentelemetry.util.types import Attributes

_PROXIED: Final = "_tracer"


class RelayTracerProvider(ProxyTracerProvider):
    """It is a ProxyTracerProvider because that is what apps look for before they set one of their own."""

    @abstractmethod
    def provider(self) -> TracerProvider:
        """The one that makes the next span."""

    def get_tracer(
        self,
        instrumenting_module_name: str,
        instrumenting_library_version: str | None = None,
        schema_url: str | None = None,
        attributes: Attributes = None,
    ) -> Tracer:
        """A tracer of whichever provider there is when a span starts."""
        scope = _Scope(instrumenting_module_name, instrumenting_library_version, schema_url, attributes)
        return _RelayTracer(self, scope)


class _Scope(NamedTuple):
    """What a tracer is known by."""

    name: str
    version: str | None
    schema_url: str | None
    attributes: Attributes


class _RelayTracer(ProxyTracer):
    """OTel's own proxy, which asks again for each span."""

    def __init__(self, relay: RelayTracerProvider, scope: _Scope) -> None:
        super().__init__(*scope)
        self._relay = relay
        self._scope = scope
        self._found: tuple[TracerProvider | None, Tracer | None] = (None, None)

    @property
    def _tracer(self) -> Tracer:
        provider = self._relay.provider()
        known, tracer = self._found
        if tracer is None or known is not provider:
            tracer = provider.get_tracer(*self._scope)
            self._found = (provider, tracer)
        return tracer


def can_relay() -> bool:
    """Whether OTel's proxies are as they were."""
    return hasattr(ProxyTracer, _PROXIED)
