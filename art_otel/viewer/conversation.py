"""Conversation: the message histories of a trajectory, and what became of each message.

Invariant: over all histories every completion that would be trained has the state `trained` once; its other places are
`copy` and say where it is trained. What a verdict leaves out is `untrained`, with the verdict. Texts are verbatim.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, cast

import msgspec

from art_otel.calls import Message, ToolCall
from art_otel.trajectories import HistoryMessage, Reward, ToolExecution, Trajectory, histories

_KINDS: Final = {"text": "text", "input_text": "text", "output_text": "text", "refusal": "refusal"}
_MEDIA: Final = frozenset({"image", "image_url", "input_image", "audio", "input_audio", "file", "input_file", "video"})
_LONGEST: Final = 2_000
"""Characters of a part that is no text, as the base64 of an image; `Raw` has all of it."""


def conversations(trajectory: Trajectory, verdicts: Sequence[str | None]) -> list[dict[str, Any]]:
    """The histories, each with its messages, or with why they are unknown.

    `verdicts` has, for each turn, why it would not be trained; None where it would.
    """
    of_trajectory = histories(trajectory)
    trained_in: dict[int, int] = {}
    for index, history in enumerate(of_trajectory):
        for entry in history:
            if entry.turn is not None and verdicts[entry.turn] is None:
                trained_in.setdefault(entry.turn, index)  # the ids of the server may be trained where a text may not
    executions = {(one.turn, one.call_id): one for one in trajectory.tool_calls}
    return [
        {
            "index": index,
            "turns": list(history.turns),
            "unknown": None if history.messages is not None else "nobody recorded all messages of this history",
            "messages": [
                _message(trajectory, entry, index, trained_in, verdicts)
                | {
                    "execution": _show_execution(_execution(executions, entry, history.turns), entry.message),
                    "added": _is_added(history.messages or (), position),
                }
                for position, entry in enumerate(history)
            ],
        }
        for index, history in enumerate(of_trajectory)
    ]


def _message(
    trajectory: Trajectory,
    entry: HistoryMessage,
    history: int,
    trained_in: Mapping[int, int],
    verdicts: Sequence[str | None],
) -> dict[str, Any]:
    why = None if entry.turn is None else verdicts[entry.turn]
    trained_history = None if entry.turn is None else trained_in.get(entry.turn)
    is_copy = trained_history is not None and trained_history != history
    sampled = "untrained" if why is not None else "copy" if is_copy else "trained"
    return {
        "role": entry.role,
        "name": entry.message.name,
        "parts": list(message_parts(entry.message)),
        "turn": entry.turn,
        "completionId": entry.completion_id,
        "state": "context" if entry.turn is None else sampled,
        "why": why,
        "trainedIn": {"history": trained_history, "turn": entry.turn} if is_copy else None,
        "rewards": _rewards_of(trajectory, entry.turn),
    }


def message_parts(message: Message) -> Iterator[dict[str, Any]]:
    """What a message is made of: reasoning, texts and media, a refusal, tool calls."""
    if message.reasoning is not None:
        yield _part("reasoning", message.reasoning)
    if message.parts is not None:
        yield from map(_recorded_part, _decoded(message.parts))
    elif message.content is not None:
        yield _part("tool_result" if message.role == "tool" else "text", message.content, message.tool_call_id)
    if message.refusal is not None:
        yield _part("refusal", message.refusal)
    for call in message.tool_calls:
        yield _tool_call(call)


def message_text(message: Message) -> str:
    """All that a message says, as one text."""
    return "\n".join(
        f"{part['name']}({part['arguments']})" if part["kind"] == "tool_call" else part["text"] or ""
        for part in message_parts(message)
    )


def _show_execution(execution: ToolExecution | None, message: Message) -> dict[str, Any] | None:
    """What ran, and what came of it where the message says something else."""
    if execution is None:
        return None
    ended, result = execution.end_ns, _as_text(execution.result)
    return {
        "name": execution.name,
        "result": None if result == message.content else result,
        "error": execution.error,
        "durationMs": None if ended is None else (ended - execution.start_ns) / 1e6,
    }


def _as_text(value: object) -> str | None:
    """A JSON value as a person reads it; a text as it is."""
    if value is None or isinstance(value, str):
        return value
    return msgspec.json.format(msgspec.json.encode(value), indent=2).decode()


def _part(kind: str, text: str | None, call_id: str | None = None) -> dict[str, Any]:
    return {"kind": kind, "text": text, "name": None, "callId": call_id, "arguments": None}


def _tool_call(call: ToolCall) -> dict[str, Any]:
    return {"kind": "tool_call", "text": None, "name": call.name, "callId": call.id, "arguments": call.arguments}


def _recorded_part(part: object) -> dict[str, Any]:
    """A part of a content list; media are described by their JSON, and never fetched."""
    fields = cast(dict[str, object], part) if isinstance(part, dict) else {}
    kind = str(fields.get("type", ""))
    text = fields.get("text") if kind != "refusal" else fields.get("refusal")
    if kind in _KINDS and isinstance(text, str):
        return _part(_KINDS[kind], text)
    shown = _as_text(cast(object, part)) or ""
    rest = len(shown) - _LONGEST
    cut = shown if rest <= 0 else f"{shown[:_LONGEST]}… {rest:,} more characters"
    return _part("media" if kind in _MEDIA else "other", cut)


def _decoded(parts: str) -> list[object]:
    try:
        decoded: object = msgspec.json.decode(parts)
    except (msgspec.DecodeError, RecursionError):
        return [parts]
    return cast(list[object], decoded) if isinstance(decoded, list) else [decoded]


def _execution(
    executions: Mapping[tuple[int | None, str | None], ToolExecution], entry: HistoryMessage, turns: Sequence[int]
) -> ToolExecution | None:
    """The execution whose result the message is, of a turn of this history."""
    call_id = entry.tool_call_id
    if call_id is None:
        return None
    asked = (executions.get((turn, call_id)) for turn in (*reversed(turns), None))
    return next((one for one in asked if one is not None), None)


def _is_added(messages: Sequence[HistoryMessage], position: int) -> bool:
    """Whether the app put the message behind the last completion."""
    return all(entry.turn is None for entry in messages[position:])


def _rewards_of(trajectory: Trajectory, turn: int | None) -> list[int]:
    """The positions of the rewards that judge a completion, a part of it, or its call."""
    if turn is None:
        return []
    sampled = trajectory.turns[turn]
    span_id = trajectory.calls[sampled.call].span_id
    return [
        position
        for position, reward in enumerate(trajectory.rewards)
        if reward.target == span_id and _judges(reward, sampled.choice)
    ]


def _judges(reward: Reward, choice: int) -> bool:
    """Whether a reward of the call judges this choice of it; one of tokens without a choice judges the first."""
    of = 0 if reward.choice is None and reward.token_start is not None else reward.choice
    return of is None or of == choice
