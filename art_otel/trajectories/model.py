"""The model: the records of a trajectory.

A **trajectory** is one recorded rollout: its facts, its rewards, and its LLM calls in causal order. A **call** has a
prompt and sampled choices; each choice is one **turn**. Two trees have every message and every token id once
(`trees` has a picture): a call refers to the last node of its prompt, a turn to the node of its completion.

    call 0   prompt: system, user                        turn 0   assistant
    call 1   prompt: path of turn 0, then tool           turn 1   assistant    parent 0, token_parent 0
    call 2   prompt: path of turn 0, then user           turn 2   assistant    parent 0, token_parent 0: a branch
    call 3   prompt: path of turn 1, tokenized anew,     turn 3   assistant    parent 1, token_parent 0: drift
             then user

A prompt continues the turn with the longest message path that its messages begin with (`Turn.parent`), and the turn
with the longest token path that its ids begin with (`Turn.token_parent`). The two differ where a server tokenized the
conversation anew (call 3), and where a client sent a message back with another text, but with the same ids.

A completion has a verdict for its ids and one for its text, because a loss is computed on ids alone
(`wholeness.verdicts_on` decides both, `Turn.tokens_untrained` and `Turn.text_untrained` hold them):

    the agent runs one of two tool calls          text: content uncertain     ids, as the server gave them: trained
    the server lists 30 ids and counts 32         text: trained               ids: doubtful

Only one option of batches, `closed_streams="train"`, lifts a verdict: `stream broke`. `incomplete_reasons` counts what
a whole trajectory misses (`wholeness.find_incomplete`): batches leave such a trajectory out, unless `allow_incomplete`
names its reasons. The two are independent: a failed call is untrained in a complete trajectory, and the completions of
a rollout whose root span is missing are trained if `missing root` is allowed.

Invariant: links lead to turns of earlier calls in `Trajectory.calls`; the turns of one call are neighbors and share
its prompt; an unknown value is None, never 0 or empty.
"""

import time
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import FrozenInstanceError, dataclass, field, fields, replace
from typing import TYPE_CHECKING, Final, Generic, Literal, NamedTuple, TypeAlias

import msgspec
from msgspec.structs import replace as replace_fields
from typing_extensions import TypeVar

from art_otel.attributes import REWARD_NAME, RewardSource
from art_otel.calls import TOKEN_FACTS, CallRecord, Logprobs, Message, RoutedExperts, TokenIds, WeightVersion
from art_otel.conventions import is_cancellation
from art_otel.errors import UsageError
from art_otel.spans import Value
from art_otel.trajectories.trees import MessageNode, TokenNode, in_order, last_turn, messages_to, runs_to

if TYPE_CHECKING:
    from art_otel.trajectories.history import History

Result_co = TypeVar("Result_co", covariant=True, default=object)
"""The type that a rollout's function returns; `object` if the app does not declare it."""

Status: TypeAlias = Literal["ok", "error", "cancelled", "unfinished"]
"""How a rollout ended, by its own span. `unfinished`: this span never ended, or is not in the sources."""

TokensUntrained: TypeAlias = Literal[
    "failed", "aborted", "scrubbed", "ids doubtful", "contradicting recordings", "stream broke"
]
"""Why the token ids of a completion must not be trained.

- `failed`: its call ended in an error.
- `aborted`: the server stopped sampling before the policy did, as vLLM does for an update of the weights.
- `scrubbed`: a secret was found in what its call was asked or answered.
- `ids doubtful`: the server listed fewer or more ids than it counted.
- `contradicting recordings`: two recordings of its call contradict each other.
- `stream broke`: its stream ended without a finish reason, so the completion may be cut. This reason is last, because
  an option may lift it if the app itself closed the stream.
"""

TextUntrained: TypeAlias = Literal[
    "failed", "aborted", "stream broke", "scrubbed", "content uncertain", "contradicting recordings"
]
"""Why the text of a completion must not be trained: the reasons of `TokensUntrained` without `ids doubtful`, and

- `content uncertain`: a gap shows that its prompt or its text may not be as recorded.
"""


End: TypeAlias = Literal["context exceeded", "failed call"]
"""How sampling ended.

- `context exceeded`: the last call failed because its context was too long.
- `failed call`: the last call failed in another way, as in an outage.
"""

CONTEXT_EXCEEDED: Final[End] = "context exceeded"
FAILED_CALL: Final[End] = "failed call"


class Turn(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One sampled choice of a call: its node in each tree, and a verdict for each.

    `call` is a position in `Trajectory.calls`, `choice` a position in that call's choices, `index` the server's number
    of the choice. `message_node` or `token_node` is None if a reader left out messages or tokens. `tokens_untrained` is
    None if the token ids may be trained, `text_untrained` if the message may; otherwise each is the reason why not.
    """

    call: int
    choice: int
    index: int
    finish_reason: str | None = None
    message_node: MessageNode | None = None
    token_node: TokenNode | None = None
    tokens_untrained: TokensUntrained | None = None
    text_untrained: TextUntrained | None = None

    @property
    def message(self) -> Message | None:
        """The sampled message."""
        return None if self.message_node is None else self.message_node.message

    @property
    def token_ids(self) -> TokenIds | None:
        """The sampled ids, shape (tokens,); None if the server gave no ids."""
        return None if self.token_node is None else self.token_node.ids

    @property
    def logprobs(self) -> Logprobs | None:
        """The natural log probabilities of the sampled ids when they were sampled. Shape: (tokens,)."""
        return None if self.token_node is None else self.token_node.logprobs

    @property
    def weight_versions(self) -> tuple[WeightVersion, ...] | None:
        """The weight versions that sampled the ids, each with its range of tokens."""
        return None if self.token_node is None else self.token_node.weight_versions

    @property
    def routed_experts(self) -> RoutedExperts | None:
        """The experts that the tokens were routed to, only of tokens that no earlier turn of the path covers."""
        return None if self.token_node is None else self.token_node.routed_experts

    @property
    def sampling_mask(self) -> tuple[TokenIds, ...] | None:
        """For each sampled id, the ids that sampling could have chosen (after top-p, top-k, …)."""
        return None if self.token_node is None else self.token_node.sampling_mask

    @property
    def parent(self) -> int | None:
        """The position of the turn whose messages the prompt continues."""
        return None if self.message_node is None else last_turn(self.message_node.parent)

    @property
    def token_parent(self) -> int | None:
        """The position of the turn whose token ids the prompt continues."""
        return None if self.token_node is None else last_turn(self.token_node.parent)

    @property
    def has_tokens(self) -> bool:
        """Whether the ids of prompt and completion are known. Token histories need them; message histories do not."""
        return self.token_node is not None and self.token_node.parent is not None and self.token_node.ids is not None


class Call(CallRecord, frozen=True, kw_only=True, gc=False):
    """One LLM call of a trajectory: its recorded facts, the last nodes of its prompt in both trees, and its turns.

    - `prompt_node` is the node of the prompt's last message, `prompt_token_node` the node of its last ids. An empty
      prompt has the roots, an unknown prompt has None.
    - `choices` are its turns, None if no answer is known.
    - `drifted_at` is how many ids the prompt has in common with the token path of the turn whose messages it continues,
      if it does not begin with that whole path. `rewritten_at` is how many messages it has in common with the message
      path of the turn whose ids it continues, if it does not begin with that path. Both are None if there is no such
      difference, or if it is unknown.
    """

    prompt_node: MessageNode | None = None
    prompt_token_node: TokenNode | None = None
    choices: tuple[Turn, ...] | None = None
    drifted_at: int | None = None
    rewritten_at: int | None = None

    @property
    def input_messages(self) -> tuple[Message, ...] | None:
        """The prompt's messages as they were sent; None if they are unknown. Takes time linear in their number."""
        return None if self.prompt_node is None else messages_to(self.prompt_node)

    @property
    def prompt_token_ids(self) -> TokenIds | None:
        """The prompt's token ids; None if they are unknown. Takes time linear in their number."""
        return (
            None
            if self.prompt_token_node is None
            else TokenIds(b"".join([ids for _, ids in runs_to(self.prompt_token_node)]))
        )


class Reward(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One reward as it was given.

    `value` is None if only a label was given. `time_ns` orders corrections: the last one counts.

    - For the whole rollout: `target` and `step` are None.
    - For a step: `step` is its index, and `target` is the span id of the step (None if only the index was given).
    - For a call: `target` is the call's span id, and `step` is the step around it.
    - For an agent or tool: `target` is its span id, and `target_kind` says which. It judges no call and no step.
    - For a part of a call, also: `choice` is a position in the call's choices. `token_start` and `token_end`
      (exclusive) are positions in that completion's token ids (of choice 0 if `choice` is None).
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


def aggregate(rewards: Iterable[Reward]) -> float | None:
    """The last value among rewards of one name and target, given in time order; None if no reward has a value."""
    latest = None
    for reward in rewards:
        latest = latest if reward.value is None else reward.value
    return latest


def _of_whole(rewards: Iterable[Reward]) -> list[Reward]:
    return [one for one in rewards if one.value is not None and one.target is None and one.step is None]


def final_reward(rewards: Iterable[Reward]) -> float | None:
    """The last reward of the whole rollout that is named `reward`.

    Without such a reward: the last reward that is no evaluation, if all of these have one name. An evaluation with
    another name is not the reward, because more may be worse, as for a `hallucination` score.
    """
    whole = _of_whole(rewards)
    named = [one for one in whole if one.name == REWARD_NAME]
    given = [one for one in whole if one.source != "evaluation"]
    return aggregate(named or (given if len({one.name for one in given}) == 1 else ()))


class ToolExecution(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One run of a tool, as an `execute_tool` span recorded it.

    `arguments` and `result` are JSON values, or the recorded text. `turn` is the position of the turn that asked for
    it, and `call_id` is the id of its tool call. Both are None if unknown. Times are in nanoseconds.
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


class AddedMessage(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A message that the app added after a completion, e.g. the result of a tool that the completion called.

    `turn` is the position of the completion's turn. Later prompts may have the same message.
    """

    turn: int
    message: Message


class PolicyVersions(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The policy versions of the first and of the last call of a rollout that has a version."""

    first: str
    last: str


class GroupKey(NamedTuple):
    """The key that all members of a group share.

    The group id alone is not enough, because a task comes again in later training steps and later gathering calls:
    `gather_trajectory_groups({"task-7": …})` in a loop makes a new group in each round.
    """

    training_step: int | None
    gathering: str | None
    group_id: str

    @property
    def may_be_several(self) -> bool:
        """Whether two groups may share this key, because only the group id is known."""
        return self.training_step is None and self.gathering is None


class RewardOrigin(NamedTuple):
    """A trajectory's final reward, and when it was given: 0 as recorded, None if it follows from the rewards."""

    reward: float | None
    given_ns: int | None


RECORDED: Final = RewardOrigin(None, None)
"""That of a trajectory that is no copy of another, and has the reward that was recorded."""


_OUT_OF_PLACE: Final = (
    "calls of a trajectory cannot be left out or moved, because others continue them; choose what is learned from with"
    " models=… or agents=…, and link calls that were made by hand with art_otel.trajectories.link_calls(calls)"
)


@dataclass(frozen=True, kw_only=True, slots=True, repr=False)
class Trajectory(Generic[Result_co]):
    """One recorded rollout: its ids and settings, how it ended, its rewards, its calls and its turns.

    - `trace_id` is the trace of the rollout's own span, or of its first span if its own is missing.
    - `gathering` is the id of the `gather_trajectories` or `gather_trajectory_groups` call that ran it. `group_key` is
      the group whose members it is compared with: `group_id`, in one training step and one gathering.
    - `revision` counts, from 0, how often the trajectory was written again because late spans came.
    - `incomplete_reasons` maps each reason to a count. A trajectory is complete if there is none.
    - Times are nanoseconds since the epoch. They are None if the rollout's span is missing or never ended.
    - `reward` is the final reward, or None. If you do not give it, it is computed from `rewards` (`final_reward`), also
      in a copy with other rewards: `dataclasses.replace(trajectory, rewards=…)`. A reward that you give stays until a
      later reward named `reward` is given. `replace(trajectory, reward=None)` says that there is none.
    - `metadata` holds JSON values as they were given. `tools` has all tool definitions of all calls. `tool_calls` has
      the tools that ran.
    - `calls` are in causal order: a call comes after the call that its prompt continues. `turns` are the choices of all
      calls, in that order.
    - `added_messages` are messages that the app added after completions, with `get_history(…).append(…)`, in that
      order.

    Only `gather_trajectory` sets these fields, and files do not have them: `result` is the function's return value
    (None if it raised), `exception` the exception that it raised, and `children` the rollouts that began inside this
    rollout, without results.
    """

    rollout_id: str
    trace_id: str
    name: str | None = None
    group_id: str | None = None
    gathering: str | None = None
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
    calls: tuple[Call, ...] = ()
    turns: tuple[Turn, ...] = field(init=False, compare=False, repr=False)
    tool_calls: tuple[ToolExecution, ...] = ()
    added_messages: tuple[AddedMessage, ...] = ()
    # None where there is none; a type that says so would make every app check for it.
    result: Result_co = field(default=None, compare=False, repr=False)  # pyright: ignore[reportAssignmentType]
    exception: BaseException | None = field(default=None, compare=False, repr=False)
    children: "tuple[Trajectory, ...]" = field(default=(), compare=False, repr=False)
    _reward_origin: RewardOrigin = field(default=RECORDED, compare=False, repr=False)

    def __post_init__(self) -> None:
        """Derive the turns, and the final reward if it is not given. Raises UsageError for calls out of place."""
        turns: list[Turn] = []
        for position, call in enumerate(self.calls):
            for turn in call.choices or ():
                node = turn.message_node or turn.token_node
                if turn.call != position or (node is not None and node.turn != len(turns)):
                    raise UsageError(_OUT_OF_PLACE)
                turns.append(turn)
        object.__setattr__(self, "turns", tuple(turns))
        follows, origin = final_reward(self.rewards), self._reward_origin
        if origin is RECORDED:  # a file has the reward whether it follows or not
            given_ns = None if self.reward is None or self.reward == follows else 0
        else:  # `replace` hands on the very object that the copied trajectory has; an equal one was given
            given_ns = origin.given_ns if self.reward is origin.reward else time.time_ns()
        if given_ns is None:
            # Times 1.0: an object that nobody else has.
            object.__setattr__(self, "reward", None if follows is None else follows * 1.0)
        object.__setattr__(self, "_reward_origin", RewardOrigin(self.reward, given_ns))

    def __repr__(self) -> str:
        from art_otel.trajectories.display import describe_trajectory  # noqa: PLC0415 # views are of trajectories

        return f"<Trajectory {describe_trajectory(self)}>"

    def _repr_html_(self) -> str:
        from art_otel.trajectories.display import trajectory_html  # noqa: PLC0415 # as above

        return trajectory_html(self)

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle and copy the trees as lists, because a path may be longer than Python's stack."""
        names = [each.name for each in fields(self) if each.init and each.name not in ("calls", "reward")]
        fields_of = {name: getattr(self, name) for name in names}
        from art_otel.trajectories.pickling import flat, unpickled  # noqa: PLC0415 # makes trajectories

        return unpickled, (fields_of, *flat(self.calls))

    @property
    def complete(self) -> bool:
        """Whether nothing is known to be missing."""
        return not self.incomplete_reasons

    @property
    def end(self) -> End | None:
        """How sampling ended, if not by the agent's choice: its context was exceeded, or its last call failed."""
        return end_of(self.calls)

    @property
    def group_key(self) -> GroupKey | None:
        """The key of the group whose members the trajectory is compared with; None without a group."""
        return None if self.group_id is None else GroupKey(self.training_step, self.gathering, self.group_id)

    @property
    def histories(self) -> "tuple[History, ...]":
        """Every message path from a root to a leaf, as `art_otel.histories` returns them."""
        from art_otel.trajectories.history import histories  # noqa: PLC0415 # as above

        return histories(self)

    def get_history(self, completion_id: str, choice: int = 0) -> "History | None":
        """Return the messages up to and including a completion, and the messages that the app added after it.

        `completion_id` is the id of the response, `choice` the index of one of its choices. Returns None if the
        trajectory has no such completion, or if its messages are unknown.
        """
        from art_otel.trajectories.history import history_of  # noqa: PLC0415 # as above

        return history_of(self, completion_id, choice)

    @property
    def order(self) -> tuple[str, int, str]:
        """The sort key of datasets: rollout id, then attempt, then trace id."""
        return (self.rollout_id, self.attempt or 0, self.trace_id)


def _refuse_assignment(record: "Trajectory[object] | TrajectoryGroup", name: str, value: object) -> None:
    kind = "group" if isinstance(record, TrajectoryGroup) else "trajectory"
    is_reward = (kind, name) == ("trajectory", "reward")
    given = f"{value!r:.50}" if is_reward else "…"
    way = f"art_otel.reward({given}, target=trajectory), which batches and files see, or " if is_reward else ""
    copy = f"a copy, dataclasses.replace({kind}, {name}={given})"
    raise FrozenInstanceError(f"{kind}.{name} cannot be assigned, because it is a record; use {way}{copy}")


def with_rewards(trajectory: Trajectory, *new_rewards: Reward) -> Trajectory:
    """Add rewards to a trajectory, as if they had been recorded.

    A final reward that was given as `reward=` stays, until a later one among them is named `reward`.
    """
    rewards = tuple(dict.fromkeys(trajectory.rewards))
    for new in new_rewards:  # where its time says; those there stay in order, also one of which no time is known
        behind = max((at for at, one in enumerate(rewards, 1) if one.time_ns <= new.time_ns), default=0)
        rewards = rewards if new in rewards else (*rewards[:behind], new, *rewards[behind:])
    copy = replace(trajectory, rewards=rewards)
    given_ns = trajectory._reward_origin.given_ns  # noqa: SLF001 # pyright: ignore[reportPrivateUsage] # no part of the API
    later = {*rewards} - {*trajectory.rewards} if given_ns is not None else ()
    if any(one.name == REWARD_NAME and one.time_ns > (given_ns or 0) for one in _of_whole(later)):
        return replace(copy, reward=None, _reward_origin=RECORDED)  # it follows from the rewards again
    return copy


@dataclass(frozen=True, kw_only=True, slots=True, repr=False)
class TrajectoryGroup:
    """Trajectories of one task. Group-relative advantages compare them with each other.

    `metrics` are about the group as a whole; `art_otel.RunLog` writes them. `len(group)` counts its trajectories, and
    `for trajectory in group` iterates over them.
    """

    group_id: str
    trajectories: Sequence[Trajectory]
    metrics: Mapping[str, float] = field(default_factory=dict[str, float])

    def __len__(self) -> int:
        return len(self.trajectories)

    def __iter__(self) -> Iterator[Trajectory]:
        return iter(self.trajectories)

    def __repr__(self) -> str:
        from art_otel.trajectories.display import describe_group  # noqa: PLC0415 # views are of groups

        return f"<TrajectoryGroup {describe_group(self)}>"

    def _repr_html_(self) -> str:
        from art_otel.trajectories.display import group_html  # noqa: PLC0415 # as above

        return group_html(self)


Trajectory.__setattr__ = TrajectoryGroup.__setattr__ = _refuse_assignment  # those of `frozen` do not say what to do


def message_ends(calls: Iterable[Call]) -> Iterator[MessageNode | None]:
    """The last nodes of all message paths, in the order of the calls: first a call's prompt, then its completions."""
    for call in calls:
        yield call.prompt_node
        for turn in call.choices or ():
            yield turn.message_node


def token_ends(calls: Iterable[Call]) -> Iterator[TokenNode | None]:
    """The last nodes of all token paths, in the order of `message_ends`."""
    for call in calls:
        yield call.prompt_token_node
        for turn in call.choices or ():
            yield turn.token_node


def with_turns(trajectory: Trajectory, turns: Sequence[Turn]) -> Trajectory:
    """Replace the turns of a trajectory, e.g. by turns with other verdicts, at the same call and choice."""
    by_place = {(turn.call, turn.choice): turn for turn in turns}
    calls = [
        call
        if call.choices is None
        else replace_fields(call, choices=tuple([by_place[turn.call, turn.choice] for turn in call.choices]))
        for call in trajectory.calls
    ]
    return replace(trajectory, calls=tuple(calls))


def with_token_facts(trajectory: Trajectory, kept: AbstractSet[str]) -> Trajectory:
    """Drop the facts of tokens (`TOKEN_FACTS`) that are not named in `kept`."""
    left_out = {name: None for name in TOKEN_FACTS if name not in kept}
    if not any([getattr(turn, name) is not None for turn in trajectory.turns for name in left_out]):  # noqa: C419 # faster
        return trajectory
    renewed: dict[int, TokenNode] = {}
    for node in in_order(token_ends(trajectory.calls)):
        parent = node.parent and renewed.get(id(node.parent), node.parent)
        renewed[id(node)] = replace_fields(node, parent=parent, **left_out)
    turns = [
        replace_fields(turn, token_node=turn.token_node and renewed[id(turn.token_node)]) for turn in trajectory.turns
    ]
    calls = [
        replace_fields(
            call,
            prompt_token_node=call.prompt_token_node
            and renewed.get(id(call.prompt_token_node), call.prompt_token_node),
        )
        for call in trajectory.calls
    ]
    return with_turns(replace(trajectory, calls=tuple(calls)), turns)


# How a rollout ended.


def end_of(calls: Sequence[CallRecord]) -> End | None:
    """How the sampling of a rollout with these calls ended; None if a call completed after the last failed one.

    The two ends differ for training: the policy itself exceeds a context, but does not cause an outage. Two kinds of
    failed calls do not count: calls that are marked untrained (a judge's), and calls that lost a race:

        call a  ────────────────────┤ completes          the app takes the first answer and cancels the other call:
        call b  ──────────────────────┤ CancelledError   b does not count as failed
    """
    calls = [call for call in calls if call.marked_untrained is None]
    if not any(call.failed for call in calls):
        return None
    completed = sorted(call.end_ns for call in calls if not call.failed and call.end_ns is not None)
    failed: list[CallRecord] = []
    for call in calls:
        if call.failed and call.error_type and is_cancellation(call.error_type) and call.end_ns is not None:
            first = bisect_left(completed, call.start_ns)
            if first < len(completed) and completed[first] <= call.end_ns:
                continue  # cancelled after another call completed while it ran
        if call.failed:
            failed.append(call)
    if not failed:
        return None
    last = max(map(_end_ns, failed))
    if completed and completed[-1] > last:
        return None
    # If several calls failed at the same moment, an outage among them decides: the last word was not the policy's.
    kinds = {call.failure for call in failed if _end_ns(call) == last}
    return FAILED_CALL if None in kinds else CONTEXT_EXCEEDED


def _end_ns(call: CallRecord) -> int:
    return call.start_ns if call.end_ns is None else call.end_ns
