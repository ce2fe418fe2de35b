"""Unknown: variables that begin as ours do and that nobody reads.

Invariant: each is warned about once, with the name that was probably meant.
"""

from collections.abc import Mapping
from difflib import get_close_matches
from typing import Final

from art_otel.spool.writer import RUN
from art_otel.tracing.internal_errors import warn_once
from art_otel.tracing.setup.settings import sources

_PREFIX: Final = "ART_OTEL_"
_OTHERS: Final = frozenset({RUN, "ART_OTEL_RUN_PID"})
"""The name of the run, and what `art-otel run` says to the program that it starts."""


def warn_of_unknown(environ: Mapping[str, str]) -> None:
    """Warn of variables that begin with ART_OTEL_ and are no setting."""
    settings = {source.variable for source in sources().values()}
    for name in sorted(environ):
        if not name.startswith(_PREFIX) or name in settings or name in _OTHERS:
            continue
        nearest = get_close_matches(name, settings, n=1)
        advice = f"did you mean {nearest[0]}?" if nearest else "docs/spec/settings.md lists the settings"
        warn_once(f"%s is no setting and is ignored: {advice}", name)
