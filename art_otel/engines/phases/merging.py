"""Merging: tiers of kept files become one.

Invariant: what the tiers say stays the same, but for what is closed where all tiers are merged.
"""

from collections.abc import Mapping, Sequence

from art_otel.engines.engine import Engine
from art_otel.engines.incremental.kept import Tier
from art_otel.engines.planning import plan
from art_otel.engines.planning.sizes import Sizes
from art_otel.engines.shards import Shuffle
from art_otel.engines.tasks import Merged, MergeTask, merge
from art_otel.engines.workspace import Workspace


def merge_tiers(
    workspace: Workspace,
    engine: Engine,
    sizes: Sizes,
    tiers: Sequence[Tier],
    *,
    horizon: int | None = None,
    moved: Mapping[str, Mapping[int, tuple[str, int]]] | None = None,
) -> Tier:
    """Make one tier of several: see MergeTask."""
    records, outcomes = Shuffle(), Shuffle()
    for tier in tiers:
        records |= tier.records
        outcomes |= tier.outcomes
    record_files, outcome_files = (one.write_catalog(workspace.folder) for one in (records, outcomes))
    tasks = [
        MergeTask(
            regions=regions,
            records=record_files,
            outcomes=outcome_files,
            horizon=horizon,
            moved={part: dict(rows) for part, rows in (moved or {}).items()},
            slots=sizes.slots,
            scratch=workspace.folder,
        )
        for regions in plan.merge_batches((records | outcomes).sizes, sizes)
    ]
    merged = list(workspace.summaries(engine, merge, tasks, Merged))
    return Tier(Shuffle(one.records for one in merged), Shuffle(one.outcomes for one in merged))
