"""Overview: what is in the data, what is missing and why, and what would train under chosen options.

Invariant: the numbers of a plan are those of `art_otel.batches(...).report`: trajectories read are trained and skipped
ones, completions of trajectories that no option refused are trained and skipped ones.
"""

# pyarrow ships no types.
# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportAttributeAccessIssue=false, reportUnknownArgumentType=false, reportUnknownParameterType=false

from collections import Counter
from operator import itemgetter
from typing import Any, Final
from urllib.parse import urlencode

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from art_otel import storage
from art_otel.data.cures import cure_of, cure_of_gap, show_reason
from art_otel.errors import StorageError
from art_otel.store import REPORT_NAME
from art_otel.trajectories import GroupKey
from art_otel.viewer.addresses import encode_key, group_key_of
from art_otel.viewer.judging import PlanOptions, described_options
from art_otel.viewer.outlines import ListColumn
from art_otel.viewer.snapshot import Snapshot

_BINS: Final = 20
_MOST_GROUPS: Final = 500


def overview(snapshot: Snapshot) -> dict[str, Any]:
    """The numbers of the first page. What is not judged yet is null."""
    outlines = snapshot.outlines
    judgement = snapshot.judging.done()
    skipped = Counter[str]() if judgement is None else judgement.report.trajectories_skipped
    return {
        "total": len(outlines),
        "complete": int(outlines.equal("complete", True).sum()),  # noqa: FBT003 # the value that is looked for
        "judged": judgement is not None,
        "problem": snapshot.judging.problem(),
        "trainable": None if judgement is None else judgement.report.trajectories_used,
        "statuses": _counts(snapshot, "status"),
        "incomplete": [
            show_reason(reason, count, cure_of_gap(reason)) for reason, count in outlines.reasons.counts().items()
        ],
        "skipped": [show_reason(reason, count, cure_of(reason)) for reason, count in skipped.most_common()],
        "splits": _counts(snapshot, "shown_split"),
        "steps": _steps(snapshot),
        "versions": snapshot.outlines.distinct("shown_policy_version"),
        "models": _named(outlines.models),
        "agents": _named(outlines.agents),
        "groups": _groups(snapshot),
        "labels": _labels(snapshot),
        "sources": [
            {"name": source.name, "count": int(outlines.equal("source", number).sum())}
            for number, source in enumerate(snapshot.sources)
        ],
        "repeated": snapshot.combined.repeated,
        "sharedGroups": snapshot.combined.shared_group_ids,
        "rewards": _rewards(snapshot),
        "report": _report(snapshot),
    }


def _named(column: ListColumn) -> list[dict[str, Any]]:
    return [{"name": name, "count": count} for name, count in column.counts().items()]


def _groups(snapshot: Snapshot) -> list[dict[str, Any]]:
    """The groups to choose from, by their steps and ids; none where they are too many for a choice."""
    table = snapshot.outlines.table.select(GroupKey._fields)
    counts = table.filter(pc.is_valid(table.column("group_id"))).group_by(GroupKey._fields).aggregate([])
    if counts.num_rows > _MOST_GROUPS:
        return []
    keys = sorted(
        map(group_key_of, counts.to_pylist()),
        key=lambda key: (key.training_step or 0, key.group_id, key.gathering or ""),
    )
    gatherings = Counter((key.training_step, key.group_id) for key in keys)
    return [
        {
            "key": encode_key(key),
            "name": key.group_id
            if gatherings[key.training_step, key.group_id] == 1 or key.gathering is None
            else f"{key.group_id} of gathering {key.gathering}",
            "step": key.training_step,
        }
        for key in keys
    ]


def _labels(snapshot: Snapshot) -> list[dict[str, Any]]:
    """In how many rollouts of the data each label is, the most frequent first."""
    labeled, outlines = snapshot.labels.all(), snapshot.outlines
    ids = pa.array({rollout_id for _, rollout_id, _ in labeled}, pa.string())
    rows = np.flatnonzero(pc.is_in(outlines.column("rollout_id"), value_set=ids))
    keys = [(record["source"], record["rollout_id"], record["attempt"]) for record in outlines.records(rows)]
    counts = Counter(label for key in keys if key in labeled for label in labeled[key].labels)
    return [{"name": name, "count": count} for name, count in counts.most_common()]


def _steps(snapshot: Snapshot) -> list[int]:
    return sorted(snapshot.outlines.distinct("shown_training_step"))


def _counts(snapshot: Snapshot, column: str) -> list[dict[str, Any]]:
    counted = pc.value_counts(snapshot.outlines.column(column)).to_pylist()
    by_count = sorted(((entry["counts"], entry["values"]) for entry in counted), key=itemgetter(0), reverse=True)
    return [{"name": name, "count": count} for count, name in by_count]


def _rewards(snapshot: Snapshot) -> dict[str, Any]:
    """The histogram of the rewards that are finite numbers; others count as unknown."""
    column = snapshot.outlines.column("reward")
    values = column.drop_null().to_numpy()
    values = values[np.isfinite(values)]
    sizes = {"known": len(values), "unknown": len(column) - len(values)}
    if not len(values):
        return {**sizes, "min": None, "max": None, "mean": None, "bins": []}
    counts, edges = np.histogram(values, bins=_BINS if values.min() < values.max() else 1)
    bins = [
        {"from": low, "to": high, "count": count}
        for low, high, count in zip(edges[:-1].tolist(), edges[1:].tolist(), counts.tolist(), strict=True)
    ]
    return {
        **sizes,
        "min": float(values.min()),
        "max": float(values.max()),
        "mean": float(values.mean()),
        "bins": bins,
    }


def _report(snapshot: Snapshot) -> dict[str, Any] | None:
    """What the conversion's report counts; None where the data has several reports, or none."""
    if len(snapshot.outlines.groups) == 0 or len(snapshot.sources) != 1:
        return None
    folder = snapshot.outlines.groups[0].dataset
    try:
        raw: Any = msgspec.json.decode(storage.read(storage.join(folder, REPORT_NAME)))
    except (StorageError, OSError, msgspec.DecodeError):
        return None
    if not isinstance(raw, dict) or "spans" not in raw or "calls" not in raw:
        return None
    spans, calls = raw["spans"], raw["calls"]
    return {
        "spans": {
            **{name: spans.get(name, 0) for name in ("read", "used", "duplicate")},
            **{name: _by_reason(spans.get(name, {})) for name in ("ignored", "quarantined")},
        },
        "calls": {name: calls.get(name, 0) for name in ("total", "completed", "failed")},
    }


def _by_reason(counts: dict[str, int]) -> list[dict[str, Any]]:
    return [{"reason": reason, "count": count} for reason, count in counts.items()]


def show_plan(snapshot: Snapshot, options: PlanOptions) -> dict[str, Any]:
    """The plan of these options. Raises UsageError and StoreError."""
    judgement = snapshot.judging.wait(options)
    report = judgement.report
    return {
        "options": described_options(options, choices_of(snapshot)),
        "problem": judgement.problem,
        "trajectories": {
            "read": report.trajectories,
            "trained": report.trajectories_used,
            "skipped": report.trajectories_skipped.total(),
        },
        "completions": {"sampled": report.completions, "trained": report.trained_completions},
        "tokens": {
            "sampled": int(judgement.sampled[~judgement.refused].sum()),
            "trained": report.trained_tokens,
            "uncounted": int((~judgement.counted & ~judgement.refused).sum()),
        },
        "skipped": [
            *_skipped(report.trajectories_skipped, "trajectory", "skip", options),
            *_skipped(report.completions_skipped, "completion", "completion", options),
            *_skipped(report.sequences_skipped, "history", "completion", options),
        ],
        "report": msgspec.to_builtins(report),
        "sums": _sums(judgement.report.trajectories, report.trajectories_used, report.trajectories_skipped)
        and _sums(report.completions, report.trained_completions, report.completions_skipped),
    }


def choices_of(snapshot: Snapshot) -> dict[str, list[str]]:
    """What occurs in the data and options choose by."""
    outlines = snapshot.outlines
    return {
        "split": sorted(outlines.distinct("split")),
        "models": [*outlines.models.counts(), "*"],
        "agents": [*outlines.agents.counts()],
    }


def _skipped(counts: Counter[str], unit: str, parameter: str, options: PlanOptions) -> list[dict[str, Any]]:
    return [
        {
            **show_reason(reason, count, cure_of(reason)),
            "unit": unit,
            "filter": urlencode({parameter: reason} | _plan_parameter(options)),
        }
        for reason, count in counts.most_common()
    ]


def _plan_parameter(options: PlanOptions) -> dict[str, str]:
    """The options that are not the default ones, as `plan=` of a list's address."""
    return {"plan": urlencode(options.texts)} if options.texts else {}


def _sums(total: int, trained: int, skipped: Counter[str]) -> bool:
    return total == trained + skipped.total()
