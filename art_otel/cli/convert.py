"""`art-otel convert`: span dumps in, a Parquet dataset and its report out.

With `--follow` it prints a line for each round in which something came.
"""

import argparse
import json
import signal
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType, ModuleType
from typing import TYPE_CHECKING, Final, NamedTuple, NoReturn, cast

from msgspec.structs import replace

from art_otel import storage
from art_otel.calls import TOKEN_FACTS
from art_otel.cli.arguments import (
    add_limits,
    add_settings,
    destination_or_store,
    limits_of,
    seconds,
)
from art_otel.cli.terminal import by_reason, counted, printable, printable_json, show_progress
from art_otel.receiver.settings import SETTINGS
from art_otel.sources.format import UNKNOWN_FORMAT
from art_otel.spans import MAX_LISTED
from art_otel.trajectories import cure_of_gap
from art_otel.trajectories.accounting import STARTED

if TYPE_CHECKING:
    from art_otel.engines import Conversion
    from art_otel.store import ConversionReport, RewardCounts

_LISTED: Final = 5


class _ShownReason(NamedTuple):
    """A line of the summary."""

    label: str
    text: str
    style: str = ""


def add_parser(verbs: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:  # pyright: ignore[reportPrivateUsage] # argparse has no public name for it
    """Add the verb."""
    parser = verbs.add_parser(
        "convert",
        help="convert span dumps into a Parquet dataset of trajectories",
        description="Convert span dumps into a Parquet dataset of trajectories, with a report that counts every span.",
    )
    parser.add_argument(
        "sources",
        nargs="+",
        metavar="SOURCE",
        help="files, folders, globs, URLs (s3://, gs://, abfs://), or - for standard input",
    )
    parser.add_argument(
        "--out",
        required=True,
        type=destination_or_store,
        metavar="DIR",
        help="the folder of the dataset, or its URL in an object store",
    )
    parser.add_argument(
        "--format",
        default="auto",
        metavar="NAME",
        help="the format of the dumps (default: auto, which detects it by content)",
    )
    parser.add_argument(
        "--workers",
        type=int,
        metavar="N",
        help="number of processes (default: one per processor, fewer for small input)",
    )
    _add_engine(parser)
    parser.add_argument(
        "--rollout-span",
        action="append",
        default=[],
        metavar="GLOB",
        help="a span with a matching name is a rollout, in traces in which no span has art.rollout.id; may be"
        " repeated (default: the root of a trace that has LLM calls below it)",
    )
    add_settings(parser, SETTINGS, "rollout_attributes")
    parser.add_argument(
        "--rollout-traces",
        action="store_true",
        help="also write the prompt, answer and rewards of each LLM call, for art_otel.store.read_rollout_traces;"
        " whole prompts take much space",
    )
    parser.add_argument(
        "--token-facts",
        action="append",
        default=[],
        choices=TOKEN_FACTS,
        help="also write this information about each token, if it was recorded; may be repeated, and takes much space",
    )
    parser.add_argument(
        "--content",
        action="append",
        default=[],
        metavar="DIR",
        help="a folder or URL of content that spans refer to (gen_ai.input.messages_ref); may be repeated. The folders"
        " of the sources are looked through as well",
    )
    _add_rounds(parser)
    parser.add_argument(
        "--since", metavar="DATE", help="leave out files that were last changed before this date (such as 2026-11-01)"
    )
    parser.add_argument(
        "--scrub",
        choices=["on", "content", "mark", "off"],
        help="what to do with secrets in the logs of agents (default: ART_OTEL_SCRUB, else on)",
    )
    add_settings(parser, SETTINGS, "scrub_patterns")
    parser.add_argument("--strict", action="store_true", help="exit with 3 if anything was quarantined")
    parser.add_argument("--json", action="store_true", help="print the report as JSON instead of a summary")
    add_limits(parser)
    parser.set_defaults(run=run)


def _add_engine(parser: argparse.ArgumentParser) -> None:
    """Add the options that say where the work is done."""
    parser.add_argument(
        "--engine", default="local", choices=["local", "ray"], help="what runs the work (default: local)"
    )
    parser.add_argument(
        "--ray-address",
        metavar="ADDRESS",
        help="the Ray that runs the work: local (a new one), auto (the cluster of this machine) or HOST:PORT"
        " (default: RAY_ADDRESS, else local)",
    )
    parser.add_argument(
        "--scratch",
        type=destination_or_store,
        metavar="DIR",
        help="a folder or URL for temporary files (default: a folder in the dataset's folder)",
    )


def _add_rounds(parser: argparse.ArgumentParser) -> None:
    """Add the options that say how a dataset is kept up to date."""
    parser.add_argument(
        "--incremental",
        action="store_true",
        help="read only input that no earlier conversion into this folder has read, and add its trajectories",
    )
    parser.add_argument("--follow", action="store_true", help="like --incremental, again and again until Ctrl+C")
    parser.add_argument(
        "--every",
        type=seconds,
        default=10.0,
        metavar="TIME",
        help="how often --follow looks for new input (default: 10s)",
    )
    parser.add_argument(
        "--grace",
        type=seconds,
        default=900.0,
        metavar="TIME",
        help="with --incremental or --follow: add a rollout that has not ended once none of its spans has arrived "
        "for this long (default: 15m)",
    )
    parser.add_argument(
        "--retain",
        type=seconds,
        default=2_592_000.0,
        metavar="TIME",
        help="with --incremental or --follow: how long after the last span of a rollout late spans are still"
        " accepted (default: 30d)",
    )


def run(arguments: argparse.Namespace) -> int:
    """Convert the sources and print what came out."""
    if arguments.owns_process:
        # Says that there is no numpy. pyarrow would load it, a third of the start, and a conversion needs none.
        sys.modules.setdefault("numpy", cast(ModuleType, None))
    from art_otel.conversion import chosen_secrets, since_ns  # noqa: PLC0415 # as below
    from art_otel.engines import Conversion, Times, convert  # noqa: PLC0415 # loads only for a verb that needs it
    from art_otel.store import REPORT_NAME  # noqa: PLC0415 # as above

    conversion = Conversion(
        sources=arguments.sources,
        out=arguments.out,
        scratch=arguments.scratch,
        format=None if arguments.format == "auto" else arguments.format,
        rollout_spans=arguments.rollout_span,
        rollout_attributes=arguments.rollout_attributes,
        workers=arguments.workers,
        engine=arguments.engine,
        ray_address=arguments.ray_address,
        incremental=arguments.incremental,
        times=Times(grace=arguments.grace, retain=arguments.retain),
        since=since_ns(arguments.since),
        secrets=chosen_secrets(arguments.scrub, arguments.scrub_patterns),
        rollout_traces=arguments.rollout_traces,
        token_facts=arguments.token_facts,
        content=arguments.content,
        limits=limits_of(arguments),
    )
    if arguments.follow:
        with _named(arguments.out):
            return _follow_until_told(conversion, every=arguments.every, as_json=arguments.json)
    watched = sys.stderr.isatty() and not arguments.json
    with show_progress(enabled=watched) as progress, _named(arguments.out):
        on_bytes = progress.advance if watched else None
        report = convert(replace(conversion, on_start=progress.start, on_bytes=on_bytes))
    if arguments.json:
        written = storage.read(storage.join(str(arguments.out), REPORT_NAME))
        sys.stdout.write(printable_json(json.loads(written)) + "\n")
    else:
        print_summary(report, arguments.out, grows=arguments.incremental)
    return exit_code(report, strict=arguments.strict)


@contextmanager
def _named(out: Path | str) -> Generator[None]:
    """Let an error of the disk say where: a full one does not."""
    try:
        yield
    except OSError as error:
        if error.filename is None:
            error.filename = str(out)
        raise


def exit_code(report: "ConversionReport", *, strict: bool) -> int:
    """1 when a source could not be read, 3 when strict and something was quarantined, else 0."""
    if report.unread:
        return 1
    return 3 if strict and (report.spans.quarantined or report.logs.quarantined) else 0


def print_summary(report: "ConversionReport", out: Path | str, *, grows: bool = False) -> None:
    """Print the report to standard output, and what a dataset that `grows` has by now."""
    from art_otel.store import read_manifest  # noqa: PLC0415 # loads only for a verb that needs it

    manifest = read_manifest(str(out)) if grows else None
    lines = _lines(report, storage.shown(str(out)), None if manifest is None else manifest.rows)
    if not sys.stdout.isatty():
        sys.stdout.writelines(f"{line.label:>7}  {line.text}\n" for line in lines)
        return
    from rich.console import Console  # noqa: PLC0415 # loaded only where somebody sees colors
    from rich.text import Text  # noqa: PLC0415

    console = Console(highlight=False, soft_wrap=True)
    for line in lines:
        console.print(Text.assemble((f"{line.label:>7}  ", "bold"), (line.text, line.style)))


def _lines(report: "ConversionReport", out: str, held: int | None) -> list[_ShownReason]:
    spans, calls, trajectories = report.spans, report.calls, report.trajectories
    ignored = {reason: count for reason, count in spans.ignored.items() if reason != STARTED}
    starts = spans.ignored.get(STARTED, 0)
    records = f"{counted(spans.read - starts, 'span')} and {counted(report.logs.read, 'log record')}"
    also = f" (and {counted(starts, 'start line')} of these spans)" if starts else ""
    duplicates, quarantined = counted(spans.duplicate, "duplicate"), by_reason(spans.quarantined, "quarantined")
    lines = [
        _row("in", f"{records} from {counted(len(report.files), 'file')}{also}"),
        _row("", f"{spans.used:,} used, {by_reason(ignored, 'ignored')}, {duplicates}, {quarantined}"),
    ]
    if spans.waiting or spans.again:
        waiting = f"{counted(spans.waiting, 'span')} waiting"
        lines.append(_row("", f"{waiting}, {spans.again:,} of earlier conversions assembled again"))
    complete = f"{trajectories.complete:,} complete, {trajectories.total - trajectories.complete:,} incomplete"
    where = f"in {out}" if held is None else f"added to {out}, which has {held:,} now"
    lines += [
        _row("calls", f"{calls.total:,}: {calls.completed:,} completed, {calls.failed:,} failed"),
        _row("out", f"{counted(trajectories.total, 'trajectory', 'trajectories')} {where}: {complete}"),
    ]
    lines.extend(
        _row("", f"  {count:,} incomplete ({reason}): {cure_of_gap(reason)}", "yellow")
        for reason, count in trajectories.incomplete.items()
    )
    lines.extend(
        _row("", f"  quarantined: {piece.path}: {piece.reason} {piece.detail}".rstrip(), "yellow")
        for piece in report.quarantine[:_LISTED]
    )
    if len(report.quarantine) > _LISTED:
        which = "all" if len(report.quarantine) < MAX_LISTED else "the first"
        lines.append(
            _row("", f"  … {which} {len(report.quarantine)} are named in {storage.join(out, '_report.json')}", "yellow")
        )
    if report.rewards.given:
        lines.append(_row("rewards", _rewards(report.rewards)))
    lines.extend(_row("unread", file.error or file.path, "red") for file in report.unread)
    not_read = {file.format: file.not_in_format for file in report.files if file.not_in_format}
    lines.extend(_row("not in", f"{name}: {', '.join(fields)}") for name, fields in not_read.items())
    if unknown := [file.path for file in report.files if file.note == UNKNOWN_FORMAT]:
        named = ", ".join(unknown[:_LISTED]) + (", …" if len(unknown) > _LISTED else "")
        lines.append(_row("skipped", f"{counted(len(unknown), 'file')} in no known format: {named}", "yellow"))
    lines.extend(_row("hint", hint, "cyan") for hint in report.hints)
    return lines


def _rewards(rewards: "RewardCounts") -> str:
    undelivered = by_reason(rewards.undeliverable, "undeliverable")
    return f"{rewards.given:,}: {rewards.delivered:,} delivered, {undelivered}"


def _row(label: str, text: str, style: str = "") -> _ShownReason:
    return _ShownReason(label, printable(text), style)


def _follow_until_told(conversion: "Conversion", *, every: float, as_json: bool) -> int:
    """Follow until SIGINT or SIGTERM; what was committed stays, so the exit code is 0."""
    from art_otel.engines.incremental import follow  # noqa: PLC0415 # loads only for who follows

    signal.signal(signal.SIGTERM, _interrupt)
    signal.signal(signal.SIGINT, _interrupt)
    try:
        follow(conversion, every=every, tell=_tell_json if as_json else _tell, warn=_warn)
    except KeyboardInterrupt:
        _warn("stopped")
    return 0


def _interrupt(_signal: int, _frame: FrameType | None) -> NoReturn:
    raise KeyboardInterrupt


def _tell(report: "ConversionReport") -> None:
    spans, rows = report.spans, report.trajectories
    read = spans.read - spans.ignored.get(STARTED, 0)
    parts = [f"{read:,} spans read", f"{rows.total:,} trajectories added", f"{spans.waiting:,} spans wait"]
    parts += [f"{count:,} quarantined: {reason}" for reason, count in spans.quarantined.items()]
    parts += [f"unread: {file.error}" for file in report.unread]
    sys.stdout.write(f"{time.strftime('%H:%M:%S')}  {printable(', '.join(parts))}\n")
    sys.stdout.flush()


def _tell_json(report: "ConversionReport") -> None:
    sys.stdout.write(json.dumps(report.to_json()) + "\n")
    sys.stdout.flush()


def _warn(problem: str) -> None:
    sys.stderr.write(f"art-otel: {printable(problem)}\n")
    sys.stderr.flush()
