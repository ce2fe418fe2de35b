"""Transfer: a trajectory as bytes, from one process to another of the same version.

Invariant: reading gives back what a dataset would. As there, what several calls share stands once: of a call's prompt
only what is new, of its choices what its turns do not say, and each list of tools and each object of a step.
"""

import math
from dataclasses import replace
from typing import Final

import msgspec

from art_otel.calls import InferenceCall
from art_otel.errors import StoreError
from art_otel.spans import Value
from art_otel.store.rows import SharedTexts, list_of, make_choice, object_of
from art_otel.trajectories import Prompt, Trajectory, Turn, rebuild_prompts

_NOT_HERE: Final = Prompt()


class _Call(msgspec.Struct, frozen=True, array_like=True):
    """A call without its prompt and choices. The numbers are positions in `shared`; `choices` are the server's."""

    call: InferenceCall
    tools: int | None
    env_state: int | None
    extra: int | None
    choices: tuple[int, ...] | None


class _Parcel(msgspec.Struct, frozen=True, array_like=True):
    """A trajectory without its calls, whose turns lack their prompts."""

    trajectory: Trajectory
    calls: tuple[_Call, ...]
    shared: tuple[msgspec.Raw, ...]


_encode: Final = msgspec.json.Encoder().encode
_decode: Final = msgspec.json.Decoder(_Parcel).decode


def encode_trajectory(trajectory: Trajectory) -> bytes:
    """Encode a trajectory. Raises TypeError or ValueError for one with values that are no JSON."""
    shared: SharedTexts[Value] = SharedTexts()
    calls = tuple(_shortened(call, shared) for call in trajectory.calls)
    rest = replace(
        trajectory,
        metrics={name: value for name, value in trajectory.metrics.items() if math.isfinite(value)},
        calls=(),
        turns=tuple(msgspec.structs.replace(turn, prompt=_NOT_HERE) for turn in trajectory.turns),
    )
    texts = tuple(msgspec.Raw(text.encode()) for text in shared.texts)
    return _encode(_Parcel(trajectory=rest, calls=calls, shared=texts))


def decode_trajectory(data: bytes) -> Trajectory:
    """Read what `encode_trajectory` gave. Raises StoreError for anything else."""
    try:
        return _whole(_decode(data))
    except (ValueError, LookupError) as error:
        raise StoreError(f"a received rollout: this is no trajectory: {error}") from error


def _shortened(call: InferenceCall, shared: SharedTexts[Value]) -> _Call:
    return _Call(
        call=msgspec.structs.replace(
            call, input_messages=None, prompt_token_ids=None, choices=None, tools=None, env_state={}, extra={}
        ),
        tools=None if call.tools is None else shared.position(call.tools),
        env_state=shared.position(call.env_state) if call.env_state else None,
        extra=shared.position(call.extra) if call.extra else None,
        choices=None if call.choices is None else tuple(choice.index for choice in call.choices),
    )


def _whole(parcel: _Parcel) -> Trajectory:
    prompts = parcel.trajectory.prompts
    turns = tuple(msgspec.structs.replace(turn, prompt=prompts[turn.call]) for turn in parcel.trajectory.turns)
    choices: dict[tuple[int, int], Turn] = {(turn.call, turn.choice): turn for turn in turns}
    calls = tuple(
        msgspec.structs.replace(
            each.call,
            input_messages=asked.messages,
            prompt_token_ids=asked.token_ids,
            choices=None
            if each.choices is None
            else tuple(make_choice(index, choices[call, choice]) for choice, index in enumerate(each.choices)),
            tools=None if each.tools is None else list_of(parcel.shared[each.tools]),
            env_state={} if each.env_state is None else object_of(parcel.shared[each.env_state]),
            extra={} if each.extra is None else object_of(parcel.shared[each.extra]),
        )
        for call, (each, asked) in enumerate(zip(parcel.calls, rebuild_prompts(prompts, turns), strict=True))
    )
    return replace(parcel.trajectory, calls=calls, turns=turns)
