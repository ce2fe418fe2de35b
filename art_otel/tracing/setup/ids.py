"""Ids that do not depend on the `random` module, which agents seed for each episode.

Invariant: two spans or rollouts never share an id, whatever the app does with `random`.
"""

import os
from typing import Final

from opentelemetry.sdk.trace.id_generator import IdGenerator

TRACE_BYTES: Final = 16
SPAN_BYTES: Final = 8


class SystemIdGenerator(IdGenerator):
    """Trace and span ids from the operating system. `inner` is the generator in whose place it stands, if any."""

    def __init__(self, inner: IdGenerator | None = None) -> None:
        self.inner = inner

    def generate_span_id(self) -> int:
        """Eight random bytes, not all zero."""
        return _number(SPAN_BYTES)

    def generate_trace_id(self) -> int:
        """Sixteen random bytes, not all zero."""
        return _number(TRACE_BYTES)

    def is_trace_id_random(self) -> bool:
        """True: W3C's random flag may be set."""
        return True


def _number(size: int) -> int:
    while not (number := int.from_bytes(os.urandom(size), "big")):
        pass
    return number
