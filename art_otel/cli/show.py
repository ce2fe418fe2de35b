"""`art-otel show`: what is in a dataset, as a list or as one conversation."""

import argparse
import json
import sys
from collections.abc import Iterable
from typing import Any

from art_otel.cli.printable import printable
from art_otel.errors import UsageError
from art_otel.trajectories import Trajectory, trajectory_json

_PIPED_WIDTH = 10_000
"""Another program reads a trajectory a line; only a terminal needs lines to be folded."""


def add_parser(verbs: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:  # pyright: ignore[reportPrivateUsage] # argparse has no public name for it
    """Add the verb."""
    parser = verbs.add_parser(
        "show",
        help="list the trajectories of a dataset, or show one as a conversation",
        description="List the trajectories of a dataset, or show one as a conversation with trained parts, rewards and"
        " warnings marked.",
    )
    parser.add_argument("path", metavar="PATH", help="a dataset folder, a Parquet file, or a glob of them")
    parser.add_argument("--rollout", metavar="ID", help="show this rollout as a conversation")
    parser.add_argument(
        "--json",
        action="store_true",
        help="print JSON: a list of trajectories, or one whole trajectory (of several attempts a list)",
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """List the dataset or show one rollout."""
    from rich.console import Console  # noqa: PLC0415 # as all below: what is heavy loads for the verb that needs it

    from art_otel.cli.conversation import print_conversation  # noqa: PLC0415
    from art_otel.store import read_trajectories  # noqa: PLC0415

    if arguments.rollout is None:
        outlines = read_trajectories(arguments.path, prompts=False, messages=False, tokens=False)
        _list(outlines, as_json=arguments.json)
        return 0
    trajectories = read_trajectories(arguments.path)
    found = [trajectory for trajectory in trajectories if trajectory.rollout_id == arguments.rollout]
    if not found:
        raise UsageError(f"{arguments.path}: no rollout {arguments.rollout!r}; `art-otel show PATH` lists them")
    if arguments.json:
        told = [trajectory_json(trajectory) for trajectory in found]
        _print_json(told[0] if len(told) == 1 else told)
        return 0
    for trajectory in found:
        print_conversation(trajectory, Console(highlight=False))
    return 0


def _list(trajectories: Iterable[Trajectory], *, as_json: bool) -> None:
    rows = [_overview(trajectory) for trajectory in trajectories]
    if as_json:
        _print_json(rows)
        return
    from rich.console import Console  # noqa: PLC0415 # as in run
    from rich.table import Table  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    table = Table(box=None, pad_edge=False)
    for column in ("rollout", "name", "status", "reward", "calls", "turns", "complete"):
        table.add_column(column, overflow="fold")
    for row in rows:
        reasons = ", ".join(f"{reason} ({count})" for reason, count in row["incomplete_reasons"].items())
        complete = f"no: {reasons}" if reasons else "yes"
        reward = "-" if row["reward"] is None else f"{row['reward']:g}"
        numbers = (str(row["calls"]), str(row["turns"]))
        cells = (row["rollout_id"], row["name"] or "-", row["status"], reward, *numbers, complete)
        table.add_row(*(Text(printable(cell)) for cell in cells))
    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = _PIPED_WIDTH
    console.print(table)


def _overview(trajectory: Trajectory) -> dict[str, Any]:
    return {
        "rollout_id": trajectory.rollout_id,
        "trace_id": trajectory.trace_id,
        "name": trajectory.name,
        "group_id": trajectory.group_id,
        "attempt": trajectory.attempt,
        "parent_rollout_id": trajectory.parent_rollout_id,
        "status": trajectory.status,
        "reward": trajectory.reward,
        "complete": trajectory.complete,
        "incomplete_reasons": dict(trajectory.incomplete_reasons),
        "calls": len(trajectory.calls),
        "failed_calls": sum(call.failed for call in trajectory.calls),
        "turns": sum(turn.choice is not None for turn in trajectory.turns),
    }


def _print_json(value: object) -> None:
    sys.stdout.write(json.dumps(value, indent=2, ensure_ascii=False) + "\n")
