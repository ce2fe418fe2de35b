"""Plan: what would train under chosen options, in the numbers of the batch report.

Invariant: the sums are those of `art_otel.batches(...).report`: trajectories read are trained and skipped ones,
completions of trajectories that no option refused are trained and skipped ones.
"""

from collections import Counter
from typing import Any
from urllib.parse import urlencode

import msgspec

from art_otel.viewer.cures import cure_of
from art_otel.viewer.options import DEFAULTS, PlanOptions, described_options
from art_otel.viewer.snapshot import Snapshot


def show_plan(snapshot: Snapshot, options: PlanOptions) -> dict[str, Any]:
    """The plan of these options. Raises UsageError and StoreError."""
    judgement = snapshot.judging.wait(options)
    report = judgement.report
    return {
        "options": described_options(options, splits_of(snapshot)),
        "trajectories": {
            "read": report.trajectories,
            "trained": report.trajectories_used,
            "skipped": report.trajectories_skipped.total(),
        },
        "completions": {"sampled": report.completions, "trained": report.trained_completions},
        "tokens": {
            "sampled": int(judgement.sampled[~judgement.refused].sum()),
            "trained": report.trained_tokens,
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


def splits_of(snapshot: Snapshot) -> list[str]:
    """The splits that occur."""
    return sorted(snapshot.outlines.distinct("split"))


def _skipped(counts: Counter[str], unit: str, parameter: str, options: PlanOptions) -> list[dict[str, Any]]:
    return [
        {
            "reason": reason,
            "count": count,
            "unit": unit,
            "cure": cure_of(reason),
            "filter": urlencode({parameter: reason} | _plan_parameter(options)),
        }
        for reason, count in counts.most_common()
    ]


def _plan_parameter(options: PlanOptions) -> dict[str, str]:
    """The options that are not the default ones, as `plan=` of a list's address."""
    chosen = {
        name: value for name in PlanOptions.__slots__ if (value := getattr(options, name)) != getattr(DEFAULTS, name)
    }
    texts = {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in chosen.items()}
    return {"plan": urlencode(texts)} if texts else {}


def _sums(total: int, trained: int, skipped: Counter[str]) -> bool:
    return total == trained + skipped.total()
