"""`art-otel log`: a dataset, metrics, or both, into a run log."""

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from art_otel.cli.arguments import destination
from art_otel.cli.terminal import counted, printable

if TYPE_CHECKING:
    from art_otel.runlog import LogEntry


def add_parser(verbs: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:  # pyright: ignore[reportPrivateUsage] # argparse has no public name for it
    """Add the verb."""
    parser = verbs.add_parser(
        "log",
        help="log a dataset and metrics of a training step, in ART's files",
        description="Log the trajectories of a dataset, metrics, or both, for one training step. They go to"
        " BASE/PROJECT/models/MODEL/trajectories/SPLIT/STEP.parquet and to a row in history.jsonl.",
    )
    parser.add_argument("paths", nargs="*", metavar="PATH", help="dataset folders, Parquet files, or globs of them")
    parser.add_argument("--project", metavar="NAME", help="the project (default: ART_OTEL_PROJECT)")
    parser.add_argument("--model", metavar="NAME", help="the model that is trained (default: ART_OTEL_MODEL)")
    parser.add_argument("--split", required=True, metavar="NAME", help="train, val, test, or another")
    parser.add_argument("--step", type=int, metavar="N", help="the training step (default: the current one)")
    parser.add_argument(
        "--metric",
        action="append",
        default=[],
        type=_metric,
        metavar="NAME=NUMBER",
        help="a metric to log as well; may be repeated",
    )
    parser.add_argument(
        "--base-path",
        type=destination,
        metavar="DIR",
        help="the folder of all run logs (default: ART_OTEL_DIR, else .art)",
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Log the trajectories and metrics, and print what was written where."""
    from art_otel.runlog import RunLog  # noqa: PLC0415 # pyarrow loads only for a verb that needs it
    from art_otel.store import read_trajectories  # noqa: PLC0415 # as above

    run_log = RunLog(arguments.project, arguments.model, arguments.base_path)
    trajectories = list(read_trajectories(arguments.paths))
    entry = run_log.log(
        trajectories if arguments.paths else None, arguments.split, arguments.step, dict(arguments.metric) or None
    )
    sys.stdout.writelines(f"{printable(line)}\n" for line in _lines(entry, len(trajectories), run_log.folder.history))
    return 0


def _lines(entry: "LogEntry", count: int, history: Path) -> list[str]:
    trajectories = counted(count, "trajectory", "trajectories")
    metrics = f"{entry.split} step {entry.step} in {history}"
    lines = (
        [f"wrote  {metrics}"] if entry.file is None else [f"wrote  {trajectories} in {entry.file}", f"       {metrics}"]
    )
    if entry.unrewarded is not None:
        lines.append(f"       those without a reward in {entry.unrewarded}")
    lines.extend(f"       {name} = {value:g}" for name, value in entry.metrics.items())
    lines.extend(f"       {name}: left out, because it is not a finite number" for name in entry.skipped)
    return lines


def _metric(text: str) -> tuple[str, float]:
    name, equals, number = text.rpartition("=")
    try:
        if name and equals:
            return name, float(number)
    except ValueError:
        pass
    raise argparse.ArgumentTypeError(f"{text!r}: write NAME=NUMBER")
