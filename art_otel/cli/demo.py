"""`art-otel demo`: convert the recordings that ship with art-otel and show what came out."""

import argparse
import tempfile
from pathlib import Path

from rich.console import Console

from art_otel.cli.conversation import print_conversation
from art_otel.cli.summary import print_summary


def add_parser(verbs: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:  # pyright: ignore[reportPrivateUsage] # argparse has no public name for it
    """Add the verb."""
    parser = verbs.add_parser(
        "demo",
        help="convert real recordings that ship with art-otel and show what came out",
        description="Convert real recordings of three instrumentors into a dataset and show what came out.",
    )
    parser.add_argument("--out", type=Path, metavar="DIR", help="keep the dataset here (default: a temporary folder)")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Convert, summarise, and show one rollout as a conversation."""
    from art_otel.demo import RECORDINGS  # noqa: PLC0415 # pyarrow loads only for a verb that needs it
    from art_otel.engines import Conversion, convert  # noqa: PLC0415 # as above
    from art_otel.store import read_trajectories  # noqa: PLC0415 # as above

    out = arguments.out or Path(tempfile.mkdtemp(prefix="art-otel-demo-"))
    console = Console(highlight=False)
    console.print(f"$ art-otel convert {RECORDINGS} --out {out}", style="bold", soft_wrap=True)
    print_summary(convert(Conversion(sources=[str(RECORDINGS)], out=out)), out)
    shown = next(trajectory for trajectory in read_trajectories(out) if trajectory.rollout_id == "r-sync_tools")
    console.print(f"\n$ art-otel show {out} --rollout {shown.rollout_id}", style="bold", soft_wrap=True)
    print_conversation(shown, console)
    console.print(f"\nThe dataset is in {out}; `art-otel show {out}` lists it.", soft_wrap=True)
    return 0
