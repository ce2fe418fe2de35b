"""Verified: what `art-otel verify` found of each source, as it is kept beside it, in the words of the page.

Invariant: the figures are those of the file; nothing is computed here.
"""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Final

import numpy as np

from art_otel.store import read_manifest
from art_otel.verification import Figures
from art_otel.verification.saved import SavedVerification, folder_of, read_saved
from art_otel.viewer.snapshot import ViewedSource

_COLUMNS: Final = ("Differences in nats", "tokens", "mean", "worst", "KL (k1)", "KL (k3)", "outside [0.8, 1.25]")


def show_verifications(sources: Sequence[ViewedSource]) -> dict[str, Any]:
    """The latest verification of each source, null where there is none. Raises StoreError for one that is torn."""
    return {"sources": [{"name": source.name, "verification": _verification(source.path)} for source in sources]}


def _verification(path: str) -> dict[str, Any] | None:
    folder = folder_of(path)
    saved = None if folder is None else read_saved(folder)
    if folder is None or saved is None:
        return None
    result = saved.result
    figures = {
        "all": result.all,
        **{f"version {name}": one for name, one in result.by_version.items()},
        **{f"position {name}": one for name, one in result.by_position.items()},
        **result.by_kind,
    }
    not_compared = ", ".join(f"{count:,} completions ({reason})" for reason, count in result.skipped.items())
    texts = result.texts
    return {
        "holds": result.holds if result.all.tokens else None,
        "verdict": _verdict(saved),
        "about": _about(saved),
        "datasetChanged": _has_changed(folder, saved),
        "diagnoses": [
            {
                "name": one.name.capitalize(),
                "where": one.where,
                "tokens": f"{one.tokens:,} tokens, {one.share:.0%}, mean {_small(one.mean)}",
                "meaning": _sentence(one.meaning),
                "advice": f"{one.advice}.",
            }
            for one in result.diagnoses
        ],
        "figures": [_COLUMNS, *(_cells(name, one) for name, one in figures.items())],
        "notCompared": f"Not compared: {not_compared}." if not_compared else None,
        "texts": texts
        and {
            "says": f"The ids of {texts.equal:,} of {texts.completions:,} completions say what was recorded."
            + (f" {_sentence(texts.meaning)}" if texts.meaning else ""),
            "examples": [
                [one.rollout_id, f"turn {one.turn}, {one.field}", one.recorded, one.decoded] for one in texts.examples
            ],
        },
    }


def _verdict(saved: SavedVerification) -> str:
    if not saved.result.all.tokens:
        return "Nothing could be compared."
    if saved.result.holds:
        return "✓ The recorded tokens are this model's."
    off = "Not all recorded logprobs are this model's." if saved.result.diagnoses else "Some ids say something else."
    return f"Something is off. {off}"


def _about(saved: SavedVerification) -> str:
    result, at = saved.result, datetime.fromtimestamp(saved.verified_at // 10**9, UTC)
    rollouts = f"{result.rollouts:,}" + (
        "" if result.rollouts == result.total_rollouts else f" of {result.total_rollouts:,}"
    )
    version = "" if saved.policy_version is None else f", all of version {saved.policy_version}"
    return (
        f"{saved.model}, computed in {saved.dtype}, on {at:%Y-%m-%d %H:%M:%S} UTC: {result.completions:,} completions"
        f" of {rollouts} rollouts{version}. The limit is a mean of {result.limit:g} nats."
    )


def _has_changed(folder: str, saved: SavedVerification) -> bool:
    """Whether the dataset was written again since; a folder without a manifest does not say."""
    manifest = read_manifest(folder)
    return manifest is not None and manifest.run != saved.dataset_run


def _cells(name: str, figures: Figures) -> list[str]:
    differences = [_small(one) for one in (figures.mean, figures.worst, figures.kl_k1, figures.kl_k3)]
    outside = "unknown" if figures.outside is None else f"{figures.outside:.2%}"
    return [name, f"{figures.tokens:,}", *differences, outside]


def _small(value: float | None) -> str:
    """A small number as `3.9e-7`."""
    return "unknown" if value is None else np.format_float_scientific(value, 1, unique=False, exp_digits=1)


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}."
