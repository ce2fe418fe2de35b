"""`art-otel export`: trajectories as a trainer reads them, and a report of what it does not get."""

import argparse
import sys
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final

import msgspec

from art_otel.cli.destination import destination
from art_otel.cli.exporters import list_exporters
from art_otel.cli.printable import printable, printable_json
from art_otel.errors import UsageError

if TYPE_CHECKING:
    from art_otel.exporting import ExportReport

_ADVANTAGES: Final = ("grpo", "grpo_sample", "dr_grpo", "rloo", "centered", "none")
_CREDITS: Final = ("outcome_reward", "step_reward", "call_reward")
_STATUSES: Final = ("ok", "error", "cancelled", "unfinished")


def add_parser(verbs: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:  # pyright: ignore[reportPrivateUsage] # argparse has no public name for it
    """Add the verb."""
    parser = verbs.add_parser(
        "export",
        help="write a dataset as a trainer reads it",
        description="Write the trajectories of a dataset as a trainer reads them, with a report of what was left out"
        " and what the format has no place for. `art-otel export --list` lists the trainers.",
    )
    parser.add_argument("paths", nargs="*", metavar="PATH", help="dataset folders, Parquet files, or globs of them")
    parser.add_argument(
        "--list", action="store_true", help="list the exporters that are installed, and what each needs"
    )
    parser.add_argument("--to", metavar="NAME", help="the exporter")
    parser.add_argument("--format", metavar="NAME", help="which of its formats (default: its first)")
    parser.add_argument(
        "-o", "--out", type=destination, metavar="OUT", help="a folder, or a file with the format's suffix"
    )
    parser.add_argument(
        "--advantage",
        choices=_ADVANTAGES,
        help="how rewards of a group become advantages (default: as the trainer has them, if at all)",
    )
    parser.add_argument(
        "--credit",
        choices=_CREDITS,
        default=_CREDITS[0],
        help="which reward a completion is trained with (default: outcome_reward, the final one)",
    )
    parser.add_argument("--split", action="append", metavar="NAME", help="this split only; may be repeated")
    parser.add_argument(
        "--status", action="append", choices=_STATUSES, help="this status only; may be repeated (default: ok)"
    )
    parser.add_argument("--allow-incomplete", action="store_true", help="incomplete trajectories too")
    parser.add_argument("--max-tokens", type=int, metavar="N", help="leave out longer sequences")
    parser.add_argument(
        "--option", action="append", default=[], type=_option, metavar="NAME=VALUE", help="an option of the format"
    )
    parser.add_argument("--json", action="store_true", help="print the report, or the list, as JSON")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Export and tell what came out. Raises UsageError for an option that is missing."""
    if arguments.list:
        return list_exporters(as_json=arguments.json)
    required = {"PATH": arguments.paths, "--to": arguments.to, "--out": arguments.out}
    if missing := [name for name, value in required.items() if not value]:
        raise UsageError(f"say {', '.join(missing)} too; `art-otel export --list` lists the exporters")
    from art_otel.exporting import DEFAULT, export  # noqa: PLC0415 # numpy and pyarrow load only for a verb that needs them

    advantage = arguments.advantage or DEFAULT
    report = export(
        arguments.paths,
        arguments.to,
        arguments.out,
        format=arguments.format,
        options=dict(arguments.option),
        advantage=None if advantage == "none" else advantage,
        credit=arguments.credit,
        allow_incomplete=arguments.allow_incomplete,
        split=arguments.split,
        status=arguments.status or ("ok",),
        max_tokens=arguments.max_tokens,
    )
    if arguments.json:
        sys.stdout.write(printable_json(msgspec.to_builtins(report)) + "\n")
    else:
        sys.stdout.writelines(f"{printable(line)}\n" for line in _lines(report))
    if not report.records:
        sys.stderr.write("art-otel: warning: no record was written; the report says why\n")
    return 0


def _lines(report: "ExportReport") -> Iterator[str]:
    trajectories = _counted(report.trajectories, "trajectory", "trajectories")
    yield f"         in  {trajectories}: {report.trajectories_used:,} used, {_by_reason(report.trajectories_skipped)}"
    records = _counted(report.records, "record", "records")
    yield f"        out  {records} of {report.exporter} {report.format} in {_named(report.files)}"
    for reason, count in report.skipped.items():
        yield f"   left out  {reason}: {count:,}"
    for what, count in report.changed.items():
        yield f"    changed  {what}: {count:,}"
    for name, lost in report.not_carried.items():
        if lost.trajectories != 0:
            count = "" if lost.trajectories is None else f" of {lost.trajectories:,}"
            yield f"not carried  {name}{count}: {lost.why}"


def _named(files: tuple[str, ...]) -> str:
    if not files:
        return "no file"
    return files[0] if len(files) == 1 else f"{files[0]} and {len(files) - 1:,} more"


def _by_reason(counts: Mapping[str, int]) -> str:
    reasons = ", ".join(f"{reason}: {count:,}" for reason, count in counts.items())
    return f"{sum(counts.values()):,} left out" + (f" ({reasons})" if reasons else "")


def _counted(count: int, one: str, many: str) -> str:
    return f"{count:,} {one if count == 1 else many}"


def _option(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not (name and equals):
        raise argparse.ArgumentTypeError(f"{text!r}: write NAME=VALUE")
    return name, value
