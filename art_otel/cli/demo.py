"""`art-otel demo`: a small policy learns before your eyes, from nothing but spans."""

import argparse
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Final

from art_otel.cli.arguments import destination
from art_otel.cli.convert import print_summary
from art_otel.errors import UsageError

if TYPE_CHECKING:
    from rich.console import Console

_COLUMNS = f"{'step':>4}  {'reward':>6}  {'sampled':>7}  {'trained':>7}  {'seconds':>7}"
_BLOCKS: Final = " ▁▂▃▄▅▆▇█"
_HEIGHT: Final = 8
_WIDTH: Final = 60


def add_parser(verbs: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:  # pyright: ignore[reportPrivateUsage] # argparse has no public name for it
    """Add the verb."""
    parser = verbs.add_parser(
        "demo",
        help="train a small policy only from spans, or convert recordings that come with art-otel",
        description="Train a small policy on this machine. An agent calls it through the openai client. The"
        " agent's spans become trajectories, batches and better weights, step by step."
        " docs/tutorial/README.md explains what happens.",
    )
    parser.add_argument("--steps", type=int, default=30, metavar="N", help="how many steps to train (default: 30)")
    parser.add_argument("--seed", type=int, default=0, metavar="S", help="the random seed (default: 0)")
    parser.add_argument(
        "--out",
        type=destination,
        metavar="DIR",
        help="where to write spans, dataset and run log (default: a temporary folder)",
    )
    parser.add_argument(
        "--recordings",
        type=destination,
        nargs="?",
        const=Path(),
        metavar="DIR",
        help="train nothing: write real recordings of three instrumentors to DIR/dumps and their trajectories to"
        " DIR/out (default: the current folder), and show one of them",
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Train and show how it went, or convert recordings."""
    from rich.console import Console  # noqa: PLC0415 # as all below: what is heavy loads for the verb that needs it

    if arguments.steps < 1 or arguments.seed < 0:
        raise UsageError(f"--steps {arguments.steps} --seed {arguments.seed}: need at least 1 step, and a seed from 0")
    console = Console(highlight=False, markup=False, emoji=False, soft_wrap=True)
    if arguments.recordings is not None:
        if arguments.out is not None:
            raise UsageError("--out is the folder for the files of training; for recordings, use --recordings DIR")
        _convert_recordings(arguments.recordings, console)
        return 0
    out: Path = arguments.out or Path(tempfile.mkdtemp(prefix="art-otel-demo-"))
    _train(out.absolute(), arguments.steps, arguments.seed, console)
    return 0


def _train(out: Path, steps: int, seed: int, console: "Console") -> None:
    from art_otel.demo.training import Training, train  # noqa: PLC0415 # numpy and pyarrow load only for a verb that needs them
    from art_otel.engines import Conversion, convert  # noqa: PLC0415 # as above

    training = Training(out=out, steps=steps, seed=seed)
    trained = train(training)  # says at once what is in the way
    console.print("An untrained policy picks tools at random. It learns which tool answers which question.\n")
    console.print(_COLUMNS, style="bold")
    rewards: list[float] = []
    for step in trained:
        rewards.append(step.reward)
        counts = f"{step.sampled_tokens:>7}  {step.trained_tokens:>7}  {step.seconds:>7.2f}"
        console.print(f"{step.number:>4}  {step.reward:>6.2f}  {counts}")
    console.print("\nreward by step", style="bold")
    console.print("\n".join(plot(rewards)))
    console.print(f"\n$ art-otel convert {training.spool} --out {out / 'dataset'}", style="bold")
    print_summary(convert(Conversion(sources=[str(training.spool)], out=out / "dataset")), out / "dataset")
    folder = training.log.folder
    console.print(f"\nspans       {training.spool}")
    console.print(f"Parquet     {out / 'dataset'}  (art-otel show {out / 'dataset'})")
    console.print(f"report      {out / 'dataset' / '_report.json'}")
    console.print(f"run folder  {folder.path}  ({folder.history.name}, trajectories of each step)")
    console.print(f"\n$ art-otel view {folder.path}", style="bold")
    if sys.stdin.isatty() and sys.stdout.isatty() and _has_browser():
        from art_otel import cli  # noqa: PLC0415 # it imports this module

        cli.main(["view", str(folder.path), "--port", "0"])
    else:
        console.print("shows in a browser what it learned, which tasks fail, what trains and what went wrong")


def _convert_recordings(folder: Path, console: "Console") -> None:
    from art_otel.cli.show import print_conversation  # noqa: PLC0415 # as above
    from art_otel.demo import write_recordings  # noqa: PLC0415 # pyarrow loads only for a verb that needs it
    from art_otel.engines import Conversion, convert  # noqa: PLC0415 # as above
    from art_otel.store import read_trajectories  # noqa: PLC0415 # as above

    dumps, out = write_recordings(folder), folder / "out"
    report = convert(Conversion(sources=[str(dumps)], out=out))
    console.print(f"$ art-otel convert {dumps} --out {out}", style="bold")
    print_summary(report, out)
    shown = next(trajectory for trajectory in read_trajectories(out) if trajectory.rollout_id == "r-sync_tools")
    console.print(f"\n$ art-otel show {out} --rollout {shown.rollout_id}", style="bold")
    print_conversation(shown, console)
    console.print(f"\nThe recordings are in {dumps}, their trajectories in {out}; `art-otel show {out}` lists them.")


def _has_browser() -> bool:
    """Whether there is a browser with a window: one of the terminal would take the place of what was printed."""
    import webbrowser  # noqa: PLC0415 # seldom

    try:
        return type(webbrowser.get()) is not webbrowser.GenericBrowser
    except webbrowser.Error:
        return False


def plot(values: Sequence[float]) -> Iterator[str]:
    """Lines of text, the first value at the left. Where there are too many values, a column is the mean of several."""
    columns = list(_columns(values))
    wide = max(1, min(_WIDTH // len(columns), 3))
    for row in reversed(range(_HEIGHT)):
        label = {_HEIGHT - 1: "1 ┤", 0: "0 ┤"}.get(row, "  │")
        yield label + "".join(_BLOCKS[_level(value, row)] * wide for value in columns)
    yield f"   0{len(values) - 1:>{max(1, wide * len(columns) - 1)}}"


def _columns(values: Sequence[float]) -> Iterator[float]:
    size = -(-len(values) // _WIDTH)
    for start in range(0, len(values), size):
        yield fmean(values[start : start + size])


def _level(value: float, row: int) -> int:
    """How much of a row the value fills, in eighths."""
    return min(max(round(8 * (value * _HEIGHT - row)), 0), 8)
