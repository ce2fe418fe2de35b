"""Plain JSON: a trajectory as JSON values, for people and programs that read text.

Invariant: nothing that was recorded is left out, said twice or rounded. A call has its whole prompt, so its entry in
`prompts` has the links and counts; packed ids and logprobs become lists, bytes become base64 text.
"""

from collections.abc import Iterable, Mapping
from dataclasses import fields
from typing import Any, Final, cast

import msgspec

from art_otel.calls import InferenceCall, Logprobs, TokenIds
from art_otel.trajectories.model import Prompt, Trajectory, Turn

_LEFT_OUT: Final = frozenset({"result", "exception", "children", "prompts", "turns"})
"""What only the live object has, and what is written below in another form."""


def trajectory_json(trajectory: Trajectory) -> dict[str, Any]:
    """The whole trajectory with `complete` beside it; keys are the field names."""
    names = [field.name for field in fields(trajectory) if field.name not in _LEFT_OUT]
    plain = {name: _plain(getattr(trajectory, name)) for name in names}
    prompts = [_prompt(*pair) for pair in zip(trajectory.prompts, trajectory.calls, strict=True)]
    return {**plain, "prompts": prompts, "turns": list(map(_turn, trajectory.turns)), "complete": trajectory.complete}


def _prompt(prompt: Prompt, call: InferenceCall) -> dict[str, object]:
    """A prompt without what its call has whole."""
    repeated = (() if call.input_messages is None else ("messages", "edits")) + (
        () if call.prompt_token_ids is None else ("context_token_ids",)
    )
    return {name: _plain(getattr(prompt, name)) for name in prompt.__struct_fields__ if name not in repeated}


def _turn(turn: Turn) -> dict[str, object]:
    """A turn with the links of its prompt; the prompt itself is in `prompts`."""
    plain = {name: _plain(getattr(turn, name)) for name in turn.__struct_fields__ if name != "prompt"}
    return {**plain, "parent": turn.parent, "token_parent": turn.token_parent}


def _plain(value: object) -> object:
    if isinstance(value, TokenIds | Logprobs):
        return value.tolist()
    if isinstance(value, msgspec.Struct):
        return {name: _plain(getattr(value, name)) for name in value.__struct_fields__}
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in cast(Mapping[str, object], value).items()}
    if isinstance(value, tuple | list):
        return [_plain(item) for item in cast(Iterable[object], value)]
    return msgspec.to_builtins(value)
