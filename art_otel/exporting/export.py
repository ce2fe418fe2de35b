"""Export: trajectories to the files of a trainer.

Invariant: every trajectory is in the files or in the report with the reason why it is not, and so is every field that
the format has no place for.
"""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, Literal, Unpack

import msgspec

from art_otel.data.advantages import Advantage, AdvantageName
from art_otel.data.credit import Credit, CreditName
from art_otel.data.cures import helps_against
from art_otel.data.selection import SelectionKeywords, listed_options
from art_otel.data.sources import Sources
from art_otel.errors import UsageError
from art_otel.exporting.exporter import Exporter, ExportReport, ExportStats
from art_otel.exporting.files import check_place, reading, whole_file
from art_otel.exporting.registry import find_exporter, find_format, make_settings
from art_otel.exporting.streams import DEFAULT, Stream, open_stream

_FILES: Final = frozenset({".arrow", ".csv", ".db", ".gz", ".json", ".jsonl", ".parquet", ".txt", ".zip", ".zst"})
"""Suffixes of what is meant to be a file. Others may be parts of a folder's name, as in qwen2.5."""


def export(  # noqa: PLR0913 # every one is an option that users know by its name
    sources: Sources,
    to: str | Exporter,
    out: str | Path,
    *,
    format: str | None = None,  # noqa: A002 # the option's name
    options: Mapping[str, Any] | None = None,
    advantage: AdvantageName | Advantage | Literal["default"] | None = DEFAULT,
    credit: CreditName | Credit = "outcome_reward",
    max_tokens: int | None = None,
    min_reward: float | None = None,
    **selection: Unpack[SelectionKeywords],
) -> ExportReport:
    """Write trajectories in the format of a trainer, and the report beside them.

    `sources` are as for `art_otel.batches`, and `to` is the name of an installed exporter. `out` is a folder, or a
    file with the format's suffix; files with the same names are replaced. `options` are the format's, by name, as
    values or as text. `advantage` "default" is the trainer's own, if it has one. `min_reward` is for trainers that
    imitate every conversation: it leaves out trajectories with a lower reward, or without one. The other options are as
    for `art_otel.batches`, but that `length` is by default "mask" for conversations and preferences, which take neither
    `images` nor `closed_streams`, and that formats whose records carry images need no `images`. Raises UsageError for
    an exporter, format or option that does not exist, for options that the format does not support, and for an output
    inside the dataset. Raises StoreError for paths that cannot be read.
    """
    exporter = find_exporter(to) if isinstance(to, str) else to
    chosen = find_format(exporter, format)
    settings = make_settings(chosen, options or {})
    sink = chosen.sink(settings)
    target = Path(out)
    single = _is_file(target, chosen.name, sink.suffix)
    path = target if single or not sink.suffix else target / f"{exporter.name}-{chosen.name}{sink.suffix}"
    listed = list(sources) if isinstance(sources, Iterator) else sources
    stats = ExportStats()
    with reading(listed):
        if sink.suffix:
            check_place(path)
        stream = open_stream(
            listed,
            chosen,
            advantage=advantage,
            credit=credit,
            max_tokens=max_tokens,
            min_reward=min_reward,
            **listed_options(selection),
        )
        records, files = sink.write(stream.records(settings, stats), path)
    skipped = stream.skipped()
    left_out, parts = skipped.trajectories + stats.trajectories_skipped, skipped.parts + stats.skipped
    report = ExportReport(
        exporter=exporter.name,
        format=chosen.name,
        records=records,
        files=tuple(map(str, files)),
        trajectories=stream.trajectories(),
        trajectories_used=stream.used() - stats.trajectories_skipped.total(),
        trajectories_skipped=left_out,
        unsuccessful=stream.unsuccessful(),
        skipped=parts,
        changed=stats.changed + stream.changed(),
        not_carried=stream.not_carried(),
        other_rewards=stream.other_rewards(),
        helps=helps_against((*left_out, *parts)),
    )
    _write_report(report, target, single=single)
    return report


def writable(
    sources: Sources,
    exporters: Iterable[Exporter],
    **selection: Unpack[SelectionKeywords],
) -> dict[str, tuple[str, ...]]:
    """Name the formats of each exporter that give at least one record of these trajectories.

    Options are as for `export`. A format reads up to its first record, so one that gives none reads the sources whole.
    """
    options = listed_options(selection)
    listed = list(sources) if isinstance(sources, Iterator) else sources
    return {
        exporter.name: tuple(
            chosen.name
            for chosen in exporter.formats
            if _gives_a_record(open_stream(listed, chosen, advantage=DEFAULT, **options), make_settings(chosen, {}))
        )
        for exporter in exporters
    }


def _gives_a_record(stream: Stream, settings: object) -> bool:
    return any(True for _ in stream.records(settings, ExportStats()))


def _is_file(target: Path, format_name: str, suffix: str) -> bool:
    """Whether the target is one file of the format, and not a folder. Raises UsageError for another kind of file."""
    single = bool(suffix) and target.suffix == suffix
    if not single and (target.suffix in _FILES or target.is_file()):
        raise UsageError(f"{target}: {format_name} writes {f'a file *{suffix}, or ' if suffix else ''}a folder")
    return single


def _write_report(report: ExportReport, out: Path, *, single: bool) -> None:
    """Write the report into the folder of the export, or beside its single file."""
    path = out.with_name(f"{out.name}.report.json") if single else out / "_export.json"
    with whole_file(path) as file:
        file.write(msgspec.json.format(msgspec.json.encode(report), indent=2) + b"\n")
