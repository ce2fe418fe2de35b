"""Judging: what is made of a recording, against what its model's server got and sent.

Invariant: `RIGHT` is said only of calls that equal the truth, message by message and call by call, and are trained.
"""

import json
import re
from pathlib import Path
from typing import Final

from art_otel.calls import InferenceCall, Message, canonical_arguments
from art_otel.trajectories import Trajectory
from tests.conversions import convert_files, with_logs
from tests.dialects.expected import DOUBTED, FLAGGED, RENAMED, UNTRAINED, WITHOUT_CALLS

RIGHT: Final = "right"
DOUBTFUL: Final = "right, and flagged"
NOT_TRAINED: Final = "right, and not trained"
INCOMPLETE: Final = "flagged"
UNREAD: Final = "no LLM spans"
WRONG: Final = "WRONG"

Said = tuple[str, str | None, tuple[tuple[str, str], ...]]


def recorded(message: Message) -> Said:
    """What a message says, whatever the white space of its arguments."""
    calls = tuple((call.name, _arguments(call.arguments)) for call in message.tool_calls)
    return message.role, message.content or None, calls


def true(role: str, message: dict) -> Said:
    """The same of a message in a truth file."""
    calls = tuple((name, _arguments(arguments)) for _, name, arguments in message.get("tool_calls") or ())
    return role, message.get("content") or None, calls


def _arguments(text: str) -> str:
    """The arguments in one spelling. Programs in JavaScript write 1.0 as 1."""
    return re.sub(r"(?<=\d)\.0(?=[,}\]\s])", "", canonical_arguments(text))


def asked_and_answered(call: InferenceCall) -> tuple[list[Said] | None, Said | None]:
    """The prompt of a call and its first choice."""
    prompt = None if call.input_messages is None else [recorded(message) for message in call.input_messages]
    return prompt, recorded(call.choices[0].message) if call.choices else None


def calls_of(trajectories: list[Trajectory]) -> list[InferenceCall]:
    """All calls in the order of their starts."""
    return sorted((call for one in trajectories for call in one.calls), key=lambda call: call.start_ns)


def is_trained(trajectories: list[Trajectory]) -> bool:
    """Whether every call has a turn, and every turn is trained, by its ids and by its text."""
    calls = sum(len(one.calls) for one in trajectories)
    turns = [turn for one in trajectories for turn in one.turns]
    return len(turns) >= calls and all((turn.tokens_untrained, turn.text_untrained) == (None, None) for turn in turns)


def truth_of(path: Path) -> list[tuple[list[Said], Said]]:
    """Prompts and answers of a truth file."""
    text = path.read_text(encoding="utf-8")
    if path.name.removesuffix(".truth.json") in RENAMED:
        text = text.replace('"role": "developer"', '"role": "system"')
    return told_by(json.loads(text))


def told_by(requests: list[dict]) -> list[tuple[list[Said], Said]]:
    """Prompts and answers of a server's requests."""
    return [
        ([true(message["role"], message) for message in request["messages"]], true("assistant", request["answer"]))
        for request in requests
    ]


def verdict(folder: Path, name: str, out: Path) -> str:
    """Convert a recording and say what becomes of it."""
    trajectories, _ = convert_files(out, *with_logs(folder / f"{name}.jsonl"))
    if not trajectories:
        return UNREAD
    calls = [asked_and_answered(call) for call in calls_of(trajectories)]
    is_right = calls == truth_of(folder / f"{name}.truth.json")
    if all(trajectory.complete for trajectory in trajectories):
        return (RIGHT if is_trained(trajectories) else NOT_TRAINED) if is_right else WRONG
    return DOUBTFUL if is_right else INCOMPLETE


def expected_verdict(name: str) -> str:
    """What `expected.py` says of a recording."""
    told = {DOUBTFUL: DOUBTED, NOT_TRAINED: UNTRAINED, INCOMPLETE: FLAGGED, UNREAD: WITHOUT_CALLS}
    return next((verdict for verdict, names in told.items() if name in names), RIGHT)
