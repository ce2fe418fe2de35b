"""OwnProvider: the tracer provider of an app that has none.

Invariant: what the OTEL_* variables say holds (resource, sampler, limits, exporters), and an exporter that is missing
or broken costs only itself. Without any exporter variable nothing is sent anywhere.
"""

import logging
from collections.abc import Mapping
from importlib.metadata import entry_points
from typing import Final

from opentelemetry.sdk.environment_variables import OTEL_EXPERIMENTAL_RESOURCE_DETECTORS
from opentelemetry.sdk.resources import SERVICE_NAME, OTELResourceDetector, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter

from art_otel.tracing.setup.exporters import GROUP, OTLP, entry_points_of, exporter_names
from art_otel.tracing.setup.settings import Settings

logger = logging.getLogger(__name__)

_UNNAMED: Final = {SERVICE_NAME: "unknown_service"}


def make_provider(settings: Settings, environ: Mapping[str, str]) -> TracerProvider:
    """A provider with the exporters that are asked for."""
    provider = TracerProvider(resource=_resource(environ))
    for name in exporter_names(settings.exporters, environ):
        exporter = _make_exporter(name, environ)
        if exporter is not None:
            provider.add_span_processor(BatchSpanProcessor(exporter))
    return provider


def _resource(environ: Mapping[str, str]) -> Resource:
    """The process's. Its detectors run in a pool, which is to be had only while the main thread runs."""
    try:
        return Resource.create()
    except RuntimeError as error:
        if environ.get(OTEL_EXPERIMENTAL_RESOURCE_DETECTORS):
            logger.warning(
                "art-otel: the resource is what OTEL_RESOURCE_ATTRIBUTES and OTEL_SERVICE_NAME say: its detectors do"
                " not run (%s); make a first span before the main thread ends",
                error,
            )
        return Resource(_UNNAMED).merge(OTELResourceDetector().detect())


def _make_exporter(name: str, environ: Mapping[str, str]) -> SpanExporter | None:
    candidates = entry_points_of(name, environ)
    installed = {entry_point.name: entry_point for entry_point in entry_points(group=GROUP)}
    entry_point = next((installed[candidate] for candidate in candidates if candidate in installed), None)
    if entry_point is None:
        cure = "pip install opentelemetry-exporter-otlp" if name == OTLP else "install the package that brings it"
        logger.warning("art-otel: spans are not exported to %s: its exporter is not installed; %s", name, cure)
        return None
    try:
        return entry_point.load()()
    except Exception as error:  # noqa: BLE001 # an exporter may fail in any way; the app and our spool go on
        logger.warning("art-otel: spans are not exported to %s: %s: %s", name, type(error).__name__, error)
        return None
