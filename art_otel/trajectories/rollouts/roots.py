"""Roots: which spans are rollouts' own spans, and the rollouts' ids.

Invariant: a trace in which a span declares a rollout id has the roots of its declared ids and no others. Elsewhere the
spans that match `rollout_spans` are the roots; where nobody named such spans, the root of a trace with LLM calls is.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import islice

from art_otel import attributes
from art_otel.conventions import Role
from art_otel.spans import Span, SpanKey, SpanTree
from art_otel.trajectories.rollouts.marks import is_marked_root, is_named_rollout


def find_roots(
    tree: SpanTree, roles: Mapping[SpanKey, Role], declared: Mapping[SpanKey, str], rollout_spans: Sequence[str]
) -> list[tuple[Span, str]]:
    """The roots of a tree with their rollout ids. `declared` has the ids that spans carry."""
    roots = list(_declared_roots(tree, roles, declared))
    declaring = {trace_id for trace_id, _ in declared}
    if rollout_spans:
        keys = (key for key, span in tree.spans.items() if is_named_rollout(span, rollout_spans))
        roots += [(key, "-".join(key)) for key in keys if key[0] not in declaring]
    else:
        roots += _roots_of_calls(tree, roles, declaring)
    return [(tree.spans[key], rollout_id) for key, rollout_id in roots]


def _declared_roots(
    tree: SpanTree, roles: Mapping[SpanKey, Role], declared: Mapping[SpanKey, str]
) -> Iterator[tuple[SpanKey, str]]:
    """For each declared id: its marked topmost spans (one per attempt), else one plausible root."""
    topmost: dict[str, list[SpanKey]] = {}
    enclosing_ids = tree.inherit(lambda key, above: declared.get(key) or above) if declared else {}
    for key, rollout_id in declared.items():
        parent = tree.parents.get(key)
        if parent is None or enclosing_ids[parent] != rollout_id:
            topmost.setdefault(rollout_id, []).append(key)
    for rollout_id, keys in topmost.items():
        marked = [key for key in keys if is_marked_root(tree.spans[key])]
        unmarked = islice((key for key in keys if _may_be_root(key, tree, roles)), 1)
        for key in marked or list(unmarked) or _lone_call(keys, tree, roles):
            yield key, rollout_id


def _may_be_root(key: SpanKey, tree: SpanTree, roles: Mapping[SpanKey, Role]) -> bool:
    """Whether an unmarked topmost span of an id is the rollout's own: a step, tool or call is only a part of one."""
    is_step = attributes.STEP_INDEX in tree.spans[key].attributes
    return key not in tree.orphans and not is_step and roles[key] in {"other", "agent"}


def _lone_call(keys: Sequence[SpanKey], tree: SpanTree, roles: Mapping[SpanKey, Role]) -> Sequence[SpanKey]:
    """A call that is the only topmost span of the id is its own rollout, as a call without an id is."""
    is_lone = len(keys) == 1 and roles[keys[0]] == "inference" and keys[0] not in tree.orphans
    return keys if is_lone else ()


def _roots_of_calls(
    tree: SpanTree, roles: Mapping[SpanKey, Role], declaring: Collection[str]
) -> Iterator[tuple[SpanKey, str]]:
    """The roots with calls at or below them. The rollout id is the trace id, for further roots with the span id."""
    with_calls: set[SpanKey] = set()
    for key, role in roles.items():
        at: SpanKey | None = key if role == "inference" and key[0] not in declaring else None
        while at is not None and at not in with_calls:
            with_calls.add(at)
            at = tree.parents.get(at)
    named: set[str] = set()
    for key, span in tree.spans.items() if with_calls else ():
        if span.parent_span_id is None and key in with_calls:
            trace_id, span_id = key
            yield key, f"{trace_id}-{span_id}" if trace_id in named else trace_id
            named.add(trace_id)
