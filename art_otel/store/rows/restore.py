"""Restoring: the columns of a row to the trajectory that was written.

Invariant: `restore_trajectory` gives back an equal trajectory, but for metrics that are NaN or infinite: JSON has no
such numbers, and ART's reader refuses a file whose metrics hold null. What no trajectory has is refused.
"""

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias, get_args

from art_otel.calls import Choice, InferenceCall
from art_otel.store.rows.json_text import list_of, object_of
from art_otel.trajectories import Prompt, RebuiltPrompt, Status, Trajectory, Turn, rebuild_prompts

Fields: TypeAlias = dict[str, Any]
"""The values of a row, a call or a turn, by the names of their columns."""


def restore_trajectory(row: Fields, *, prompts: bool = True, choices: bool = True) -> Trajectory:
    """The trajectory of a row. Without `prompts` its calls lack their whole prompts, without `choices` their choices.

    Raises ValueError, TypeError or LookupError for a row that no trajectory has.
    """
    _check(row)
    unchanged = {name: value for name, value in row.items() if name not in _RESTORED}
    asked = tuple(call["prompt"] for call in row["calls"])
    turns = tuple(_turn(turn, asked[turn["call"]]) for turn in row["turns"])
    return Trajectory(
        **unchanged,
        incomplete_reasons=dict(row["incomplete_reasons"]),
        metrics={name: value for name, value in row["metrics"].items() if value is not None},
        metadata=row["metadata"] | row["nested_metadata"],
        calls=_calls(
            row,
            rebuild_prompts(asked, turns) if prompts else (RebuiltPrompt(),) * len(asked),
            _choices(row["turns"]) if choices else {},
        ),
        prompts=asked,
        turns=turns,
    )


_RESTORED = frozenset(
    (
        "complete",
        "incomplete_reasons",
        "metrics",
        "metadata",
        "nested_metadata",
        "toolsets",
        "objects",
        "calls",
        "turns",
    )
)
"""Columns from which fields of another form are restored."""


def _check(row: Fields) -> None:
    if row["rollout_id"] is None or row["trace_id"] is None:
        raise ValueError("rollout_id or trace_id is missing")
    if row["revision"] is None:
        raise ValueError("revision is missing")
    if row["status"] not in get_args(Status):
        raise ValueError(f"{row['status']!r} is no status")
    for position, call in enumerate(row["calls"]):
        if call["prompt"] is None:
            raise ValueError(f"call {position} has no prompt")
    for position, turn in enumerate(row["turns"]):
        if not 0 <= turn["call"] < len(row["calls"]):
            raise ValueError(f"turn {position} is of call {turn['call']}, of {len(row['calls'])} calls")


def _turn(fields: Fields, prompt: Prompt) -> Turn:
    """A turn with the prompt of its call."""
    return Turn(
        call=fields["call"],
        choice=fields["choice"],
        prompt=prompt,
        message=fields["message"],
        finish_reason=fields["finish_reason"],
        token_ids=fields["token_ids"],
        logprobs=fields["logprobs"],
        untrained=fields["untrained"],
    )


def _choices(turns: Sequence[Fields]) -> dict[int, list[Choice]]:
    """The choices of each call that has any, in their order. Raises ValueError for a turn that is out of place."""
    choices: dict[int, list[Choice]] = {}
    for position, turn in enumerate(turns):
        if turn["message"] is None:  # it was read without messages and written again
            continue
        of_call = choices.setdefault(turn["call"], [])
        if turn["choice"] != len(of_call) or turn["choice_index"] is None:
            raise ValueError(f"turn {position} is not choice {len(of_call)} of call {turn['call']}")
        of_call.append(
            Choice(
                index=turn["choice_index"],
                message=turn["message"],
                finish_reason=turn["finish_reason"],
                token_ids=turn["token_ids"],
                logprobs=turn["logprobs"],
            )
        )
    return choices


def _calls(
    row: Fields, prompts: Sequence[RebuiltPrompt], choices: Mapping[int, Sequence[Choice]]
) -> tuple[InferenceCall, ...]:
    return tuple(
        _call(fields, row["toolsets"], row["objects"], prompt, choices.get(position))
        for position, (fields, prompt) in enumerate(zip(row["calls"], prompts, strict=True))
    )


def _call(
    fields: Fields,
    toolsets: Sequence[str],
    objects: Sequence[str],
    prompt: RebuiltPrompt,
    choices: Sequence[Choice] | None,
) -> InferenceCall:
    """A call with its whole prompt and its choices, and with values of its own of what it shares with others."""
    del fields["prompt"]
    toolset: int | None = fields.pop("toolset")
    env_state: int | None = fields.pop("env_state")
    extra: int | None = fields.pop("extra")
    return InferenceCall(
        **fields,
        tools=None if toolset is None else list_of(toolsets[toolset]),
        input_messages=prompt.messages,
        prompt_token_ids=prompt.token_ids,
        choices=None if choices is None else tuple(choices),
        env_state={} if env_state is None else object_of(objects[env_state]),
        extra={} if extra is None else object_of(objects[extra]),
    )
