"""`art-otel compact`: a dataset without superseded rows, in fewer files."""

import argparse
import sys

from art_otel.cli.arguments import destination_or_store, seconds


def add_parser(verbs: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:  # pyright: ignore[reportPrivateUsage] # argparse has no public name for it
    """Add the verb."""
    parser = verbs.add_parser(
        "compact",
        help="drop superseded rows of a dataset, and put small files together",
        description="Drop the superseded rows of a dataset that was converted with --incremental or --follow, and"
        " put small files together. Readers and later conversions can continue.",
    )
    parser.add_argument("out", type=destination_or_store, metavar="DIR", help="the folder or URL of the dataset")
    parser.add_argument(
        "--linger",
        type=seconds,
        default=3600.0,
        metavar="TIME",
        help="how long replaced files are kept, because they may still be read (default: 1h; 0 removes them at once; "
        "an object store always keeps them for a day)",
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Compact the dataset, and print what was done."""
    from art_otel.store.superseded import compact  # noqa: PLC0415 # loads only for a verb that needs it

    done = compact(arguments.out, linger=arguments.linger)
    if done.parts:
        sys.stdout.write(f"{done.parts} files became {done.became}, {done.rows} superseded rows dropped\n")
    else:
        sys.stdout.write("nothing to do\n")
    return 0
