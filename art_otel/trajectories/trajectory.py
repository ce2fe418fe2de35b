"""Trajectory: one recorded rollout.

Invariant: its turns are a forest. A turn stores only what it adds to its parent's path, a parent stands before
its children (`parent < own index`), and each sampled choice of each call is exactly one turn; a call that sampled
nothing we know of is one turn without a message, so that its prompt is kept. Calls are in causal order.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, TypeAlias

import msgspec

from art_otel.calls import InferenceCall, Logprobs, Message, TokenIds
from art_otel.spans import Value

if TYPE_CHECKING:
    from art_otel.trajectories.history import History

Status: TypeAlias = Literal["ok", "error", "cancelled", "unfinished"]
RewardSource: TypeAlias = Literal["attribute", "evaluation", "reward_span", "rl", "agentlightning"]


class Reward(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One reward as it was given.

    `value` is None when only a label was given. `target` is the span id that it judges, `step` the index of the step
    that span is or lies in; both None for a reward of the whole rollout, and a step that was named by its index has no
    `target`. `target_kind` says that it is an agent or tool, which is neither a call nor the step. `time_ns` orders
    corrections: the last wins.
    Where it judges a part of a call only, `choice` is a position in the call's choices, as in `Turn`, and `token_start`
    and `token_end` (exclusive) are positions in its completion's token ids, of choice 0 where `choice` is None.
    `comparison` tells which comparison it is of, where two were judged beside each other: both their rewards have it.
    """

    name: str
    value: float | None
    step: int | None = None
    target: str | None = None
    source: RewardSource
    time_ns: int
    label: str | None = None
    explanation: str | None = None
    choice: int | None = None
    token_start: int | None = None
    token_end: int | None = None
    target_kind: Literal["agent", "tool"] | None = None
    comparison: str | None = None


class Edit(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A message the prompt repeated in other words than the parent's path has it. `index` counts from its start."""

    index: int
    message: Message


class Turn(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One sampled choice, stored as what it adds to its parent.

    `call` and `choice` are positions in `Trajectory.calls` and its choices (`choice` None: nothing was sampled that we
    know of, and `message` is None). `parent` is the position of the turn whose path it continues. `messages` and
    `context_token_ids` stand between the parent's path and the sampled message, None when unknown. `edits` tell where
    the prompt repeats that path in other words. `drifted_from` is the deepest turn whose messages the prompt continues
    while its token ids do not: the server tokenised that history anew, so `parent` is a shallower turn or None.
    `context_token_ids` are the whole prompt's ids where the parent's path has no ids. `untrained` says why the sampled
    message must not be trained (see `untrained.py`), None where it may be.
    """

    call: int
    choice: int | None
    parent: int | None = None
    drifted_from: int | None = None
    edits: tuple[Edit, ...] = ()
    messages: tuple[Message, ...] | None = None
    context_token_ids: TokenIds | None = None
    message: Message | None = None
    finish_reason: str | None = None
    token_ids: TokenIds | None = None
    logprobs: Logprobs | None = None
    untrained: str | None = None


class PolicyVersions(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The policy versions of a rollout's first and last call that has one."""

    first: str
    last: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Trajectory:
    """One rollout: what it was, how it went, what it was worth, and its calls and turns.

    `trace_id` is that of the rollout's span (of its first span when the rollout's own is missing). `incomplete_reasons`
    maps each reason to how often it holds; a trajectory is complete when there is none. Times are nanoseconds since the
    epoch, None when the rollout's span is missing or never ended. `reward` is the final reward, None when nobody gave
    one. `metadata` holds JSON scalars, `tools` every tool definition any call had. `result` is what the function of a
    gathered rollout returned; it lives in its process only and is never stored.
    """

    rollout_id: str
    trace_id: str
    name: str | None = None
    group_id: str | None = None
    attempt: int | None = None
    split: str | None = None
    training_step: int | None = None
    policy_version: PolicyVersions | None = None
    parent_rollout_id: str | None = None
    status: Status = "ok"
    error: str | None = None
    started_at: int | None = None
    ended_at: int | None = None
    incomplete_reasons: Mapping[str, int] = field(default_factory=dict[str, int])
    reward: float | None = None
    rewards: tuple[Reward, ...] = ()
    metrics: Mapping[str, float] = field(default_factory=dict[str, float])
    metadata: Mapping[str, Value] = field(default_factory=dict[str, Value])
    logs: tuple[str, ...] = ()
    tools: tuple[Value, ...] = ()
    calls: tuple[InferenceCall, ...] = ()
    turns: tuple[Turn, ...] = ()
    result: object = field(default=None, compare=False, repr=False)

    @property
    def complete(self) -> bool:
        """Whether nothing is known to be missing."""
        return not self.incomplete_reasons

    @property
    def histories(self) -> "tuple[History, ...]":
        """Every path from a root turn to a sampled leaf, as `art_otel.histories` gives them."""
        from art_otel.trajectories.history import histories  # noqa: PLC0415 # histories are made of trajectories

        return histories(self)

    @property
    def order(self) -> tuple[str, int, str]:
        """The sort key of datasets: rollout id, then attempt, then trace id."""
        return (self.rollout_id, self.attempt or 0, self.trace_id)


@dataclass(frozen=True, kw_only=True, slots=True)
class TrajectoryGroup:
    """Trajectories of one task, compared with each other by group-relative advantages.

    `metrics` are about the group as a whole; the run log keeps them.
    """

    group_id: str
    trajectories: Sequence[Trajectory]
    metrics: Mapping[str, float] = field(default_factory=dict[str, float])
