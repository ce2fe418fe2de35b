"""`art-otel show`: what is in a dataset, as a list or as one conversation.

Invariant: a conversation tells every reward: of the whole rollout in the heading, of a call or step beside its
messages, and where there is no such message at the end.
"""

import argparse
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import chain
from pathlib import Path
from textwrap import indent
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from art_otel import storage
from art_otel.calls import Message
from art_otel.cli.terminal import printable, printable_json, table_lines
from art_otel.errors import UsageError
from art_otel.trajectories import (
    Call,
    HistoryMessage,
    Reward,
    Trajectory,
    Turn,
    cure_of_gap,
    histories,
    plain_id,
    trajectory_json,
)

if TYPE_CHECKING:
    from rich.console import Console

_COLUMNS: Final = ("rollout", "name", "group", "status", "reward", "calls", "turns", "complete")
_TRAINS: Final = "● trains"
_TRAINS_AS_TEXT: Final = "● trains as text, no token ids"
_COPY: Final = "↪ context copy"
_NOT_TRAINED: Final = "○ not trained"
"""What `art-otel view` says of a turn, in the same words."""

_STYLES: Final = {"system": "magenta", "developer": "magenta", "user": "cyan", "assistant": "green", "tool": "blue"}

_ShownLine: TypeAlias = tuple[tuple[str, str], ...]
"""Texts of one line, each with its style."""

_ShownTarget: TypeAlias = str | int | None
"""What a reward is of: the span id of a call, agent or tool; the index of a step; None for the whole rollout."""

_RewardsByTarget: TypeAlias = Mapping[_ShownTarget, list[Reward]]


def add_parser(verbs: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:  # pyright: ignore[reportPrivateUsage] # argparse has no public name for it
    """Add the verb."""
    parser = verbs.add_parser(
        "show",
        help="list the trajectories of a dataset, or show one as a conversation",
        description="List the trajectories of a dataset, or show one as a conversation that marks trained parts,"
        " rewards and warnings.",
    )
    parser.add_argument("path", metavar="PATH", help="a dataset folder, a Parquet file, or a glob of them")
    parser.add_argument("--rollout", metavar="ID", help="show this rollout as a conversation")
    parser.add_argument(
        "--json",
        action="store_true",
        help="print JSON: a list of trajectories, or one whole trajectory (a list, if it has several attempts)",
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """List the dataset or show one rollout."""
    from art_otel.store import read_trajectories  # noqa: PLC0415 # as all below: what is heavy loads for who needs it

    if arguments.rollout is None:
        rows = map(_overview, read_trajectories(arguments.path, messages=False, tokens=False))
        sys.stdout.writelines(_json_lines(rows) if arguments.json else _list_lines(rows, arguments.path))
        return 0
    trajectories = read_trajectories(arguments.path)
    asked = plain_id(arguments.rollout)  # backends show some ids with dashes
    matches = [one for one in trajectories if asked in (one.rollout_id, plain_id(one.rollout_id))]
    if not matches:
        raise UsageError(f"{arguments.path}: no rollout {arguments.rollout!r}; `art-otel show PATH` lists them")
    if arguments.json:
        documents = [trajectory_json(trajectory) for trajectory in matches]
        sys.stdout.write(printable_json(documents[0] if len(documents) == 1 else documents) + "\n")
        return 0
    from rich.console import Console  # noqa: PLC0415

    for trajectory in matches:
        print_conversation(trajectory, Console(highlight=False))
    return 0


def _list_lines(rows: Iterator[dict[str, Any]], path: str) -> Iterator[str]:
    """The table of the rollouts. If there is none, a line that says so, and why if the report of the dataset knows."""
    first = next(rows, None)
    if first is not None:
        yield from table_lines(chain([_COLUMNS], map(_cells, chain([first], rows))))
        return
    from art_otel.store import read_hints  # noqa: PLC0415

    reasons = read_hints(path) if storage.is_url(path) or Path(path).is_dir() else ()
    yield printable(f"{storage.shown(path)}: no rollouts" + (f": {reasons[0]}" if reasons else "")) + "\n"


def _json_lines(rows: Iterable[dict[str, Any]]) -> Iterator[str]:
    opening = "[\n"
    for row in rows:
        yield opening + indent(printable_json(row), "  ")
        opening = ",\n"
    yield "[]\n" if opening == "[\n" else "\n]\n"


def _cells(row: dict[str, Any]) -> tuple[str, ...]:
    reasons = ", ".join(f"{reason} ({count})" for reason, count in row["incomplete_reasons"].items())
    complete = f"no: {reasons}" if reasons else "yes"
    named = ", ".join(f"{name} {value:g}" for name, value in row["rewards"].items() if value is not None)
    reward = named or "-" if row["reward"] is None else f"{row['reward']:g}"
    return (
        row["rollout_id"] if row["attempt"] is None else f"{row['rollout_id']} (attempt {row['attempt']})",
        row["name"] or "-",
        row["group_id"] or "-",
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
        "rewards": {one.name: one.value for one in trajectory.rewards if one.target is one.step is None},
        "complete": trajectory.complete,
        "incomplete_reasons": dict(trajectory.incomplete_reasons),
        "calls": len(trajectory.calls),
        "failed_calls": sum(call.failed for call in trajectory.calls),
        "turns": len(trajectory.turns),
    }


def print_conversation(trajectory: Trajectory, console: "Console") -> None:
    """Print every history of the trajectory, then what failed, then the rewards that had no place before."""
    from rich.text import Text  # noqa: PLC0415 # a list needs no styles

    for line in _conversation(trajectory):
        styled = [(printable(text), style) for text, style in line]
        console.print(Text.assemble(*styled), soft_wrap=True)


def _conversation(trajectory: Trajectory) -> Iterable[_ShownLine]:
    rewards = _by_target(trajectory)
    yield from _heading(trajectory)
    yield from (_reward(reward, "") for reward in rewards.get(None, ()))
    paths = histories(trajectory)
    shown: set[_ShownTarget] = {None}
    for number, history in enumerate(paths, start=1):
        if len(paths) > 1:
            yield _line(f"\n── history {number} of {len(paths)}", "bold")
        if history.messages is None:
            yield _line("messages unknown", "yellow")
            continue
        for entry in history.messages:
            call = None if entry.turn is None else trajectory.calls[trajectory.turns[entry.turn].call]
            yield from _message(entry, trajectory, call)
            if call is not None:
                yield from _beside(call, rewards)
                shown.update((call.span_id, call.step))
    for call in trajectory.calls:
        if call.failed:
            yield _line(f"\n✗ call {call.span_id} failed: {call.error_type or ''} {call.error or ''}".rstrip(), "red")
    yield from _elsewhere(
        {target: rewards_there for target, rewards_there in rewards.items() if target not in shown}, trajectory
    )


def _line(text: str, style: str) -> _ShownLine:
    return ((text, style),)


def _heading(trajectory: Trajectory) -> Iterable[_ShownLine]:
    reward = "unknown" if trajectory.reward is None else f"{trajectory.reward:g}"
    labels = {"name": trajectory.name, "attempt": trajectory.attempt, "group": trajectory.group_id}
    facts = [f"{label} {value}" for label, value in labels.items() if value is not None]
    about = " · ".join(["", *facts, f"status {trajectory.status}", f"reward {reward}"])
    yield ((f"rollout {trajectory.rollout_id}", "bold"), (about, ""))
    if trajectory.error is not None:
        yield _line(f"error: {trajectory.error}", "red")
    for reason, count in trajectory.incomplete_reasons.items():
        yield _line(f"! incomplete: {reason} ({count}): {cure_of_gap(reason)}", "yellow")


def _by_target(trajectory: Trajectory) -> _RewardsByTarget:
    calls = {call.span_id for call in trajectory.calls}
    by_target: dict[_ShownTarget, list[Reward]] = {}
    for reward in trajectory.rewards:
        by_target.setdefault(_target(reward, calls), []).append(reward)
    return by_target


def _target(reward: Reward, calls: Collection[str]) -> _ShownTarget:
    is_of_target = reward.step is None or reward.target_kind is not None or reward.target in calls
    return reward.target if is_of_target and reward.target is not None else reward.step


def _beside(call: Call, rewards: _RewardsByTarget) -> Iterable[_ShownLine]:
    """The rewards of a call and of its step."""
    yield from (_reward(reward, "") for reward in rewards.get(call.span_id, ()))
    if call.step is not None:
        yield from (_reward(reward, f" for step {call.step}") for reward in rewards.get(call.step, ()))


def _elsewhere(rewards: _RewardsByTarget, trajectory: Trajectory) -> Iterable[_ShownLine]:
    """The rewards of what no message stands for: of a step without a call, of agents and tools, of failed calls."""
    if rewards:
        yield _line("\n── rewards for parts without a message above", "bold")
    calls = {call.span_id for call in trajectory.calls}
    for target, rewards_there in rewards.items():
        yield from (_reward(reward, f" for {_named(target, reward, calls)}") for reward in rewards_there)


def _named(target: _ShownTarget, reward: Reward, calls: Collection[str]) -> str:
    if isinstance(target, int):
        return f"step {target}"
    kind = reward.target_kind or ("call" if target in calls else "span")
    return f"{kind} {target}" + ("" if reward.step is None else f" in step {reward.step}")


def _reward(reward: Reward, of: str) -> _ShownLine:
    value = reward.label or "unknown" if reward.value is None else f"{reward.value:g}"
    choice = "" if reward.choice is None else f" of choice {reward.choice}"
    tokens = "" if reward.token_end is None else f" for tokens {reward.token_start} to {reward.token_end}"
    return _line(f"★ {reward.name} = {value}{of}{tokens}{choice}", "bold yellow")


def _message(entry: HistoryMessage, trajectory: Trajectory, call: Call | None) -> Iterable[_ShownLine]:
    message = entry.message
    marked_untrained = None if call is None else call.marked_untrained
    mark = "" if entry.turn is None else f"  {_verdict(entry, trajectory.turns[entry.turn], marked_untrained)}"
    name = "" if message.name is None else f" ({message.name})"
    style = _STYLES.get(message.role, "")
    yield ((f"\n{message.role}{name}", f"bold {style}"), (mark, "bold green"))
    yield from (_line(f"  {line}", style) for line in _body(message))
    if entry.turn is not None and call is not None:
        turn = trajectory.turns[entry.turn]
        yield _line(f"  {_facts(call, turn.finish_reason, turn.token_ids is not None)}", "dim")
        if marked_untrained is not None:
            yield _line(f"  ! marked untrained: {marked_untrained}", "yellow")
        yield from (_line(f"  ! {warning}", "yellow") for warning in _warnings(turn, call))


def _verdict(entry: HistoryMessage, turn: Turn, marked_untrained: str | None) -> str:
    """Whether a sampled message is trained here."""
    if marked_untrained is not None or (turn.tokens_untrained is not None and turn.text_untrained is not None):
        return _NOT_TRAINED
    if not entry.trained and turn.text_untrained is None:
        return _COPY
    return _TRAINS if turn.has_tokens and turn.tokens_untrained is None else _TRAINS_AS_TEXT


def _warnings(turn: Turn, call: Call) -> Iterable[str]:
    """Why the completion is not trained, and where the prompt's token ids and messages disagree."""
    if turn.tokens_untrained is not None and turn.tokens_untrained == turn.text_untrained:
        yield f"not trained: {turn.text_untrained}"
    elif turn.tokens_untrained is not None:
        yield f"token ids not trained: {turn.tokens_untrained}"
    elif turn.text_untrained is not None:
        yield f"text not trained: {turn.text_untrained}"
    if call.drifted_at is not None:
        yield f"the prompt was tokenized differently after its first {call.drifted_at} ids"
    if call.rewritten_at is not None:
        yield f"the prompt's messages differ after the first {call.rewritten_at}"


def _body(message: Message) -> Iterable[str]:
    if message.reasoning:
        yield f"(thinking) {message.reasoning}"
    if message.content:
        yield message.content
    if message.parts:
        yield "(with images, files or several texts; --json shows them)"
    if message.refusal:
        yield f"(refusal) {message.refusal}"
    for call in message.tool_calls:
        yield f"→ {call.name}({call.arguments})" + ("" if call.exact else "  [arguments re-serialized]")


def _facts(call: Call, finish_reason: str | None, has_ids: bool) -> str:  # noqa: FBT001 # a fact, no switch
    model = call.response_model or call.request_model or "unknown model"
    facts = [model, finish_reason or "finish unknown", "token ids" if has_ids else "no token ids"]
    if call.agent is not None:
        facts.append(f"agent {call.agent}")
    if call.step is not None:
        facts.append(f"step {call.step}")
    return " · ".join(facts)
