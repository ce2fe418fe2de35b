"""Dialects: one module for each convention that instrumentors record calls in, and the table of them all.

A dialect reads a SpanRecording (a span and its log records) to CallFacts, or to None where it finds nothing. Invariant:
a dialect knows the attribute names of its convention only, and none raises for what a recording contains.
"""

from collections.abc import Callable
from itertools import chain
from typing import Final

from art_otel.conventions.attribute_names import NameFamilies
from art_otel.conventions.dialects import (
    agentlightning,
    art,
    claude_code,
    gemini_cli,
    genai,
    genai_events,
    google_adk,
    laminar,
    langfuse,
    langsmith,
    litellm,
    logfire,
    mastra,
    mlflow,
    nemo_relay,
    openinference,
    openllmetry,
    pipecat,
    vercel_ai,
)
from art_otel.conventions.dialects.dialect import Dialect, Role
from art_otel.spans import Span

DIALECTS: Final = (
    Dialect(convention=art.CONVENTION, known="verbatim body", read=art.read, shown_by=art.PREFIXES),
    Dialect(
        convention=agentlightning.CONVENTION,
        known="verbatim body",
        read=agentlightning.read,
        shown_by=agentlightning.ATTRIBUTES,
    ),
    claude_code.DIALECT,
    Dialect(
        convention=openinference.RAW,
        known="verbatim body",
        read=openinference.read_raw,
        shown_by=openinference.BODIES,
    ),
    openinference.LANGCHAIN_DIALECT,
    langfuse.DIALECT,
    nemo_relay.DIALECT,
    google_adk.DIALECT,
    vercel_ai.DIALECT,
    Dialect(convention=litellm.CONVENTION, known="verbatim body", read=litellm.read, shown_by=("llm.",)),
    logfire.DIALECT,
    mastra.DIALECT,
    gemini_cli.DIALECT,
    Dialect(convention=genai.CONVENTION, known="parsed attributes", read=genai.read, shown_by=genai.PREFIXES),
    laminar.DIALECT,
    pipecat.DIALECT,
    mlflow.DIALECT,  # which repeats what other tracers recorded
    langsmith.DIALECT,
    genai_events.LIST_DIALECT,
    Dialect(convention=genai.DETAILS_CONVENTION, known="parsed attributes", read=genai.read_details),
    Dialect(convention=genai_events.CONVENTION, known="parsed attributes", read=genai_events.read),
    Dialect(
        convention=openinference.FLATTENED,
        known="flattened attributes",
        read=openinference.read_flattened,
        shown_by=("llm.",),
    ),
    Dialect(
        convention=openllmetry.CONVENTION,
        known="flattened attributes",
        read=openllmetry.read,
        shown_by=openllmetry.PREFIXES,
    ),
)
"""Every dialect, the most trusted first: exact records, then parsed, then lossy ones."""


def attribute_dialects(families: NameFamilies) -> tuple[Dialect, ...]:
    """The dialects that may be on a span with these attributes and without events or log records."""
    return tuple(dialect for dialect in DIALECTS if families.starting(dialect.shown_by))


def all_dialects(families: NameFamilies) -> tuple[Dialect, ...]:
    """The dialects that may be on a span with these attributes and with events or log records."""
    return tuple(dialect for dialect in DIALECTS if not dialect.shown_by or families.starting(dialect.shown_by))


def role_readers(families: NameFamilies) -> tuple[Callable[[Span], Role | None], ...]:
    """What tells the role of a span with these attributes, by the dialects that name one in their own words."""
    return tuple(dialect.role for dialect in attribute_dialects(families) if dialect.role is not None)


_PREFIXES: Final = (
    "gen_ai.",
    "llm.",
    "input.",
    "output.",
    "openinference.",
    "traceloop.",
    "agentlightning.",
    "rl.",
    "exception.",
    "error.",
    *chain.from_iterable(dialect.prefixes for dialect in DIALECTS),
)
_NAMES: Final = frozenset({"prompt_token_ids", "response_token_ids", "logprobs.content", "logprobs.refusal"})
"""Names of Agent Lightning, which have no prefix of their own."""

CONTENT_ATTRIBUTES: Final = tuple(chain.from_iterable(dialect.content for dialect in DIALECTS))
"""Attributes of dialects that hold content although their names do not say so."""


def is_convention_attribute(name: str) -> bool:
    """Whether the attribute belongs to a convention of this package."""
    return name.startswith(_PREFIXES) or name in _NAMES
