"""Attach: a provider's spans go through our processor before anybody else's.

Invariant: the provider keeps everything it had: processors, exporters, sampler, resource; `detach` gives back exactly
that. Its sampler still decides what is exported, and only ids of the SDK's own generator come from elsewhere.
"""

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, cast

from opentelemetry.sdk.trace import ConcurrentMultiSpanProcessor, TracerProvider
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
from opentelemetry.sdk.trace.sampling import Sampler
from opentelemetry.trace import TracerProvider as AnyTracerProvider

from art_otel.tracing.internal_errors import guarded
from art_otel.tracing.sdk.processor import RecordingSpanProcessor
from art_otel.tracing.setup.ids import SystemIdGenerator
from art_otel.tracing.setup.sampler import RolloutSampler

logger = logging.getLogger(__name__)

_ACTIVE: Final = "_active_span_processor"
_ALL: Final = "_span_processors"
_TRACERS: Final = "_tracers"
_BEFORE: Final = "spans that other processors export may be seen before they are scrubbed"


@dataclass(frozen=True, kw_only=True, slots=True)
class Attachment:
    """The art-otel processor as it is attached to one provider."""

    provider: AnyTracerProvider
    undo: tuple[Callable[[], None], ...]

    def detach(self) -> None:
        """Give the provider back what it had."""
        for step in reversed(self.undo):
            step()


def attach(provider: AnyTracerProvider, processor: RecordingSpanProcessor) -> Attachment | None:
    """Let the provider's spans go through the processor first. None, and a warning, where it takes no processors."""
    undo = _put_first(provider, processor)
    if undo is None:
        return None
    steps = [undo]
    if isinstance(provider, TracerProvider):
        for owner in _with_tracers(provider):
            _record_all(owner)
        steps.append(partial(_leave, provider))
    return Attachment(provider=provider, undo=tuple(steps))


def behind(provider: AnyTracerProvider) -> AnyTracerProvider | None:
    """The provider that this one hands everything to, as Logfire's does; None for one that makes spans itself."""
    inner: object = getattr(provider, "provider", None)
    return inner if isinstance(inner, AnyTracerProvider) else None


def follow(provider: AnyTracerProvider, on_next: Callable[[AnyTracerProvider], None]) -> Attachment:
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
    logger.warning("art-otel: %s is not as it was in opentelemetry-sdk; %s", type(provider).__qualname__, _BEFORE)
    return lambda: None


def _take_out(several: object, processor: RecordingSpanProcessor) -> None:
    with _lock_of(several):
        setattr(several, _ALL, tuple(attached for attached in getattr(several, _ALL) if attached is not processor))


def _lock_of(several: object) -> Any:  # noqa: ANN401 # a lock
    """The lock under which the SDK adds processors."""
    return getattr(several, "_lock", None) or nullcontext()


def _with_tracers(provider: TracerProvider) -> Iterator[object]:
    """The provider and the tracers it gave out, which hold their own sampler; older SDKs do not know theirs."""
    yield provider
    yield from list(cast(Mapping[object, object], getattr(provider, _TRACERS, {})).values())


def _record_all(owner: Any) -> None:  # noqa: ANN401 # a provider or a tracer
    """Let every span of it be recorded, with ids from the operating system."""
    sampler = getattr(owner, "sampler", None)
    if isinstance(sampler, Sampler):
        owner.sampler = RolloutSampler(sampler)
    generator = getattr(owner, "id_generator", None)
    if type(generator) is RandomIdGenerator:
        owner.id_generator = SystemIdGenerator(generator)


def _leave(provider: TracerProvider) -> None:
    """Give the provider and its tracers, also those made meanwhile, what ours stood before."""
    owner: Any
    for owner in _with_tracers(provider):
        sampler = getattr(owner, "sampler", None)
        if isinstance(sampler, RolloutSampler):
            owner.sampler = sampler.inner
        generator = getattr(owner, "id_generator", None)
        if isinstance(generator, SystemIdGenerator) and generator.inner is not None:
            owner.id_generator = generator.inner
