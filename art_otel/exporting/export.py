"""Export: write trajectories to the files of a trainer.

Invariant: every trajectory is in the files, or in the report with a reason; every field that the format cannot contain
is in the report. No file without a record is written. With shares as `split` each part has a file or folder:

    -o sft.parquet     sft-train.parquet, sft-val.parquet
    -o folder          folder/train.parquet, folder/val.parquet; folder/train/, folder/val/ of what is a folder itself
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any, Final, Literal, Unpack, cast

import msgspec

from art_otel.data.advantages import Advantage, AdvantageName
from art_otel.data.choosing import NOT_CHOSEN
from art_otel.data.columns import EVERY_PART
from art_otel.data.credit import Credit, CreditName
from art_otel.data.cures import helps_against
from art_otel.data.filters import filtered, split_by_task
from art_otel.data.rewards import RewardOf
from art_otel.data.selection import SelectionKeywords, listed_options
from art_otel.data.sources import Sources, list_chunks, read_columns
from art_otel.errors import UsageError
from art_otel.exporting.exporter import Exporter, ExportReport, ExportStats, Format, NothingToExportError, Sink
from art_otel.exporting.files import check_place, reading, whole_file
from art_otel.exporting.registry import find_exporter, find_format, make_settings
from art_otel.exporting.streams import DEFAULT, Stream, open_stream

_FILES: Final = frozenset({".arrow", ".csv", ".db", ".gz", ".json", ".jsonl", ".parquet", ".txt", ".zip", ".zst"})
"""Suffixes that mark an output as a file. Other suffixes may be parts of a folder's name, as in qwen2.5."""


def export(  # noqa: PLR0913 # every one is an option that users know by its name
    sources: Sources,
    to: str | Exporter,
    out: str | Path,
    *,
    format: str | None = None,  # noqa: A002 # the option's name
    options: Mapping[str, Any] | None = None,
    advantage: AdvantageName | Advantage | Literal["default"] | None = DEFAULT,
    credit: CreditName | Credit = "outcome_reward",
    reward: RewardOf = None,
    max_tokens: int | None = None,
    min_reward: float | None = None,
    dedupe: bool = False,
    seed: int = 0,
    **selection: Unpack[SelectionKeywords],
) -> ExportReport:
    """Write trajectories in the format of a trainer, and the report beside them.

        art_otel.export("dataset", to="trl", out="sft.parquet", min_reward=1.0)

    `sources` are as for `art_otel.batches`, and `to` is the name of an installed exporter. `format` None chooses the
    best format for these trajectories: one for RL if they have token ids, logprobs, groups and rewards, else one of
    conversations. `out` is a folder, or a file with the format's suffix; files with the same names are
    replaced. `options` are the format's, by name, as values or as text. `advantage` "default" is the trainer's own, if
    it has one. `reward` says which reward counts: None is the final one, otherwise a name. `min_reward` and `dedupe`
    are for trainers that imitate every conversation: they leave out trajectories with a lower reward or without one,
    and conversations that came before. Shares as `split`, such as "0.9/0.1", write a file for each part, which share no
    task; `seed` orders the tasks. The other options are as for `art_otel.batches`, but that `length` is by default
    "mask" for conversations and preferences, which take neither `images` nor `closed_streams`, and that formats whose
    records carry images need no `images`.

    Raises NothingToExportError where no record can be written; UsageError for an exporter, format or option that does
    not exist, for options that the format does not support, for shares of too few tasks, and for an output inside the
    dataset. Raises StoreError for paths that cannot be read.
    """
    exporter = find_exporter(to) if isinstance(to, str) else to
    if format is not None:
        find_format(exporter, format)
    listed = list(sources) if isinstance(sources, Iterator) else sources
    target, reports = Path(out), list[ExportReport]()
    with reading(listed):
        kept, division = filtered(listed, selection, seed)
        asked: dict[str, Any] = {
            "advantage": advantage,
            "credit": credit,
            "reward": reward,
            "max_tokens": max_tokens,
            "min_reward": min_reward,
            "dedupe": dedupe,
        }

        def plan(each: Format) -> tuple[object, Sink, bool]:
            """The settings, the sink, and whether the sink writes one file. Raises UsageError."""
            settings = make_settings(each, options or {})
            sink = each.sink(settings)
            return settings, sink, _is_file(target, each.name, sink.suffix)

        def settings_of(each: Format) -> object:
            return plan(each)[0]

        refusals: dict[str, UsageError] = {}
        if format:
            chosen = find_format(exporter, format)
        else:
            chosen, refusals = best_format(listed, exporter, settings_of, asked, kept)
        settings, sink, single = plan(chosen)
        parts = (
            {None: kept}
            if division is None
            else {
                name: cast(SelectionKeywords, {**kept, "rollouts": ids})
                for name, ids in split_by_task(
                    listed, division, kept, reward=reward, min_reward=min_reward, seed=seed
                ).items()
            }
        )
        for name in parts if sink.suffix else ():
            check_place(_path_of(target, name, exporter.name, chosen, sink.suffix, single=single))
        streams = {name: open_stream(listed, chosen, **asked, **of_part) for name, of_part in parts.items()}
        # Checked first: every part must have a record before any file is replaced.
        begun: dict[str | None, tuple[Iterator[Any], ExportStats]] = {}
        for name, stream in streams.items():
            counts = ExportStats()
            records = stream.records(settings, counts)
            if (first := next(records, None)) is None:
                report = _report_of(stream, counts, exporter, chosen)
                raise NothingToExportError(_why_nothing(name, report, chosen.needs, refusals), report)
            begun[name] = (chain([first], records), counts)
        for name, (records, counts) in begun.items():
            path = _path_of(target, name, exporter.name, chosen, sink.suffix, single=single)
            written, files = sink.write(records, path)
            report = _report_of(streams[name], counts, exporter, chosen)
            of_parts = {} if name is None else {name: written}
            reports.append(replace(report, records=written, files=tuple(map(str, files)), parts=of_parts))
    report = replace(_together(reports), load=_load_line(reports, chosen, target, has_name=bool(sink.suffix)))
    _write_report(report, target, single=single)
    return report


def best_format(
    sources: Sources,
    exporter: Exporter,
    settings_of: Callable[[Format], object],
    asked: Mapping[str, Any],
    selection: SelectionKeywords,
) -> tuple[Format, dict[str, UsageError]]:
    """The exporter's best format for these trajectories, and why the formats that do not fit cannot be chosen.

    `settings_of` gives the settings of a format, or raises UsageError if the format does not fit the options or output.

    The best one is a format for RL if rollouts have token ids with logprobs, groups and rewards, else one of
    conversations. A format must give at least one record, so each is read up to its first one. If no format gives a
    record, it is the first.
    """
    if len(exporter.formats) == 1:
        return exporter.formats[0], {}
    refusals: dict[str, UsageError] = {}
    supporting: list[tuple[Format, Stream, object]] = []
    for each in exporter.formats:
        try:
            settings = settings_of(each)
            supporting.append((each, open_stream(sources, each, **asked, **selection), settings))
        except UsageError as error:
            refusals[each.name] = error
    if not supporting:
        raise next(iter(refusals.values()))
    is_for_rl = _has_scored_groups(sources)

    def rank(each: Format) -> tuple[bool, bool]:
        trains_ids = each.input in ("trajectories", "sequences") and each.view == "tokens" and not each.is_imitated
        return not (is_for_rl and trains_ids), each.input != "conversations"

    ranked = sorted(supporting, key=lambda one: rank(one[0]))
    for each, stream, settings in ranked if len(ranked) > 1 else ():
        if _gives_a_record(stream, settings):
            return each, refusals
    return ranked[0][0], refusals


def _has_scored_groups(sources: Sources) -> bool:
    """Whether any rollout with a group and a reward has completions with ids and logprobs."""
    columns = read_columns(list_chunks(sources).chunks, EVERY_PART)
    is_scored = columns.has_tokens & (columns.unscored_tokens == 0) & (columns.sampled_tokens > 0)
    is_rewarded = columns.is_rewarded | (columns.rewards > 0)
    return bool((columns.group_id.known & is_rewarded & columns.any_turn(is_scored)).any())


def _path_of(target: Path, part: str | None, exporter: str, file_format: Format, suffix: str, *, single: bool) -> Path:
    """The output of a part; None means that there are no parts."""
    if single:
        return target if part is None else target.with_name(f"{target.stem}-{part}{suffix}")
    if part is not None:
        return target / f"{part}{suffix}"
    return target / f"{exporter}-{file_format.name}{suffix}" if suffix else target


def _report_of(stream: Stream, stats: ExportStats, exporter: Exporter, file_format: Format) -> ExportReport:
    """The report on the trajectories of a stream, after all of it was read."""
    skipped = stream.skipped()
    left_out, parts = skipped.trajectories + stats.trajectories_skipped, skipped.parts + stats.skipped
    return ExportReport(
        exporter=exporter.name,
        format=file_format.name,
        records=0,
        files=(),
        trajectories=stream.trajectories(),
        trajectories_used=stream.used() - stats.trajectories_skipped.total(),
        trajectories_skipped=left_out,
        unsuccessful=stream.unsuccessful(),
        skipped=parts,
        changed=stats.changed + stream.changed(),
        not_carried=stream.not_carried(),
        other_rewards=stream.other_rewards(),
        helps=_helps(file_format, (*left_out, *parts)),
    )


def _helps(file_format: Format, reasons: Iterable[str]) -> dict[str, str]:
    """What helps against each reason, in words that fit a trainer that imitates or one that trains with rewards."""
    helps = helps_against(reasons)
    if "no reward" in helps and file_format.input in ("conversations", "preferences"):
        helps["no reward"] = (
            "Give one with art_otel.reward(…), name another with reward=NAME (--reward), or leave out min_reward"
            " (--min-reward)."
        )
    return helps


_LOADERS: Final = {".parquet": "parquet", ".jsonl": "json"}


def _load_line(reports: Sequence[ExportReport], file_format: Format, target: Path, *, has_name: bool) -> str | None:
    """The line of Python that loads the files; None if trainers name their files themselves."""
    suffix = Path(reports[0].files[0]).suffix
    if suffix == ".json" and not any(report.parts for report in reports):
        return f"[json.loads(file.read_text()) for file in pathlib.Path({str(target)!r}).rglob('[!_]*.json')]"
    if suffix not in _LOADERS or not has_name:
        return None

    def paths_of(report: ExportReport) -> str | list[str]:
        return report.files[0] if len(report.files) == 1 else list(report.files)

    parts = {name: paths_of(report) for report in reports for name in report.parts}
    paths = repr(parts or paths_of(reports[0]))
    if file_format.load and not parts:
        return file_format.load.format(files=paths)
    alone = "" if parts else ', split="train"'
    return f'load_dataset("{_LOADERS[suffix]}", data_files={paths}{alone})'


def _why_nothing(part: str | None, report: ExportReport, needs: str, refusals: Mapping[str, UsageError]) -> str:
    """Why there is no record, and what helps. `refusals`: why formats could not be chosen, by name."""
    of = f"{report.exporter} {report.format}" + ("" if part is None else f" for {part}")
    if not report.trajectories:
        return f"nothing to export as {of}: the sources have no trajectories"
    reasons = dict(Counter(report.trajectories_skipped).most_common())
    if sum(reasons.values()) < report.trajectories:  # other trajectories were chosen, but gave no record
        reasons |= Counter(report.skipped).most_common()
    lines = [
        f"nothing to export as {of}, and no file was written: none of {report.trajectories:,} trajectories is used ("
        + ", ".join(f"{reason}: {count:,}" for reason, count in reasons.items())
        + ")"
    ]
    if report.other_rewards and "no reward" in reasons:
        names = [name for name in report.other_rewards if not name.endswith(")")] or list(report.other_rewards)
        lines.append(
            f"  the recorded rewards are named {', '.join(report.other_rewards)}; choose one, as with"
            f" --reward {names[0]} (reward={names[0]!r})"
        )
    lines += [f"  {reason}: {help_}" for reason, help_ in report.helps.items()]
    lines.append(f"  format {report.format} needs {needs}")
    lines += [f"  format {name} cannot do what was asked: {error}" for name, error in refusals.items()]
    return "\n".join(lines)


_IN_EVERY_PART: Final = frozenset({"split", "training step"})
"""Reasons that are counted before the rollouts of a part are chosen."""


def _together(reports: Sequence[ExportReport]) -> ExportReport:
    """One report of all parts. Each trajectory is counted only in the report of its own part."""
    if len(reports) == 1:
        return reports[0]
    first = reports[0]
    left_out = Counter[str]()
    for report in reports:
        for reason, count in report.trajectories_skipped.items():
            left_out[reason] = max(left_out[reason], count) if reason in _IN_EVERY_PART else left_out[reason] + count
    used = sum(report.trajectories_used for report in reports)
    del left_out[NOT_CHOSEN]
    left_out[NOT_CHOSEN] = first.trajectories - used - left_out.total()
    fields = {name: one for report in reversed(reports) for name, one in report.not_carried.items()}
    return replace(
        first,
        records=sum(report.records for report in reports),
        files=tuple(file for report in reports for file in report.files),
        trajectories_used=used,
        trajectories_skipped=+left_out,
        unsuccessful=sum(report.unsuccessful for report in reports),
        skipped=sum((Counter(report.skipped) for report in reports), Counter[str]()),
        changed=sum((Counter(report.changed) for report in reports), Counter[str]()),
        not_carried={
            name: replace(one, trajectories=_sum_known(report.not_carried[name].trajectories for report in reports))
            for name, one in fields.items()
        },
        other_rewards=tuple(dict.fromkeys(name for report in reports for name in report.other_rewards)),
        helps={reason: help_ for report in reports for reason, help_ in report.helps.items()},
        parts={name: count for report in reports for name, count in report.parts.items()},
    )


def _sum_known(counts: Iterable[int | None]) -> int | None:
    listed = list(counts)
    return None if None in listed else sum(count for count in listed if count is not None)


def writable(
    sources: Sources,
    exporters: Iterable[Exporter],
    **selection: Unpack[SelectionKeywords],
) -> dict[str, tuple[str, ...]]:
    """The names of each exporter's formats that give at least one record of these trajectories.

    Options are as for `export`. Each format reads up to its first record; a format without a record reads everything.
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
