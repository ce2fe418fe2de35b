"""Links: which traces are assembled together.

Invariant: traces that share a rollout id are linked, and so are those that are linked to one trace. The smallest id of
linked traces stands for all of them, so the outcome does not depend on the order of the edges.
"""

from collections.abc import Iterable


def representatives(edges: Iterable[tuple[str, str]]) -> dict[str, str]:
    """For each trace of the edges the smallest of those that it is linked to; the smallest leads to itself."""
    parents: dict[str, str] = {}
    for first, second in edges:
        low, high = sorted((_root(parents, first), _root(parents, second)))
        parents[high] = low
    return {trace_id: _root(parents, trace_id) for trace_id in parents}


def _root(parents: dict[str, str], trace_id: str) -> str:
    parent = parents.setdefault(trace_id, trace_id)
    while parent != trace_id:
        parents[trace_id] = parents[parent]
        trace_id, parent = parents[trace_id], parents[parents[trace_id]]
    return trace_id
