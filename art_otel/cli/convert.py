"""`art-otel convert`: span dumps in, a Parquet dataset and its report out."""

import argparse
import json
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, cast

from msgspec.structs import replace

from art_otel import storage
from art_otel.cli.destination import destination_or_store
from art_otel.cli.durations import seconds
from art_otel.cli.follow import follow_until_told
from art_otel.cli.limits import add_limits, limits_of
from art_otel.cli.plan import print_plan
from art_otel.cli.printable import printable_json
from art_otel.cli.progress import show_progress
from art_otel.cli.summary import print_summary

if TYPE_CHECKING:
    from art_otel.store import ConversionReport


def add_parser(verbs: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:  # pyright: ignore[reportPrivateUsage] # argparse has no public name for it
    """Add the verb."""
    parser = verbs.add_parser(
        "convert",
        help="convert span dumps into a Parquet dataset of trajectories",
        description="Convert span dumps of any OTel collector into a Parquet dataset of trajectories, with a report"
        " that accounts for every span.",
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
        "--format", default="auto", metavar="NAME", help="the dumps' format (default: auto, by content)"
    )
    parser.add_argument(
        "--workers", type=int, metavar="N", help="processes (default: one a processor, fewer for little input)"
    )
    _add_engine(parser)
    parser.add_argument(
        "--rollout-span",
        action="append",
        default=[],
        metavar="GLOB",
        help="names of spans that count as rollouts where no span carries art.rollout.id; may be repeated"
        " (default: the root of a trace that has LLM calls below it)",
    )
    parser.add_argument(
        "--rollout-traces",
        action="store_true",
        help="also write what each LLM call saw, did and was worth, which art_otel.store.read_rollout_traces reads;"
        " whole prompts take much space",
    )
    _add_rounds(parser)
    parser.add_argument(
        "--since", metavar="DATE", help="leave out files that were not changed on that day or later (2026-11-01)"
    )
    parser.add_argument(
        "--scrub",
        choices=["on", "content", "mark", "off"],
        help="what is done to secrets in logs of agents (default: ART_OTEL_SCRUB, else on)",
    )
    parser.add_argument("--strict", action="store_true", help="exit 3 when anything was quarantined")
    parser.add_argument("--json", action="store_true", help="print the report as JSON instead of a summary")
    add_limits(parser)
    parser.set_defaults(run=run)


def _add_engine(parser: argparse.ArgumentParser) -> None:
    """Add what says where the work is done."""
    parser.add_argument(
        "--engine", default="local", choices=["local", "ray"], help="what runs the work (default: local)"
    )
    parser.add_argument(
        "--ray-address",
        metavar="ADDRESS",
        help="of the Ray that runs the work: local (one of its own), auto (that of this machine) or HOST:PORT"
        " (default: RAY_ADDRESS, else local)",
    )
    parser.add_argument(
        "--plan", action="store_true", help="only say what the conversion would take, from the sizes of its inputs"
    )
    parser.add_argument(
        "--nodes", type=int, default=1, metavar="N", help="for --plan: nodes like this one (default: 1)"
    )
    parser.add_argument(
        "--scratch",
        type=destination_or_store,
        metavar="DIR",
        help="a folder or URL for files that are needed on the way (default: a folder of their own in the dataset's)",
    )


def _add_rounds(parser: argparse.ArgumentParser) -> None:
    """Add what says how a dataset is kept up to date."""
    parser.add_argument(
        "--incremental",
        action="store_true",
        help="read only what no earlier conversion into the same folder read, and add its trajectories",
    )
    parser.add_argument("--follow", action="store_true", help="do so again and again, until Ctrl+C")
    parser.add_argument(
        "--every", type=seconds, default=10.0, metavar="TIME", help="between two looks of --follow (default: 10s)"
    )
    parser.add_argument(
        "--grace",
        type=seconds,
        default=900.0,
        metavar="TIME",
        help="with --incremental or --follow: how long nothing comes of a rollout before it is given although it has"
        " not ended (default: 15m)",
    )
    parser.add_argument(
        "--retain",
        type=seconds,
        default=2_592_000.0,
        metavar="TIME",
        help="with them too: how long after the last span of a rollout late ones are taken (default: 30d)",
    )


def run(arguments: argparse.Namespace) -> int:
    """Convert and tell what came out."""
    if arguments.plan:
        return print_plan(arguments)
    if arguments.owns_process:
        # Says that there is no numpy. pyarrow would load it, a third of the start, and a conversion needs none.
        sys.modules.setdefault("numpy", cast(ModuleType, None))
    from art_otel.conversion import chosen_scrubbing, since_ns  # noqa: PLC0415 # as below
    from art_otel.engines import Conversion, Times, convert  # noqa: PLC0415 # loads only for a verb that needs it
    from art_otel.store import REPORT_NAME  # noqa: PLC0415 # as above

    conversion = Conversion(
        sources=arguments.sources,
        out=arguments.out,
        scratch=arguments.scratch,
        format=None if arguments.format == "auto" else arguments.format,
        rollout_spans=arguments.rollout_span,
        workers=arguments.workers,
        engine=arguments.engine,
        ray_address=arguments.ray_address,
        incremental=arguments.incremental,
        times=Times(grace=arguments.grace, retain=arguments.retain),
        since=since_ns(arguments.since),
        scrub=chosen_scrubbing(arguments.scrub),
        rollout_traces=arguments.rollout_traces,
        limits=limits_of(arguments),
    )
    if arguments.follow:
        with _named(arguments.out):
            return follow_until_told(conversion, every=arguments.every, as_json=arguments.json)
    watched = sys.stderr.isatty() and not arguments.json
    with show_progress(enabled=watched) as progress, _named(arguments.out):
        on_bytes = progress.advance if watched else None
        report = convert(replace(conversion, on_start=progress.start, on_bytes=on_bytes))
    if arguments.json:
        written = storage.read(storage.join(str(arguments.out), REPORT_NAME))
        sys.stdout.write(printable_json(json.loads(written)) + "\n")
    else:
        print_summary(report, arguments.out)
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
