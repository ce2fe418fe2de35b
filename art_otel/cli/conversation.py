"""Conversation: one trajectory as a person reads it. Trained parts, rewards and warnings are marked."""

from collections.abc import Iterable

from rich.console import Console
from rich.text import Text

from art_otel.calls import InferenceCall, Message
from art_otel.cli.printable import printable
from art_otel.trajectories import History, HistoryMessage, Reward, Trajectory, explain, histories

TRAINED = "▶ trained"
_STYLES = {"system": "magenta", "developer": "magenta", "user": "cyan", "assistant": "green", "tool": "blue"}


def print_conversation(trajectory: Trajectory, console: Console) -> None:
    """Print every history of the trajectory, then what failed."""
    for line in _lines(trajectory):
        line.plain = printable(line.plain)
        console.print(line, soft_wrap=True)


def _lines(trajectory: Trajectory) -> Iterable[Text]:
    yield from _heading(trajectory)
    found = histories(trajectory)
    for number, history in enumerate(found, start=1):
        if len(found) > 1:
            yield Text(f"\n── history {number} of {len(found)}{_drift(history, trajectory)}", "bold")
        if history.messages is None:
            yield Text("messages unknown: content capture was off", "yellow")
            continue
        for entry in history.messages:
            yield from _message(entry, trajectory)
    for call in trajectory.calls:
        if call.failed:
            yield Text(f"\n✗ call {call.span_id} failed: {call.error_type or ''} {call.error or ''}".rstrip(), "red")


def _drift(history: History, trajectory: Trajectory) -> str:
    """Why a history begins where it does, when the server's token ids and not the messages decided it."""
    drifted = any(trajectory.turns[turn].drifted_from is not None for turn in history.turns)
    return ": earlier messages came back as other token ids" if drifted else ""


def _heading(trajectory: Trajectory) -> Iterable[Text]:
    reward = "unknown" if trajectory.reward is None else f"{trajectory.reward:g}"
    known = {"name": trajectory.name, "attempt": trajectory.attempt, "group": trajectory.group_id}
    facts = [f"{label} {value}" for label, value in known.items() if value is not None]
    about = " · ".join(["", *facts, f"status {trajectory.status}", f"reward {reward}"])
    yield Text.assemble((f"rollout {trajectory.rollout_id}", "bold"), about)
    if trajectory.error is not None:
        yield Text(f"error: {trajectory.error}", "red")
    for reason, count in trajectory.incomplete_reasons.items():
        yield Text(f"! incomplete: {reason} ({count}): {explain(reason)}", "yellow")
    whole = [reward for reward in trajectory.rewards if reward.target is None and reward.step is None]
    yield from (_reward(reward) for reward in whole)


def _reward(reward: Reward) -> Text:
    value = reward.label or "unknown" if reward.value is None else f"{reward.value:g}"
    step = "" if reward.step is None else f" for step {reward.step}"
    choice = "" if reward.choice is None else f" of choice {reward.choice}"
    tokens = "" if reward.token_end is None else f" for tokens {reward.token_start} to {reward.token_end}"
    return Text(f"★ {reward.name} = {value}{step}{tokens}{choice}", "bold yellow")


def _message(entry: HistoryMessage, trajectory: Trajectory) -> Iterable[Text]:
    message = entry.message
    mark = f"  {TRAINED}" if entry.trained else ""
    name = "" if message.name is None else f" ({message.name})"
    style = _STYLES.get(message.role, "")
    yield Text.assemble("\n", (f"{message.role}{name}", f"bold {style}"), (mark, "bold green"))
    yield from (Text(f"  {line}", style) for line in _body(message))
    if entry.turn is None:
        return
    turn = trajectory.turns[entry.turn]
    call = trajectory.calls[turn.call]
    yield Text(f"  {_facts(call, turn.finish_reason, turn.token_ids is not None)}", "dim")
    yield from (_reward(reward) for reward in trajectory.rewards if _is_for(reward, call))


def _is_for(reward: Reward, call: InferenceCall) -> bool:
    return reward.target == call.span_id or (reward.step is not None and reward.step == call.step)


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
        yield f"→ {call.name}({call.arguments})" + ("" if call.exact else "  [arguments re-serialised]")


def _facts(call: InferenceCall, finish_reason: str | None, has_ids: bool) -> str:  # noqa: FBT001 # a fact, no switch
    model = call.response_model or call.request_model or "unknown model"
    facts = [model, finish_reason or "finish unknown", "token ids" if has_ids else "no token ids"]
    if call.agent is not None:
        facts.append(f"agent {call.agent}")
    if call.step is not None:
        facts.append(f"step {call.step}")
    return " · ".join(facts)
