"""Linking: which traces are assembled together, and the rewards that name a rollout.

Invariant: what earlier rounds kept is linked with what is new, so the edges are those of one conversion.
"""

from typing import NamedTuple

from art_otel.engines.continuation import Continuation
from art_otel.engines.engine import Engine
from art_otel.engines.planning import plan
from art_otel.engines.planning.sizes import Sizes
from art_otel.engines.shards import Shuffle
from art_otel.engines.tasks import LinkSummary, LinkTask, link
from art_otel.engines.workspace import Workspace


class Linked(NamedTuple):
    """Edges between traces, and rewards in the slots of their rollouts; `again` are those of earlier rounds."""

    edges: list[bytes]
    shuffle: Shuffle
    again: Shuffle


def link_traces(
    workspace: Workspace, engine: Engine, sizes: Sizes, read: Shuffle, continued: Continuation | None
) -> Linked:
    """Link the traces of each rollout id, and deliver the rewards that name one."""
    kept = Shuffle() if continued is None else continued.records
    files, kept_files = (one.write_catalog(workspace.folder) for one in (read, kept))
    tasks = [
        LinkTask(
            regions=regions,
            files=files,
            kept=kept_files,
            round=None if continued is None else continued.round,
            slots=sizes.slots,
            scratch=workspace.folder,
        )
        for regions in plan.link_batches((read | kept).sizes, sizes)
    ]
    summaries = list(workspace.summaries(engine, link, tasks, LinkSummary))
    return Linked(
        [summary.edges for summary in summaries],
        Shuffle(summary.shuffled for summary in summaries),
        Shuffle(summary.again for summary in summaries),
    )
