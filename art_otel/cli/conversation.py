"""Conversation: one trajectory as a person reads it. Trained parts, rewards and warnings are marked.

Invariant: every reward is told: of the whole rollout in the heading, of a call or step beside its messages, and where
there is no such message at the end.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import TypeAlias

from rich.console import Console
from rich.text import Text

from art_otel.calls import InferenceCall, Message
from art_otel.cli.printable import printable
from art_otel.trajectories import HistoryMessage, Reward, Trajectory, Turn, explain, histories

TRAINED = "▶ trained"
_STYLES = {"system": "magenta", "developer": "magenta", "user": "cyan", "assistant": "green", "tool": "blue"}

_Target: TypeAlias = str | int | None
"""What a reward is of: the span id of a call, agent or tool; the index of a step; None for the whole rollout."""

_Rewards: TypeAlias = Mapping[_Target, list[Reward]]


def print_conversation(trajectory: Trajectory, console: Console) -> None:
    """Print every history of the trajectory, then what failed, then the rewards that had no place before."""
    for line in _lines(trajectory):
        line.plain = printable(line.plain)
        console.print(line, soft_wrap=True)


def _lines(trajectory: Trajectory) -> Iterable[Text]:
    rewards = _by_target(trajectory)
    yield from _heading(trajectory)
    yield from (_reward(reward, "") for reward in rewards.get(None, ()))
    paths = histories(trajectory)
    shown: set[_Target] = {None}
    for number, history in enumerate(paths, start=1):
        if len(paths) > 1:
            yield Text(f"\n── history {number} of {len(paths)}", "bold")
        if history.messages is None:
            yield Text("messages unknown", "yellow")
            continue
        for entry in history.messages:
            call = None if entry.turn is None else trajectory.calls[trajectory.turns[entry.turn].call]
            yield from _message(entry, trajectory, call)
            if call is not None:
                yield from _beside(call, rewards)
                shown.update((call.span_id, call.step))
    for call in trajectory.calls:
        if call.failed:
            yield Text(f"\n✗ call {call.span_id} failed: {call.error_type or ''} {call.error or ''}".rstrip(), "red")
    yield from _elsewhere(
        {target: rewards_there for target, rewards_there in rewards.items() if target not in shown}, trajectory
    )


def _heading(trajectory: Trajectory) -> Iterable[Text]:
    reward = "unknown" if trajectory.reward is None else f"{trajectory.reward:g}"
    labels = {"name": trajectory.name, "attempt": trajectory.attempt, "group": trajectory.group_id}
    facts = [f"{label} {value}" for label, value in labels.items() if value is not None]
    about = " · ".join(["", *facts, f"status {trajectory.status}", f"reward {reward}"])
    yield Text.assemble((f"rollout {trajectory.rollout_id}", "bold"), about)
    if trajectory.error is not None:
        yield Text(f"error: {trajectory.error}", "red")
    for reason, count in trajectory.incomplete_reasons.items():
        yield Text(f"! incomplete: {reason} ({count}): {explain(reason)}", "yellow")


def _by_target(trajectory: Trajectory) -> _Rewards:
    calls = {call.span_id for call in trajectory.calls}
    by_target: dict[_Target, list[Reward]] = {}
    for reward in trajectory.rewards:
        by_target.setdefault(_target(reward, calls), []).append(reward)
    return by_target


def _target(reward: Reward, calls: Collection[str]) -> _Target:
    is_of_target = reward.step is None or reward.target_kind is not None or reward.target in calls
    return reward.target if is_of_target and reward.target is not None else reward.step


def _beside(call: InferenceCall, rewards: _Rewards) -> Iterable[Text]:
    """The rewards of a call and of its step."""
    yield from (_reward(reward, "") for reward in rewards.get(call.span_id, ()))
    if call.step is not None:
        yield from (_reward(reward, f" for step {call.step}") for reward in rewards.get(call.step, ()))


def _elsewhere(rewards: _Rewards, trajectory: Trajectory) -> Iterable[Text]:
    """The rewards of what no message stands for: of a step without a call, of agents and tools, of failed calls."""
    if rewards:
        yield Text("\n── rewards of what has no message above", "bold")
    calls = {call.span_id for call in trajectory.calls}
    for target, rewards_there in rewards.items():
        yield from (_reward(reward, f" for {_named(target, reward, calls)}") for reward in rewards_there)


def _named(target: _Target, reward: Reward, calls: Collection[str]) -> str:
    if isinstance(target, int):
        return f"step {target}"
    kind = reward.target_kind or ("call" if target in calls else "span")
    return f"{kind} {target}" + ("" if reward.step is None else f" in step {reward.step}")


def _reward(reward: Reward, of: str) -> Text:
    value = reward.label or "unknown" if reward.value is None else f"{reward.value:g}"
    choice = "" if reward.choice is None else f" of choice {reward.choice}"
    tokens = "" if reward.token_end is None else f" for tokens {reward.token_start} to {reward.token_end}"
    return Text(f"★ {reward.name} = {value}{of}{tokens}{choice}", "bold yellow")


def _message(entry: HistoryMessage, trajectory: Trajectory, call: InferenceCall | None) -> Iterable[Text]:
    message = entry.message
    mark = f"  {TRAINED}" if entry.trained else ""
    name = "" if message.name is None else f" ({message.name})"
    style = _STYLES.get(message.role, "")
    yield Text.assemble("\n", (f"{message.role}{name}", f"bold {style}"), (mark, "bold green"))
    yield from (Text(f"  {line}", style) for line in _body(message))
    if entry.turn is not None and call is not None:
        turn = trajectory.turns[entry.turn]
        yield Text(f"  {_facts(call, turn.finish_reason, turn.token_ids is not None)}", "dim")
        yield from (Text(f"  ! {warning}", "yellow") for warning in _warnings(turn))


def _warnings(turn: Turn) -> Iterable[str]:
    """Why the completion is not trained, and where the prompt's token ids and messages disagree."""
    if turn.untrained is not None:
        yield f"not trained: {turn.untrained}"
    if turn.prompt.drifted_at is not None:
        yield f"the prompt was tokenized anew after its first {turn.prompt.drifted_at} ids"
    if turn.prompt.respelled_at is not None:
        yield f"the prompt has other messages after its first {turn.prompt.respelled_at}"


def _body(message: Message) -> Iterable[str]:
    if message.reasoning:
        yield f"(thinking) {message.reasoning}"
    if message.content:
        yield message.content
    if message.parts:
        yield "(has images, files or several texts; --json shows them)"
    if message.refusal:
        yield f"(refusal) {message.refusal}"
    for call in message.tool_calls:
        yield f"→ {call.name}({call.arguments})" + ("" if call.exact else "  [arguments re-serialized]")


def _facts(call: InferenceCall, finish_reason: str | None, has_ids: bool) -> str:  # noqa: FBT001 # a fact, no switch
    model = call.response_model or call.request_model or "unknown model"
    facts = [model, finish_reason or "finish unknown", "token ids" if has_ids else "no token ids"]
    if call.agent is not None:
        facts.append(f"agent {call.agent}")
    if call.step is not None:
        facts.append(f"step {call.step}")
    return " · ".join(facts)
