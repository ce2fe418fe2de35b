"""OwnProvider: the tracer provider of an app that has none.

Invariant: what the OTEL_* variables say holds (resource, sampler, limits, exporters), and an exporter that is missing
or broken costs only itself. Without any exporter variable nothing is sent anywhere.
"""

import logging
from collections.abc import Mapping
from importlib.metadata import entry_points

from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter

from art_otel.tracing.exporters import GROUP, entry_points_of, exporter_names
from art_otel.tracing.settings import Settings

logger = logging.getLogger(__name__)


def make_provider(settings: Settings, environ: Mapping[str, str]) -> TracerProvider:
    """A provider with the exporters that are asked for."""
    provider = TracerProvider()
    for name in exporter_names(settings.exporters, environ):
        exporter = _make_exporter(name, environ)
        if exporter is not None:
            provider.add_span_processor(BatchSpanProcessor(exporter))
    return provider


def _make_exporter(name: str, environ: Mapping[str, str]) -> SpanExporter | None:
    candidates = entry_points_of(name, environ)
    installed = {found.name: found for found in entry_points(group=GROUP)}
    found = next((installed[candidate] for candidate in candidates if candidate in installed), None)
    if found is None:
        logger.warning("art-otel: spans are not exported to %s: no such exporter is installed (%s)", name, candidates)
        return None
    try:
        return found.load()()
    except Exception as error:  # noqa: BLE001 # an exporter may fail in any way; the app and our spool go on
        logger.warning("art-otel: spans are not exported to %s: %s: %s", name, type(error).__name__, error)
        return None
