"""Compact: a dataset without the rows that no longer count, in fewer parts.

Invariant: the trajectories that are read are the same before, during and after it; later rounds go on from it.
"""

import os
import tempfile
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import msgspec

from art_otel import storage
from art_otel.engines.continuation import Tier, merge_tiers, read_kept, stage_kept
from art_otel.engines.local import local_engine
from art_otel.engines.plan import Job, Sizes
from art_otel.engines.shuffle import Shuffle
from art_otel.engines.workspace import Runner, Workspace, open_workspace
from art_otel.errors import UsageError
from art_otel.store import REPORT_NAME, Manifest, read_manifest
from art_otel.store.commit import Addition, KeptFile, commit

LINGER: Final = 3600.0
"""Seconds that parts stay for those who read them."""


class Compaction(msgspec.Struct, frozen=True, kw_only=True):
    """How many parts were written anew as how many, and how many rows were left out."""

    parts: int = 0
    became: int = 0
    rows: int = 0


def compact(out: str | Path, *, linger: float = LINGER) -> Compaction:
    """Write the parts anew that hold superseded rows, and small ones together.

    The old parts stay for `linger` seconds, in a store for a day, and then until something is written the next time.
    Raises UsageError for what is no dataset, and while another process writes there.
    """
    from art_otel.store.write import parts_to_rewrite, rewrite_parts  # noqa: PLC0415 # loads pyarrow

    folder = os.fspath(out)
    _require_manifest(folder)
    with open_workspace(folder, None) as workspace, tempfile.TemporaryDirectory(prefix="art-otel-") as temporary:
        manifest = _require_manifest(folder)
        parts = parts_to_rewrite(manifest)
        if not parts:
            return Compaction()
        scratch = Path(temporary if storage.is_url(folder) else workspace.folder)
        rewritten = rewrite_parts(folder, parts, manifest.superseded, manifest.next_number, scratch)
        names = {part.name for part in parts}
        addition = Addition(
            parts=tuple(part for part in manifest.parts if part.name not in names),
            kept=_moved(folder, manifest, workspace, rewritten.moved),
        )
        account: dict[str, Any] = msgspec.json.decode(storage.read(storage.join(folder, REPORT_NAME)))
        commit(folder, uuid4().hex, rewritten.staged, account, addition=addition, ledger=manifest.ledger, linger=linger)
    return Compaction(parts=len(parts), became=len(rewritten.staged), rows=sum(map(len, manifest.superseded.values())))


def _require_manifest(folder: str) -> Manifest:
    manifest = read_manifest(folder)
    if manifest is None:
        raise UsageError(f"{storage.shown(folder)}: is no dataset; `art-otel convert DUMP… --out DIR` makes one")
    return manifest


def _moved(
    out: str, manifest: Manifest, workspace: Workspace, moved: dict[str, dict[int, tuple[str, int]]]
) -> tuple[KeptFile, ...]:
    """Write the kept files anew, with the new places of the rows that they name."""
    kept = read_kept(out, manifest)
    if kept is None:
        return ()
    job = Job(scratch=workspace.folder, sizes=Sizes(slots=kept.slots))
    tiers: list[Tier] = []
    with local_engine(1) as engine:
        runner = Runner(job, workspace, engine)
        for tier in kept.tiers_in(out):
            merged = merge_tiers(runner, [Tier(Shuffle(), tier.outcomes)], moved=moved)
            tiers.append(Tier(tier.records, merged.outcomes))
    return stage_kept(kept, tiers, workspace.folder)
