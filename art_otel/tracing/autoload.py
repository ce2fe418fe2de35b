"""Autoload: whether this process is traced, and how the environment starts the tracing.

Tracing starts by an import of art_otel (which `art-otel run` and `art-otel autoload install` cause at the start of a
program), or by opentelemetry-instrument.

Invariant: without ART_OTEL_ENABLED nothing is started here. Several starts count as one. Nothing raises. An unset
variable means neither on nor off: only then does art-otel warn that something is not recorded, since the user may have
forgotten to turn tracing on.
"""

import logging
import os
from collections.abc import Mapping
from typing import Final

from art_otel.tracing.internal_errors import guarded

logger = logging.getLogger(__name__)


@guarded
def start() -> None:
    """Trace this process if ART_OTEL_ENABLED says so, unless `configure()` has been called already."""
    if not os.environ.get(ENABLED):
        return
    # Imported only here, so that a process without the variable pays nothing.
    from art_otel.tracing.setup.configure import tracing  # noqa: PLC0415 # as above
    from art_otel.tracing.setup.settings import read_settings  # noqa: PLC0415 # as above

    if tracing.is_set_up:
        return
    settings, problems = read_settings(os.environ, {})
    for problem in problems:
        logger.warning("art-otel: %s; going on with %r", problem.text, getattr(settings, problem.name))
    if settings.enabled:
        tracing.begin(settings)


@guarded
def pre_instrument() -> None:
    """Called by opentelemetry-instrument after it has made a provider, and before it starts its instrumentors."""
    if os.environ.get(ENABLED):
        from art_otel.tracing.setup.configure import tracing  # noqa: PLC0415 # as above

        tracing.client.hold()
        start()


@guarded
def post_instrument() -> None:
    """Called by opentelemetry-instrument after it has started its instrumentors."""
    if os.environ.get(ENABLED):
        from art_otel.tracing.setup.configure import tracing  # noqa: PLC0415 # as above

        tracing.client.release()


ENABLED: Final = "ART_OTEL_ENABLED"
_SDK_DISABLED: Final = "OTEL_SDK_DISABLED"

_ON: Final = frozenset({"1", "true", "yes", "on"})
_OFF: Final = frozenset({"0", "false", "no", "off"})

_off_by_app = False


def as_switch(value: object) -> bool | None:
    """Parse a value as on or off; None if it is neither."""
    if isinstance(value, bool):
        return value
    word = value.strip().lower() if isinstance(value, str) else value
    return True if word in _ON else False if word in _OFF else None


def is_sdk_off(environ: Mapping[str, str]) -> bool:
    """Whether OTEL_SDK_DISABLED turns off all spans of OTel."""
    return environ.get(_SDK_DISABLED, "").strip().lower() == "true"


def turn_tracing(*, off: bool) -> None:
    """Note that the app turned tracing off by `configure(enabled=False)`, or take that back."""
    global _off_by_app  # noqa: PLW0603 # one a process, as the set-up is
    _off_by_app = off


def is_off() -> bool:
    """Whether the app or the environment explicitly turned recording off."""
    return _off_by_app or as_switch(os.environ.get(ENABLED)) is False or is_sdk_off(os.environ)
