"""Summary: a conversion report for people. What came in, what came out, what is incomplete and why."""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from art_otel import storage
from art_otel.cli.printable import printable
from art_otel.sources.format import UNKNOWN_FORMAT
from art_otel.spans import MAX_LISTED
from art_otel.trajectories import explain

if TYPE_CHECKING:
    from art_otel.store import ConversionReport

_LISTED = 5


def print_summary(report: "ConversionReport", out: Path | str) -> None:
    """Print the report to standard output."""
    lines = _lines(report, storage.shown(str(out)))
    if not sys.stdout.isatty():
        sys.stdout.writelines(f"{line.label:>7}  {line.text}\n" for line in lines)
        return
    from rich.console import Console  # noqa: PLC0415 # loaded only where somebody sees colors
    from rich.text import Text  # noqa: PLC0415

    console = Console(highlight=False, soft_wrap=True)
    for line in lines:
        console.print(Text.assemble((f"{line.label:>7}  ", "bold"), (line.text, line.style)))


class _Row(NamedTuple):
    """A line of the summary."""

    label: str
    text: str
    style: str = ""


def _lines(report: "ConversionReport", out: str) -> list[_Row]:
    spans, calls, trajectories = report.spans, report.calls, report.trajectories
    lines = [
        _row("in", f"{_count(spans.read, 'span')} and {_count(report.logs.read, 'log record')}"
             f" from {_count(len(report.files), 'file')}"),
        _row("", f"{spans.used} used, {_by_reason(spans.ignored, 'ignored')}, {_count(spans.duplicate, 'duplicate')},"
             f" {_by_reason(spans.quarantined, 'quarantined')}"),
        *([_row("", f"{_count(spans.waiting, 'span')} waiting, {spans.again:,} of earlier conversions assembled again")]
          if spans.waiting or spans.again else []),
        _row("calls", f"{calls.total}: {calls.completed} completed, {calls.failed} failed"),
        _row("out", f"{_count(trajectories.total, 'trajectory', 'trajectories')} in {out}:"
             f" {trajectories.complete} complete, {trajectories.total - trajectories.complete} incomplete"),
    ]  # fmt: skip
    lines.extend(
        _row("", f"  {count} incomplete by {reason}: {explain(reason)}", "yellow")
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
    lines.extend(_row("unread", f"{file.path}: {file.error}", "red") for file in report.unread)
    if unknown := [file.path for file in report.files if file.note == UNKNOWN_FORMAT]:
        named = ", ".join(unknown[:_LISTED]) + (", …" if len(unknown) > _LISTED else "")
        lines.append(_row("skipped", f"{_count(len(unknown), 'file')} of no known format: {named}", "yellow"))
    lines.extend(_row("hint", hint, "cyan") for hint in report.hints)
    return lines


def _row(label: str, text: str, style: str = "") -> _Row:
    return _Row(label, printable(text), style)


def _count(number: int, noun: str, plural: str | None = None) -> str:
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def _by_reason(counts: Mapping[str, int], verb: str) -> str:
    reasons = ", ".join(f"{reason}: {count}" for reason, count in counts.items())
    return f"{sum(counts.values()):,} {verb}" + (f" ({reasons})" if reasons else "")
