"""Runs: the metrics of training runs over their steps, from `history.jsonl` of our run log or ART's."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from art_otel.runlog.history import Row, means_by_step, read_rows
from art_otel.viewer.problems import NotFoundError
from art_otel.viewer.snapshot import Source

_AXES: Final = frozenset({"step", "training_step", "recorded_at"})


def list_runs(sources: Sequence[Source]) -> dict[str, Any]:
    """The runs and all metrics that any of them has."""
    metrics = {
        name
        for _, folder in _runs(sources)
        for row in read_rows(folder / "history.jsonl")
        for name, value in row.items()
        if name not in _AXES and _is_number(value)
    }
    return {
        "runs": [{"id": number, "name": sources[int(number)].name} for number, _ in _runs(sources)],
        "metrics": sorted(metrics),
    }


def run_series(sources: Sequence[Source], metric: str, wanted: Sequence[str]) -> dict[str, Any]:
    """The mean of a metric over the rows of each step, of these runs, or of all. Raises NotFoundError."""
    runs = dict(_runs(sources))
    if unknown := set(wanted) - runs.keys():
        raise NotFoundError(f"no run {min(unknown)!r:.100}")
    series: list[dict[str, Any]] = []
    for number in wanted or runs:
        means = means_by_step(list[Row](read_rows(runs[number] / "history.jsonl")), metric)
        steps = sorted(means)
        series.append({"run": number, "steps": steps, "values": [means[step] for step in steps]})
    return {"series": series}


def _runs(sources: Sequence[Source]) -> list[tuple[str, Path]]:
    return [(str(number), source.run) for number, source in enumerate(sources) if source.run is not None]


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
