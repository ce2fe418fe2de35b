"""RowSource: a trajectory as the columns of its row are got from it.

Invariant: what several calls share stands once. Of a call's prompt only what is new is stored, its choices are the
row's turns, and lists of tools and the objects of steps are positions in lists of the row.
"""

import math
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from art_otel.calls import InferenceCall
from art_otel.spans import Value
from art_otel.store.rows.art import ArtMessage, art_messages, art_metadata
from art_otel.store.rows.json_text import json_text
from art_otel.store.rows.shared_texts import SharedTexts
from art_otel.trajectories import Prompt, RolloutTrace, Trajectory, Turn, rollout_traces


class CallSource(NamedTuple):
    """A call and its prompt. The numbers are positions in the row's `toolsets` and `objects`."""

    call: InferenceCall
    prompt: Prompt
    toolset: int | None
    env_state: int | None
    extra: int | None


class TurnSource(NamedTuple):
    """A turn, and the index that the server gave its choice."""

    turn: Turn
    choice_index: int


class RowSource(NamedTuple):
    """A trajectory, and what its row says in another way. `toolsets` and `objects` are JSON texts.

    `rollout_traces` is None where nobody asked for them: they repeat each call's whole prompt.
    """

    trajectory: Trajectory
    metrics: Mapping[str, float]
    metadata: Mapping[str, Value]
    nested_metadata: Mapping[str, Value]
    messages: tuple[ArtMessage, ...] | None
    calls: tuple[CallSource, ...]
    turns: tuple[TurnSource, ...]
    toolsets: tuple[str, ...]
    objects: tuple[str, ...]
    rollout_traces: tuple[RolloutTrace, ...] | None


def row_source(trajectory: Trajectory, *, with_traces: bool = False) -> RowSource:
    """The source of a trajectory's row.

    Raises ValueError, TypeError or LookupError for values that are no JSON and for turns and prompts that are not
    those of the calls.
    """
    toolsets: SharedTexts[tuple[Value, ...]] = SharedTexts(json_text)
    objects: SharedTexts[dict[str, Value]] = SharedTexts(json_text)
    calls = tuple(
        CallSource(
            call,
            prompt,
            None if call.tools is None else toolsets.position(call.tools),
            objects.position(call.env_state) if call.env_state else None,
            objects.position(call.extra) if call.extra else None,
        )
        for call, prompt in zip(trajectory.calls, trajectory.prompts, strict=True)
    )
    metadata, nested = art_metadata(trajectory.metadata)
    return RowSource(
        trajectory=trajectory,
        metrics={name: value for name, value in trajectory.metrics.items() if math.isfinite(value)},
        metadata=metadata,
        nested_metadata=nested,
        messages=art_messages(trajectory),
        calls=calls,
        turns=tuple(_turns(trajectory)),
        toolsets=toolsets.texts,
        objects=objects.texts,
        rollout_traces=rollout_traces(trajectory) if with_traces else None,
    )


def _turns(trajectory: Trajectory) -> Iterator[TurnSource]:
    for position, turn in enumerate(trajectory.turns):
        call, prompt = trajectory.calls[turn.call], trajectory.prompts[turn.call]
        if turn.prompt is not prompt and turn.prompt != prompt:
            raise ValueError(f"turn {position} has another prompt than its call {turn.call}")
        # Calls that were read without their choices have none; positions are then the best that is known.
        yield TurnSource(turn, turn.choice if call.choices is None else call.choices[turn.choice].index)
