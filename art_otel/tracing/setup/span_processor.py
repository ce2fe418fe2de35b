"""RolloutSpanProcessor: records rollouts, for an app that adds it to its provider itself.

Invariant: it records what `configure()` would record, scrubbed in the same way; it touches neither OTel's globals nor
the openai client.
"""

import os
from typing import Unpack

from art_otel.errors import UsageError
from art_otel.tracing.api.recorder import recorder, use_recorder
from art_otel.tracing.sdk.processor import RecordingSpanProcessor
from art_otel.tracing.setup.recording import recording_parts
from art_otel.tracing.setup.settings import Keywords, read_settings


class RolloutSpanProcessor(RecordingSpanProcessor):
    """A span processor that records rollouts, to be added to a TracerProvider by hand.

    provider = TracerProvider()
    provider.add_span_processor(RolloutSpanProcessor(dir=".art"))
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))

    Add it before processors that export, so that they see spans after secrets were taken out. The keywords, and the
    environment variables beside them, are those of `configure()` about recording: `dir`, `spool`, `split`,
    `rollout_spans`, … The app instruments the openai client itself. Of several, the first gives trajectories to the
    code that runs. Raises UsageError for a setting that cannot be.
    """

    def __init__(self, **keywords: Unpack[Keywords]) -> None:
        settings, problems = read_settings(os.environ, keywords)
        if problems:
            raise UsageError("; ".join(problem.text for problem in problems))
        super().__init__(**recording_parts(settings))
        if recorder() is None:
            use_recorder(self.rollouts)

    def shutdown(self) -> None:
        """End the process's own rollout and close the spool."""
        super().shutdown()
        if recorder() is self.rollouts:
            use_recorder(None)
