"""Marks: what a span alone says about the rollout that it belongs to.

Invariant: each answer is read from the span alone, so that everybody who sees the span gives the same one.
"""

from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import Final

from art_otel import attributes
from art_otel.spans import Span

_ROOT_ATTRIBUTES: Final = frozenset({attributes.ROLLOUT_NAME, attributes.SPANS_STARTED, attributes.SPANS_ENDED})
"""Attributes that only a rollout's own span has."""


def declared_id(span: Span) -> str | None:
    """The rollout id by which a span says where it belongs; a reward span says with it whom its rewards are for."""
    value = span.attributes.get(attributes.ROLLOUT_ID)
    return None if value is None or value == "" or is_reward_span(span) else str(value)


def is_provisional(span: Span) -> bool:
    """Whether the span is a root whose id its process made up, not knowing what its parent belongs to."""
    value = span.attributes.get(attributes.ROLLOUT_PROVISIONAL)
    return value is not None and str(value).lower() == "true"  # some stores make it a text


def is_marked_root(span: Span) -> bool:
    """Whether a span that carries a rollout id is the rollout's own, whatever its ancestors are."""
    is_named = f"{span.name} ".startswith(attributes.ROLLOUT_SPAN_PREFIX)
    return is_named or not _ROOT_ATTRIBUTES.isdisjoint(span.attributes)


def is_named_rollout(span: Span, rollout_spans: Sequence[str]) -> bool:
    """Whether the span's name matches one of the globs that name rollouts."""
    return any(fnmatchcase(span.name, glob) for glob in rollout_spans)


def is_reward_span(span: Span) -> bool:
    """Whether the span was made to give a reward to what it links to."""
    return span.name.startswith(attributes.REWARD_SPAN_PREFIX)
