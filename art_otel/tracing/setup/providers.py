"""Providers: puts our processor first into the app's tracer provider, or makes a provider where the app has none.

Invariant: a provider of the app keeps its processors, exporters, sampler and resource, and `detach` restores all. Its
sampler still decides what is exported; spans that it drops are only recorded (`RolloutSampler`). An app without a
provider gets ours (`make_provider`), by the OTEL_* variables. A missing or broken exporter costs nothing but itself.
"""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from importlib.metadata import entry_points
from threading import Thread
from typing import Any, Final, cast

from opentelemetry.sdk.environment_variables import (
    OTEL_ATTRIBUTE_COUNT_LIMIT,
    OTEL_EVENT_ATTRIBUTE_COUNT_LIMIT,
    OTEL_EXPERIMENTAL_RESOURCE_DETECTORS,
    OTEL_LINK_ATTRIBUTE_COUNT_LIMIT,
    OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT,
    OTEL_SPAN_EVENT_COUNT_LIMIT,
    OTEL_SPAN_LINK_COUNT_LIMIT,
)
from opentelemetry.sdk.resources import SERVICE_NAME, OTELResourceDetector, Resource
from opentelemetry.sdk.trace import ConcurrentMultiSpanProcessor, SpanLimits, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
from opentelemetry.sdk.trace.sampling import Sampler
from opentelemetry.trace import TracerProvider as AnyTracerProvider

from art_otel.tracing.internal_errors import guarded
from art_otel.tracing.sdk.processor import RecordingSpanProcessor, RolloutSampler, SystemIdGenerator, at_child_exit
from art_otel.tracing.setup.settings import Settings

logger = logging.getLogger(__name__)

EXPORTERS: Final = "opentelemetry_traces_exporter"
"""The group of entry points under which packages register span exporters."""
OTLP: Final = "otlp"
_GRPC: Final = "otlp_proto_grpc"
_HTTP: Final = "otlp_proto_http"
_PROTOCOLS: Final = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
_ENDPOINTS: Final = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
_BY_PROTOCOL: Final = {"grpc": (_GRPC,), "http/protobuf": (_HTTP,)}
_UNNAMED: Final = {SERVICE_NAME: "unknown_service"}
_ACTIVE: Final = "_active_span_processor"
_ALL: Final = "_span_processors"
_TRACERS: Final = "_tracers"
_LAST_BATCH_SECONDS: Final = 5.0
_BEFORE: Final = "spans that other processors export may be seen before they are scrubbed"


@dataclass(frozen=True, kw_only=True, slots=True)
class Attachment:
    """The change of one provider by which art-otel records its spans, and the steps to undo it."""

    provider: AnyTracerProvider
    undo: tuple[Callable[[], None], ...]

    def detach(self) -> None:
        """Undo the changes, the last one first."""
        for step in reversed(self.undo):
            step()


def add_processor(provider: AnyTracerProvider, processor: RecordingSpanProcessor) -> Attachment | None:
    """Put the processor before all others of the provider. None, with a warning, if it accepts no processors."""
    undo = _put_first(provider, processor)
    if undo is None:
        return None
    steps = [undo]
    if isinstance(provider, TracerProvider):
        for owner in _with_tracers(provider):
            _record_all(owner)
        steps.append(partial(_leave, provider))
    return Attachment(provider=provider, undo=tuple(steps))


def unwrap_provider(provider: AnyTracerProvider) -> AnyTracerProvider | None:
    """The provider that this one delegates to, as Logfire's does; None for a provider that makes spans itself."""
    inner: object = getattr(provider, "provider", None)
    return inner if isinstance(inner, AnyTracerProvider) else None


def on_set_provider(provider: AnyTracerProvider, on_next: Callable[[AnyTracerProvider], None]) -> Attachment:
    """Call `on_next` when the provider gets another to delegate to, as Logfire's does whenever it is configured."""
    set_next = cast(Callable[..., None] | None, getattr(provider, "set_provider", None))
    if set_next is None:
        return Attachment(provider=provider, undo=())

    def setting(*args: Any, **kwargs: Any) -> None:  # noqa: ANN401 # as it has them
        guarded(lambda: on_next((*args, *kwargs.values())[0]))()
        set_next(*args, **kwargs)

    vars(provider)["set_provider"] = setting
    return Attachment(provider=provider, undo=(lambda: vars(provider).pop("set_provider", None),))


def _put_first(provider: AnyTracerProvider, processor: RecordingSpanProcessor) -> Callable[[], None] | None:
    several = getattr(provider, _ACTIVE, None)
    processors: object = getattr(several, _ALL, None)
    if isinstance(processors, tuple):
        with _lock_of(several):
            setattr(several, _ALL, (processor, *getattr(several, _ALL)))
        if isinstance(several, ConcurrentMultiSpanProcessor):
            logger.warning("art-otel: this provider runs its span processors side by side; %s", _BEFORE)
        return lambda: _take_out(several, processor)
    add = cast(Callable[[object], None] | None, getattr(provider, "add_span_processor", None))
    if add is None:
        logger.warning(
            "art-otel: nothing is recorded: the tracer provider %s takes no span processors; use the provider of"
            " opentelemetry-sdk",
            type(provider).__qualname__,
        )
        return None
    add(processor)
    logger.warning("art-otel: %s differs from opentelemetry-sdk; %s", type(provider).__qualname__, _BEFORE)
    return lambda: None


def _take_out(several: object, processor: RecordingSpanProcessor) -> None:
    with _lock_of(several):
        setattr(several, _ALL, tuple(attached for attached in getattr(several, _ALL) if attached is not processor))


def _lock_of(several: object) -> Any:  # noqa: ANN401 # a lock
    """The lock that the SDK takes to add processors."""
    return getattr(several, "_lock", None) or nullcontext()


def _with_tracers(provider: TracerProvider) -> Iterator[object]:
    """The provider and its tracers, each of which holds a sampler. Older SDKs do not know their tracers."""
    yield provider
    yield from list(cast(Mapping[object, object], getattr(provider, _TRACERS, {})).values())


def _record_all(owner: Any) -> None:  # noqa: ANN401 # a provider or a tracer
    """Let every span of a provider or tracer be recorded, with ids from the operating system."""
    sampler = getattr(owner, "sampler", None)
    if isinstance(sampler, Sampler):
        owner.sampler = RolloutSampler(sampler)
    generator = getattr(owner, "id_generator", None)
    if type(generator) is RandomIdGenerator:
        owner.id_generator = SystemIdGenerator(generator)


def _leave(provider: TracerProvider) -> None:
    """Restore sampler and id generator of the provider and its tracers, also of those made meanwhile."""
    owner: Any
    for owner in _with_tracers(provider):
        sampler = getattr(owner, "sampler", None)
        if isinstance(sampler, RolloutSampler):
            owner.sampler = sampler.inner
        generator = getattr(owner, "id_generator", None)
        if isinstance(generator, SystemIdGenerator) and generator.inner is not None:
            owner.id_generator = generator.inner


class _BatchesOfChildren(BatchSpanProcessor):
    """A BatchSpanProcessor that also sends the last batch of a child of multiprocessing, where no exit handler runs."""

    def __init__(self, exporter: SpanExporter) -> None:
        super().__init__(exporter)
        at_child_exit(self.send_last, is_last=True)

    def send_last(self) -> None:
        """Send the last batch, for at most 5 seconds: a collector that is away must not hold up the end."""
        sending = Thread(target=self.force_flush, daemon=True)
        sending.start()
        sending.join(_LAST_BATCH_SECONDS)


def make_provider(settings: Settings, environ: Mapping[str, str]) -> TracerProvider:
    """Make a provider with the exporters that the settings and the environment name."""
    provider = TracerProvider(resource=_resource(environ), span_limits=_span_limits(environ))
    for name in exporter_names(settings.exporters, environ):
        exporter = _make_exporter(name, environ)
        if exporter is not None:
            provider.add_span_processor(_BatchesOfChildren(exporter))
    return provider


def _span_limits(environ: Mapping[str, str]) -> SpanLimits:
    """Span limits that drop nothing, except where OTel's environment variables set a limit.

    The SDK's default is 128 attributes, and it drops the oldest ones. OpenInference writes two or more attributes for
    each message, so a prompt of 60 messages or more would lose its first messages. By default the SDK cuts no values.
    """

    def limit(*variables: str) -> int | None:
        return None if any(environ.get(variable) for variable in variables) else SpanLimits.UNSET

    return SpanLimits(
        max_events=limit(OTEL_SPAN_EVENT_COUNT_LIMIT),
        max_links=limit(OTEL_SPAN_LINK_COUNT_LIMIT),
        max_span_attributes=limit(OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT, OTEL_ATTRIBUTE_COUNT_LIMIT),
        max_event_attributes=limit(OTEL_EVENT_ATTRIBUTE_COUNT_LIMIT, OTEL_ATTRIBUTE_COUNT_LIMIT),
        max_link_attributes=limit(OTEL_LINK_ATTRIBUTE_COUNT_LIMIT, OTEL_ATTRIBUTE_COUNT_LIMIT),
    )


def _resource(environ: Mapping[str, str]) -> Resource:
    """The resource of the process. Its detectors need a thread pool, which does not start after the main thread."""
    try:
        return Resource.create()
    except RuntimeError as error:
        if environ.get(OTEL_EXPERIMENTAL_RESOURCE_DETECTORS):
            logger.warning(
                "art-otel: the resource has only OTEL_RESOURCE_ATTRIBUTES and OTEL_SERVICE_NAME, because its "
                "detectors cannot run (%s); make the first span before the main thread ends",
                error,
            )
        return Resource(_UNNAMED).merge(OTELResourceDetector().detect())


def _make_exporter(name: str, environ: Mapping[str, str]) -> SpanExporter | None:
    candidates = entry_points_of(name, environ)
    installed = {entry_point.name: entry_point for entry_point in entry_points(group=EXPORTERS)}
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


def exporter_names(names: Sequence[str] | None, environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return the names of the exporters; if `names` is None, OTLP when there is an endpoint for it."""
    if names is not None:
        return tuple(names)
    return (OTLP,) if any(environ.get(name) for name in _ENDPOINTS) else ()


def entry_points_of(name: str, environ: Mapping[str, str]) -> tuple[str, ...]:
    """The entry points for an exporter, in order of preference. `otlp` without a protocol may be gRPC or HTTP."""
    if name != OTLP:
        return (name,)
    protocol = next((environ[variable].strip() for variable in _PROTOCOLS if environ.get(variable)), None)
    if protocol is None:
        return (_GRPC, _HTTP)
    return _BY_PROTOCOL.get(protocol, (f"otlp ({protocol})",))
