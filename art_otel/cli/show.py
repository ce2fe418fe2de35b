"""`art-otel show`: what is in a dataset, as a list or as one conversation."""

import argparse
import sys
from collections.abc import Iterable, Iterator
from itertools import chain
from textwrap import indent
from typing import Any, Final

from art_otel.cli.printable import printable_json
from art_otel.cli.table import table_lines
from art_otel.errors import UsageError
from art_otel.trajectories import Trajectory, trajectory_json

_COLUMNS: Final = ("rollout", "name", "status", "reward", "calls", "turns", "complete")


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
    from art_otel.store import read_trajectories  # noqa: PLC0415 # as all below: what is heavy loads for who needs it

    if arguments.rollout is None:
        outlines = read_trajectories(arguments.path, prompts=False, messages=False, tokens=False)
        _list(outlines, as_json=arguments.json)
        return 0
    trajectories = read_trajectories(arguments.path)
    matches = [trajectory for trajectory in trajectories if trajectory.rollout_id == arguments.rollout]
    if not matches:
        raise UsageError(f"{arguments.path}: no rollout {arguments.rollout!r}; `art-otel show PATH` lists them")
    if arguments.json:
        documents = [trajectory_json(trajectory) for trajectory in matches]
        sys.stdout.write(printable_json(documents[0] if len(documents) == 1 else documents) + "\n")
        return 0
    from rich.console import Console  # noqa: PLC0415

    from art_otel.cli.conversation import print_conversation  # noqa: PLC0415

    for trajectory in matches:
        print_conversation(trajectory, Console(highlight=False))
    return 0


def _list(trajectories: Iterable[Trajectory], *, as_json: bool) -> None:
    rows = map(_overview, trajectories)
    sys.stdout.writelines(_json_lines(rows) if as_json else table_lines(chain([_COLUMNS], map(_cells, rows))))


def _json_lines(rows: Iterable[dict[str, Any]]) -> Iterator[str]:
    opening = "[\n"
    for row in rows:
        yield opening + indent(printable_json(row), "  ")
        opening = ",\n"
    yield "[]\n" if opening == "[\n" else "\n]\n"


def _cells(row: dict[str, Any]) -> tuple[str, ...]:
    reasons = ", ".join(f"{reason} ({count})" for reason, count in row["incomplete_reasons"].items())
    complete = f"no: {reasons}" if reasons else "yes"
    reward = "-" if row["reward"] is None else f"{row['reward']:g}"
    return (
        row["rollout_id"],
        row["name"] or "-",
        row["status"],
        reward,
        str(row["calls"]),
        str(row["turns"]),
        complete,
    )


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
        "turns": len(trajectory.turns),
    }
