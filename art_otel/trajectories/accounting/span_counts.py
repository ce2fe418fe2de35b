"""Span counts: how many spans a rollout's process says that it has, against how many are here.

Invariant: only spans of the process that counted are compared with its counts: a span that another service adds to the
rollout replaces none that was lost. The counts are `art.rollout.spans.started` and `.ended` on the rollout's own span.
"""

from collections.abc import Iterable

from art_otel import attributes
from art_otel.conventions import integer
from art_otel.spans import Resource, Span


def missing_spans(root: Span | None, spans: Iterable[Span]) -> int:
    """How many spans of the rollout are missing below its own span, as far as that counted them."""
    expected = None if root is None else spans_counted_on(root)
    if root is None or expected is None:
        return 0
    here = sum(span is not root and _is_counted(span, root) for span in spans)
    return max(0, expected - here)


def spans_counted_on(root: Span) -> int | None:
    """How many spans a rollout has by its own span, the larger of both counts; None where it has none."""
    values = (root.attributes.get(name) for name in (attributes.SPANS_STARTED, attributes.SPANS_ENDED))
    return max((count for count in map(integer, values) if count is not None), default=None)


def _is_counted(span: Span, root: Span) -> bool:
    """Whether the process of the root counted the span: it is of the same process, and not a standalone reward."""
    declared = span.attributes.get(attributes.ROLLOUT_ID)
    if declared is not None and declared != root.attributes.get(attributes.ROLLOUT_ID):
        return False  # of a service whose process did not know the rollout and made up an id
    if span.trace_id != root.trace_id and _is_standalone_reward(span):
        return False
    return may_be_one_process(span.resource, root.resource)


def _is_standalone_reward(span: Span) -> bool:
    """Whether the span is a reward outside every rollout's tree, which no rollout counts."""
    return span.name.startswith(attributes.REWARD_SPAN_PREFIX) and (bool(span.links) or span.parent_span_id is None)


def may_be_one_process(one: Resource, other: Resource) -> bool:
    """Whether no attribute that both resources have differs: some stores keep none, or only some."""
    if one is other:
        return True
    return all(other.attributes.get(name, value) == value for name, value in one.attributes.items())
