"""The model: what a trajectory is.

A **trajectory** is one recorded rollout: its facts, its rewards, and its LLM calls in causal order. Each completion
that a call sampled is one **turn**. What the call was asked, its **prompt**, is stored once, as what is new in it:

    call 0   prompt: system, user                    turn 0: assistant
    call 1   prompt: (turn 0's path) + tool          turn 1: assistant      parent = turn 0
    call 2   prompt: (turn 0's path) + user          turn 2: assistant      parent = turn 0, a branch

Two links say what a prompt continues. A turn's *message path* is its prompt's messages and the sampled message, its
*token path* is its prompt's ids and the sampled ids. `parent` is the turn with the longest message path that the
prompt's messages begin with, `token_parent` the turn with the longest token path that the prompt's ids begin with.
They differ where a server tokenized the conversation anew, or a client wrote a message in other words.

Whether a completion is trained is decided by `Turn.untrained` alone. Whether something is missing is said by
`Trajectory.incomplete_reasons` alone. Invariant: a prompt's links lead to turns of earlier calls; the turns of a call
stand together and share its prompt; unknown is None and never 0 or empty.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, TypeAlias

import msgspec

from art_otel.calls import InferenceCall, Logprobs, Message, TokenIds
from art_otel.spans import Value

if TYPE_CHECKING:
    from art_otel.trajectories.views.history import History

Status: TypeAlias = Literal["ok", "error", "cancelled", "unfinished"]
RewardSource: TypeAlias = Literal["attribute", "evaluation", "reward_span", "rl", "agentlightning"]

Untrained: TypeAlias = Literal["failed", "stream broke", "scrubbed", "content doubtful", "contradicting recordings"]
"""Why a completion must not be trained.

- `failed`: its call ended in an error.
- `stream broke`: the stream ended without a finish reason, so the completion may be cut.
- `scrubbed`: a secret was taken out of its text.
- `content doubtful`: the recording contradicts itself or a later prompt; the completion may say less than was sampled.
- `contradicting recordings`: two recorders of one call say different things.
"""


class Edit(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A kept message that the prompt writes in other words. `index` counts the prompt's messages from 0."""

    index: int
    message: Message


class Prompt(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What one call was asked, as what is new in it.

    `parent` and `token_parent` are positions in `Trajectory.turns` (see above), None where the prompt continues none.
    The prompt's messages are the first `kept_messages` of the message path of `parent` (else of `token_parent`), with
    `edits`, then `messages`, which are None when nobody recorded the prompt. The prompt's ids are the first
    `kept_tokens` of the token path of `token_parent`, where that has so many, else of `parent`'s known ids; then
    `context_token_ids`, which are None when the server gave no ids.
    Where messages and ids disagree, both are known: `drifted_at` is how many ids the prompt shares with the parent's
    token path before it leaves it (it was tokenized anew), `respelled_at` how many messages it shares with the token
    parent's message path before it leaves that (it was written anew). None where they agree.
    """

    parent: int | None = None
    token_parent: int | None = None
    kept_messages: int = 0
    edits: tuple[Edit, ...] = ()
    messages: tuple[Message, ...] | None = None
    kept_tokens: int = 0
    context_token_ids: TokenIds | None = None
    drifted_at: int | None = None
    respelled_at: int | None = None


class Turn(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One sampled completion.

    `call` is a position in `Trajectory.calls`, `choice` a position in that call's choices. `prompt` is the call's own,
    shared by its turns. `untrained` is None for a completion to train, else the reason why it must not be trained.
    `message`, `token_ids` and `logprobs` (one a token) are what was sampled.
    """

    call: int
    choice: int
    prompt: Prompt
    message: Message | None = None
    finish_reason: str | None = None
    token_ids: TokenIds | None = None
    logprobs: Logprobs | None = None
    untrained: Untrained | None = None

    @property
    def parent(self) -> int | None:
        """The turn whose messages the prompt continues."""
        return self.prompt.parent

    @property
    def token_parent(self) -> int | None:
        """The turn whose token ids the prompt continues."""
        return self.prompt.token_parent

    @property
    def has_tokens(self) -> bool:
        """Whether the ids of both the prompt and the completion are known."""
        return self.prompt.context_token_ids is not None and self.token_ids is not None


class Reward(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One reward as it was given.

    `value` is None when only a label was given. `target` is the span id of what it judges, `step` the index of the step
    which that span is or lies in; both are None for a reward of the whole rollout, and `target` alone for a step that
    was named by its index. `target_kind` says that the target is an agent or a tool, neither a call nor a step.
    `time_ns` orders corrections: the last one wins.
    A reward may judge a part of a call: `choice` is a position in the call's choices, `token_start` and `token_end`
    (exclusive) are positions in the completion's token ids (of choice 0 where `choice` is None).
    `comparison` names the comparison that it is of: all rewards of one comparison have the same.
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


class ToolExecution(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One run of a tool, as an `execute_tool` span recorded it.

    `arguments` and `result` are JSON values, or text as it was recorded. `turn` is the position of the turn that asked
    for it and `call_id` the id of its tool call, both None where nobody can tell. Times are in nanoseconds.
    """

    span_id: str
    name: str
    call_id: str | None = None
    arguments: Value = None
    result: Value = None
    error: str | None = None
    start_ns: int
    end_ns: int | None = None
    turn: int | None = None


class PolicyVersions(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The policy versions of a rollout's first and last call that has one."""

    first: str
    last: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Trajectory:
    """One recorded rollout: what it was, how it went, its rewards, and its calls and turns.

    `trace_id` is that of the rollout's span (of its first span where the rollout's own is missing). `revision` counts,
    from 0, how often it was emitted again because late spans came. `incomplete_reasons` maps what is missing to how
    often it is; a trajectory is complete when there is none. Times are nanoseconds since the epoch, None when the
    rollout's span is missing or never ended. `reward` is the final reward, None when nobody gave one. `metadata` holds
    JSON values as they were given, `tools` every tool definition that any call had, `tool_calls` the tools that ran.
    `calls` and `prompts` have one entry a call, in causal order: a call stands behind the call that its prompt
    continues. `result` is what the function of a gathered rollout returned; it is never stored.
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
    revision: int = 0
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
    prompts: tuple[Prompt, ...] = ()
    turns: tuple[Turn, ...] = ()
    tool_calls: tuple[ToolExecution, ...] = ()
    result: object = field(default=None, compare=False, repr=False)

    @property
    def complete(self) -> bool:
        """Whether nothing is known to be missing."""
        return not self.incomplete_reasons

    @property
    def histories(self) -> "tuple[History, ...]":
        """Every message path from a root to a leaf, as `art_otel.histories` gives them."""
        from art_otel.trajectories.views.history import histories  # noqa: PLC0415 # histories are made of trajectories

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
