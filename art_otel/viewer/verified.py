"""Verified: what `art-otel verify` found of each source, as it is kept beside it.

Invariant: the figures are those of the file; nothing is computed here.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from art_otel.store import read_manifest
from art_otel.verification import Figures
from art_otel.verification.saved import SavedVerification, folder_of, read_saved
from art_otel.viewer.snapshot import ViewedSource


def show_verifications(sources: Sequence[ViewedSource]) -> dict[str, Any]:
    """The latest verification of each source, null where there is none. Raises StoreError for one that is torn."""
    return {"sources": [{"name": source.name, "verification": _verification(source.path)} for source in sources]}


def _verification(path: str) -> dict[str, Any] | None:
    folder = folder_of(path)
    saved = None if folder is None else read_saved(folder)
    if folder is None or saved is None:
        return None
    result = saved.result
    return {
        "at": str(saved.verified_at),
        "model": saved.model,
        "dtype": saved.dtype,
        "policyVersion": saved.policy_version,
        "datasetChanged": _has_changed(folder, saved),
        "holds": result.holds,
        "rollouts": result.rollouts,
        "totalRollouts": result.total_rollouts,
        "completions": result.completions,
        "limit": result.limit,
        "figures": [
            _figures("all", result.all),
            *_rows("version", result.by_version),
            *_rows("position", result.by_position),
            *_rows("", result.by_kind),
        ],
        "diagnoses": [
            {
                "name": one.name.capitalize(),
                "where": one.where,
                "tokens": one.tokens,
                "share": one.share,
                "mean": one.mean,
                "meaning": _sentence(one.meaning),
                "advice": f"{one.advice}.",
            }
            for one in result.diagnoses
        ],
        "skipped": [{"reason": reason, "count": count} for reason, count in result.skipped.items()],
        "texts": None
        if result.texts is None
        else {
            "completions": result.texts.completions,
            "equal": result.texts.equal,
            "meaning": result.texts.meaning and _sentence(result.texts.meaning),
            "examples": [
                {
                    "rolloutId": one.rollout_id,
                    "turn": one.turn,
                    "field": one.field,
                    "recorded": one.recorded,
                    "decoded": one.decoded,
                }
                for one in result.texts.examples
            ],
        },
    }


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}."


def _has_changed(folder: str, saved: SavedVerification) -> bool:
    """Whether the dataset was written again since; a folder without a manifest does not say."""
    manifest = read_manifest(folder)
    return manifest is not None and manifest.run != saved.dataset_run


def _rows(by: str, parts: Mapping[str, Figures]) -> list[dict[str, Any]]:
    return [_figures(f"{by} {name}".strip(), figures) for name, figures in parts.items()]


def _figures(name: str, figures: Figures) -> dict[str, Any]:
    return {
        "name": name,
        "tokens": figures.tokens,
        "mean": figures.mean,
        "worst": figures.worst,
        "klK1": figures.kl_k1,
        "klK3": figures.kl_k3,
        "outside": figures.outside,
    }
