"""Autoload: tracing begins by the environment.

The ways in are an import of art_otel (which `art-otel run` and `art-otel autoload install` cause at the start of a
program) and opentelemetry-instrument.

Invariant: without ART_OTEL_ENABLED nothing happens. Several ways in at once are one. Nothing here raises.
"""

import logging
import os

from art_otel.tracing.import_hooks import guarded
from art_otel.tracing.setup.settings import read_settings
from art_otel.tracing.switch import ENABLED

logger = logging.getLogger(__name__)


@guarded
def start() -> None:
    """Trace this process if ART_OTEL_ENABLED says so, and nobody has said otherwise by `configure()`."""
    if not os.environ.get(ENABLED):
        return
    from art_otel.tracing.setup.configure import tracing  # noqa: PLC0415 # nothing is loaded where the variable is not set

    if tracing.is_set_up:
        return
    settings, problems = read_settings(os.environ, {})
    for problem in problems:
        logger.warning("art-otel: %s; going on with %r", problem.text, getattr(settings, problem.name))
    if settings.enabled:
        tracing.begin(settings)


@guarded
def pre_instrument() -> None:
    """opentelemetry-instrument has made a provider and will instrument what is installed."""
    if os.environ.get(ENABLED):
        from art_otel.tracing.setup.configure import tracing  # noqa: PLC0415 # as above

        tracing.client.hold()
        start()


@guarded
def post_instrument() -> None:
    """opentelemetry-instrument has instrumented what is installed."""
    if os.environ.get(ENABLED):
        from art_otel.tracing.setup.configure import tracing  # noqa: PLC0415 # as above

        tracing.client.release()
