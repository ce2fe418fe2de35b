"""Recording: makes the spool, the buffer of rollouts, the process's own rollout and the processor from the settings.

Invariant: nothing of this exists before the first span, so a program without spans pays nothing. The process's own
rollout ends before any provider shuts down. An app that adds RolloutSpanProcessor to its provider itself gets the same
records, scrubbed in the same way; then neither OTel's globals nor the openai client are changed.
"""

import atexit
import logging
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, TypedDict

from opentelemetry.trace import TracerProvider

from art_otel import attributes
from art_otel.errors import UsageError
from art_otel.live import RolloutBuffer
from art_otel.spool import Spool, SpoolWriter, remove_old_runs, run_folder
from art_otel.tracing.api.context import name_rollout_spans, recorder, tracer, trust_rollout_ids, use_recorder
from art_otel.tracing.autoload import is_sdk_off
from art_otel.tracing.internal_errors import warn_once
from art_otel.tracing.sdk.processor import RecordingSpanProcessor, Rewrite
from art_otel.tracing.sdk.rollout_registry import ProcessRollout
from art_otel.tracing.sdk.span_lines import SpanScrubber, without_content
from art_otel.tracing.setup.providers import Attachment, add_processor, on_set_provider, unwrap_provider
from art_otel.tracing.setup.settings import Settings, method_takes_settings, read_settings

logger = logging.getLogger(__name__)

_HOUR: Final = 3600.0
_DAY: Final = 24 * _HOUR


@dataclass(kw_only=True, slots=True)
class Recording:
    """Records the spans of this process. `attachments` are the providers whose spans are recorded."""

    processor: RecordingSpanProcessor
    process_rollout: ProcessRollout
    attachments: list[Attachment] = field(default_factory=list[Attachment])

    @property
    def begun(self) -> bool:
        """Whether any line was recorded."""
        return self.processor.spool.counts.written > 0

    def attach(self, provider: TracerProvider) -> None:
        """Record the spans of a provider, too; nothing if that is done already."""
        if any(attached.provider is provider for attached in self.attachments):
            return
        inner = unwrap_provider(provider)
        if inner is not None:
            self.attachments.append(on_set_provider(provider, self.attach))
            self.attach(inner)
            return
        attachment = add_processor(provider, self.processor)
        if attachment is not None:
            self.attachments.append(attachment)
        # Exit handlers run in reverse order. Registered now, after the provider was made, the end of the process's
        # rollout comes before the provider's shutdown, which would else drop its span.
        atexit.unregister(self.process_rollout.end)
        atexit.register(self.process_rollout.end)

    def end(self) -> list[TracerProvider]:
        """End the process's rollout, close the spool, and restore the providers, which are returned."""
        use_recorder(None)
        trust_rollout_ids("own")
        name_rollout_spans(())
        atexit.unregister(self.process_rollout.end)
        self.processor.shutdown()
        for attachment in self.attachments:
            attachment.detach()
        return [attachment.provider for attachment in self.attachments]


class RecordingParts(TypedDict):
    """The arguments of a RecordingSpanProcessor."""

    spool: Spool | None
    rollouts: RolloutBuffer
    rewrites: list[Rewrite]
    rollout_spans: tuple[str, ...]
    rollout_attributes: tuple[str, ...]
    process_rollout: ProcessRollout
    about: dict[str, str]


def recording_parts(settings: Settings) -> RecordingParts:
    """Make the parts of a recording from the settings, and set the trust in rollout ids and the rollout spans."""
    trust_rollout_ids(settings.trust_rollout_ids)
    name_rollout_spans(settings.rollout_spans)
    rollouts = RolloutBuffer(
        grace=settings.grace_seconds,
        max_open=settings.max_open_rollouts,
        max_age=settings.max_rollout_hours * _HOUR,
    )
    return RecordingParts(
        spool=_spool(settings),
        rollouts=rollouts,
        rewrites=list(_rewrites(settings)),
        rollout_spans=settings.rollout_spans,
        rollout_attributes=settings.rollout_attributes,
        process_rollout=ProcessRollout(tracer, rollouts),
        about=_about(settings),
    )


def make_recording(settings: Settings) -> Recording:
    """Make the recording of this process from the settings."""
    if is_sdk_off(os.environ):
        warn_once("nothing is recorded: OTel makes no span while OTEL_SDK_DISABLED=true is set")
    parts = recording_parts(settings)
    processor = RecordingSpanProcessor(**parts)
    use_recorder(parts["rollouts"])
    return Recording(processor=processor, process_rollout=parts["process_rollout"])


def _spool(settings: Settings) -> Spool | None:
    folder = settings.spool_folder
    if folder is None:
        return None
    if settings.spool_days is not None and (removed := remove_old_runs(folder, settings.spool_days * _DAY)):
        logger.warning(
            "art-otel: %d runs in %s were removed: their rollouts were converted or delivered, and nothing was "
            "written to them for %g days (ART_OTEL_SPOOL_DAYS)",
            len(removed),
            folder,
            settings.spool_days,
        )
    return SpoolWriter(run_folder(folder))


def _about(settings: Settings) -> dict[str, str]:
    return {} if settings.split is None else {attributes.SPLIT: settings.split}


def _rewrites(settings: Settings) -> Iterator[Rewrite]:
    if not settings.capture_content:
        yield without_content
    scrubber = settings.make_scrubber()
    if scrubber is not None:
        yield SpanScrubber(scrubber)


class RolloutSpanProcessor(RecordingSpanProcessor):
    """A span processor that records rollouts. Add it to a TracerProvider yourself, in place of `configure()`.

        provider = TracerProvider()
        provider.add_span_processor(RolloutSpanProcessor(dir=".art"))
        provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))

    Add it before processors that export, so that they get spans without secrets. It takes the keywords of `configure()`
    about recording (`dir`, `spool`, `split`, `rollout_spans`, …), and their environment variables. The app instruments
    the openai client itself. If there are several, the first one gives trajectories to running code. Raises UsageError
    for an invalid setting.
    """

    @method_takes_settings(Settings)
    def __init__(self, **keywords: object) -> None:
        settings, problems = read_settings(os.environ, keywords)
        if problems:
            raise UsageError("; ".join(problem.text for problem in problems))
        super().__init__(**recording_parts(settings))
        # Several processors may exist; the first one is the one that gathering reads.
        if recorder() is None:
            use_recorder(self.rollouts)

    def shutdown(self) -> None:
        """End the process's own rollout and close the spool."""
        super().shutdown()
        if recorder() is self.rollouts:
            use_recorder(None)
