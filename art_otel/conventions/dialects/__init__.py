"""Dialects: one module for each convention that instrumentors record calls in, and the table of them all.

A dialect reads a Recording (a span and its log records) to CallFacts, or to None where it finds nothing. Invariant: a
dialect knows the attribute names of its convention only, and none raises for what a recording contains.
"""

from collections.abc import Callable
from typing import Final, TypeAlias

import msgspec

from art_otel.conventions.attributes.names import AttributeNames
from art_otel.conventions.dialects import (
    agentlightning,
    art,
    claude_code,
    genai,
    genai_events,
    litellm,
    openinference,
    openllmetry,
)
from art_otel.conventions.facts import CallFacts
from art_otel.conventions.recording import Recording

Read: TypeAlias = Callable[[Recording, CallFacts], CallFacts | None]
"""Reads a recording; the second argument is what more trusted dialects read already."""

Matches: TypeAlias = Callable[[AttributeNames], bool]


class Dialect(msgspec.Struct, frozen=True):
    """How a convention is read, and whether the attribute names of a span show that it may be there.

    One without `matches` reads events and log records only.
    """

    read: Read
    matches: Matches | None = None


DIALECTS: Final[dict[str, Dialect]] = {
    art.CONVENTION: Dialect(art.read, art.matches),
    agentlightning.CONVENTION: Dialect(agentlightning.read, agentlightning.matches),
    claude_code.CONVENTION: Dialect(claude_code.read),
    openinference.RAW: Dialect(openinference.read_raw, openinference.may_have_bodies),
    litellm.CONVENTION: Dialect(litellm.read, litellm.matches),
    genai.CONVENTION: Dialect(genai.read, genai.matches),
    genai.DETAILS_CONVENTION: Dialect(genai.read_details),
    genai_events.CONVENTION: Dialect(genai_events.read),
    openinference.FLATTENED: Dialect(openinference.read_flattened, openinference.may_be_flattened),
    openllmetry.CONVENTION: Dialect(openllmetry.read, openllmetry.matches),
}
"""Every dialect by the name of its convention, the most trusted first: exact records, then parsed, then lossy ones."""


def attribute_readers(names: AttributeNames) -> tuple[Read, ...]:
    """The readers of the dialects that may be on a span with these attributes and without events or log records."""
    return tuple(
        dialect.read for dialect in DIALECTS.values() if dialect.matches is not None and dialect.matches(names)
    )


def all_readers(names: AttributeNames) -> tuple[Read, ...]:
    """The readers of the dialects that may be on a span with these attributes and with events or log records."""
    return tuple(dialect.read for dialect in DIALECTS.values() if dialect.matches is None or dialect.matches(names))
