"""What records a program, by the words of the table: `recorder` and what it needs to know, as one text."""

import importlib
import os
from contextlib import contextmanager, suppress

ENDPOINT = os.environ["OTEL_EXPORTER_OTLP_ENDPOINT"]


@contextmanager
def recorded(how: str):
    """Record what runs inside, below a root span; gives what a client must be wrapped in."""
    kind, _, what = how.partition(" ")
    with {"own": own, "instrumentor": instrumentor, "logfire": logfire_span}.get(kind, by_platform)(
        kind, what
    ) as wrapped:
        yield wrapped


@contextmanager
def own(_kind: str, what: str):
    """The app's own provider, which clients with spans of their own write to, maybe with processors `module:Class`.

    "bare": without a root span, as where a framework has its own.
    """
    from opentelemetry import trace

    provider = set_providers(*(named(name)() for name in what.split() if ":" in name))
    if "bare" in what.split():
        yield unwrapped
    else:
        with trace.get_tracer("app").start_as_current_span("agent run"):
            yield unwrapped
    provider.shutdown()


@contextmanager
def instrumentor(_kind: str, what: str):
    """Standard instrumentors, each `module:Class`; "bare" behind them: without a root span."""
    names = what.split()
    with own("own", "bare" if "bare" in names else ""):
        for name in names:
            if ":" in name:
                named(name)().instrument()
        yield unwrapped


@contextmanager
def logfire_span(_kind: str, what: str):
    """Logfire: the name of its `instrument_` function and, maybe, its version."""
    import logfire

    client, *versions = what.split()
    logfire.configure(send_to_logfire=False, console=False, inspect_arguments=False)
    options = {"version": [int(version) for version in versions]} if versions else {}
    getattr(logfire, f"instrument_{client}")(**options)
    with logfire.span("agent run"):
        yield unwrapped
    logfire.force_flush()


@contextmanager
def by_platform(kind: str, what: str):
    """The SDKs of platforms, each in a module of its own."""
    with importlib.import_module(f"with_{kind}").recorded(what) as wrapped:
        yield wrapped


def named(name: str):
    """What `module:name` names."""
    module, _, attribute = name.partition(":")
    return getattr(importlib.import_module(module), attribute)


def unwrapped(client):
    """The client as it is."""
    return client


def set_providers(*processors):
    """One export a span, to the collector that the environment names; log records too."""
    from opentelemetry import _logs, trace
    from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk._logs import LoggerProvider
    from opentelemetry.sdk._logs.export import SimpleLogRecordProcessor
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor

    provider, logger_provider = TracerProvider(), LoggerProvider()
    for processor in processors:
        provider.add_span_processor(processor)
    provider.add_span_processor(SimpleSpanProcessor(OTLPSpanExporter()))
    logger_provider.add_log_record_processor(SimpleLogRecordProcessor(OTLPLogExporter()))
    trace.set_tracer_provider(provider)
    _logs.set_logger_provider(logger_provider)
    with suppress(ImportError):  # older SDKs have a provider of events as well
        from opentelemetry._events import set_event_logger_provider
        from opentelemetry.sdk._events import EventLoggerProvider

        set_event_logger_provider(EventLoggerProvider(logger_provider))
    return provider
