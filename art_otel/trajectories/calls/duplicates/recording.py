"""Recordings: the inference spans of a rollout, each with the call that it describes and its place in the tree."""

from collections.abc import Mapping

import msgspec

from art_otel.calls import InferenceCall
from art_otel.conventions import recorder_of
from art_otel.spans import Span, SpanKey, SpanTree
from art_otel.trajectories.calls.ancestry import Ancestry


class Recording(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """One inference span.

    `start` and `end` are comparable between machines. `outer` is the nearest recording around it in its rollout,
    `depth` counts those around it, `boundary_depth` the tools and agents around it.
    """

    span: Span
    call: InferenceCall
    start: int
    end: int | None
    outer: "Recording | None" = None
    depth: int = 0
    boundary_depth: int = 0

    @property
    def recorder(self) -> tuple[str, str]:
        """The instrumentor, and which of its integrations it was."""
        return recorder_of(self.span)


def read_recordings(calls: Mapping[SpanKey, InferenceCall], tree: SpanTree, ancestry: Ancestry) -> list[Recording]:
    """The recordings of one rollout, the outer ones first and each level in the order of their start."""
    recordings: dict[SpanKey, Recording] = {}
    for key in sorted(calls, key=lambda key: (ancestry.context_above(key).call_depth, tree.starts[key], key)):
        span, start, above = tree.spans[key], tree.starts[key], ancestry.context_above(key)
        outer = above.call
        while outer is not None and outer not in calls:  # a call of another rollout
            outer = ancestry.context_above(outer).call
        enclosing = None if outer is None else recordings[outer]
        recordings[key] = Recording(
            span=span,
            call=calls[key],
            start=start,
            end=None if span.end_ns is None else start + span.end_ns - span.start_ns,
            outer=enclosing,
            depth=0 if enclosing is None else enclosing.depth + 1,
            boundary_depth=above.boundary_depth,
        )
    return list(recordings.values())
