"""Calls written by hand, with the token ids that their server gave."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from msgspec import structs

from art_otel.calls import Choice, InferenceCall, Logprobs, Message, TokenIds
from art_otel.trajectories import Trajectory, Turn, with_turns
from art_otel.trajectories.lineage import build_lineage, recorded_call


def choice(content: str | None, ids: list[int] | None, *, index: int = 0, logprobs: bool = True) -> Choice:
    """A completion whose logprobs are its ids, negated."""
    return Choice(
        index=index,
        message=Message(role="assistant", content=content),
        token_ids=None if ids is None else TokenIds.of(ids),
        logprobs=Logprobs.of([-token for token in ids]) if ids is not None and logprobs else None,
    )


def asked(number: int, messages, prompt: Iterable[int] | None, choices, **fields) -> InferenceCall:
    return InferenceCall(
        trace_id="ab" * 16,
        span_id=f"{number:016x}",
        operation_name="chat",
        start_ns=number,
        end_ns=number + 1,
        input_messages=tuple(messages),
        prompt_token_ids=None if prompt is None else TokenIds.of(prompt),
        choices=tuple(choices) or None,
        **fields,
    )


def call(number: int, prompt: str, ids: list[int] | None, *choices: Choice, **fields) -> InferenceCall:
    """A call; each word of `prompt` is a message, user and assistant in turn."""
    roles = ("user", "assistant")
    messages = [Message(role=roles[at % 2], content=word) for at, word in enumerate(prompt.split(" "))]
    return asked(number, messages, ids, choices, **fields)


def trajectory_of(calls) -> Trajectory:
    """The trajectory of calls in the order of their start."""
    return Trajectory(rollout_id="r", trace_id="ab" * 16, calls=build_lineage(calls).calls)


def lineage_of(calls: Iterable[InferenceCall]) -> dict[str, object]:
    """The fields of a trajectory that its calls decide."""
    return {"calls": build_lineage(calls).calls}


def with_sampled(trajectory: Trajectory, changes: Callable[[Turn], dict[str, Any]]) -> Trajectory:
    """The trajectory whose turns sampled something else, or have other verdicts: `changes` has the fields of a turn."""
    calls, verdicts = [], {}
    for one in trajectory.calls:
        recorded, choices = recorded_call(one), []
        for turn, choice in zip(one.choices or (), recorded.choices or (), strict=True):
            fields = changes(turn)
            sampled = {name: value for name, value in fields.items() if name in Choice.__struct_fields__}
            choices.append(structs.replace(choice, **sampled))
            kept = {name: getattr(turn, name) for name in ("tokens_untrained", "text_untrained")}
            verdicts[turn.call, turn.choice] = kept | {name: fields[name] for name in kept if name in fields}
        calls.append(structs.replace(recorded, choices=tuple(choices) or None))
    changed = replace(trajectory, calls=build_lineage(calls).calls)
    return with_turns(changed, [structs.replace(turn, **verdicts[turn.call, turn.choice]) for turn in changed.turns])
