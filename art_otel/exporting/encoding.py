"""Encoding: functions that several formats use to make records of trajectories and conversations.

Invariant: each completion is in exactly one record, or is counted with a reason. A policy version that is no whole
number, or too large for the format, becomes None and never another version.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Annotated, Any, Final, Literal, TypeAlias, TypeGuard, TypeVar, cast

from msgspec import Meta

from art_otel.data.decisions import SequenceOptions, decide_again, most_common_reason
from art_otel.data.rewards import weights_of
from art_otel.data.sequences import TokenSequence, build_sequences
from art_otel.data.token_facts import TokenFact, token_facts_of
from art_otel.exporting.exporter import ExportStats, ScoredTrajectory
from art_otel.spans import Value
from art_otel.trajectories import ChatMessage

# Options that the formats of several trainers have.

LaterMessages: TypeAlias = Annotated[
    Literal["keep", "truncate", "drop"],
    Meta(
        description="what to do with the messages that follow the first answer of a side: keep them, truncate them, "
        "or drop the pair"
    ),
]
RewardAt: TypeAlias = Annotated[
    Literal["end", "completions"],
    Meta(
        description="end: the reward of a history is at its end. completions: each completion has its own reward, at "
        "its last token (for rewards of steps or calls)"
    ),
]
DefaultSplit: TypeAlias = Annotated[str, Meta(description="the split of trajectories that have none")]

REFUSAL: Final = "refusals given as content"
MORE_THAN_TEXT: Final = "content that is more than text"
NO_ASSISTANT: Final = "a sampled message is not from the assistant"
NO_PROMPT: Final = "no prompt"
SAME: Final = "both answers are equal"
NO_LOGPROBS: Final = "completions without logprobs, or sampled under a grammar"
CUT: Final = "messages after the first answer, cut"

_ItemT = TypeVar("_ItemT")
_RecordT = TypeVar("_RecordT")


class FormatError(Exception):
    """The format cannot express an item. The message is the reason, one of a few."""


def encode_each(
    items: Iterable[_ItemT], encode: Callable[[_ItemT], _RecordT], stats: ExportStats
) -> Iterator[_RecordT]:
    """Encode each item, or count its FormatError."""
    for item in items:
        try:
            yield encode(item)
        except FormatError as error:
            stats.skipped[str(error)] += 1


def text_message(message: Mapping[str, Any], stats: ExportStats) -> ChatMessage:
    """The message for a chat template: content is text, a refusal is content. Raises FormatError."""
    plain = {name: value for name, value in message.items() if name != "refusal"}
    if not isinstance(plain["content"], str | None):
        raise FormatError(MORE_THAN_TEXT)
    if not plain["content"] and "refusal" in message:
        stats.changed[REFUSAL] += 1
        plain["content"] = message["refusal"]
    plain["content"] = plain["content"] or ""
    return plain


def answers(side: Sequence[ChatMessage], later_messages: LaterMessages, stats: ExportStats) -> Sequence[ChatMessage]:
    """The compared messages of one side of a pair; the first is the assistant's. Raises FormatError."""
    if len(side) > 1 and later_messages == "drop":
        raise FormatError("more than one message a side")
    if len(side) > 1 and later_messages == "truncate":
        stats.changed[CUT] += 1
        side = side[:1]
    if side[0]["role"] != "assistant":
        raise FormatError(NO_ASSISTANT)
    return side


def is_function(tool: object) -> TypeGuard[dict[str, Value]]:
    """Whether a tool is a function with a name, as OpenAI defines one."""
    if not isinstance(tool, dict):
        return False
    definition = cast(dict[str, Any], tool)
    function: object = definition.get("function")
    if definition.get("type") != "function" or not isinstance(function, dict):
        return False
    return isinstance(cast(dict[str, Any], function).get("name"), str)


UNREWARDED_SPANS: Final = "trajectories without a reward of the name token_rewards for any span of tokens"


def sequences_of(
    item: ScoredTrajectory,
    stats: ExportStats,
    *,
    max_tokens: int | None = None,
    token_rewards: str | Mapping[str, float] | None = None,
    token_facts: Iterable[TokenFact] = (),
) -> list[TokenSequence]:
    """Build the token sequences of a trajectory from the decisions on its turns, and count what is skipped.

    `max_tokens`, `token_rewards` and `token_facts` are as for `art_otel.batches`; longer sequences are skipped.
    Advantages are None if no turn has one. Raises UsageError for weights that are not finite.
    """
    turns = item.turn_rewards
    options = SequenceOptions(
        advantages=any(turn.advantage is not None for turn in turns),
        max_tokens=max_tokens,
        weights=weights_of(token_rewards),
        token_facts=token_facts_of(token_facts),
    )
    if max_tokens is not None or options.weights is not None:  # options of the format, which nobody decided by yet
        decisions = decide_again(item.trajectory, turns, options)
        ((turns, _),) = decisions.each()
        given = sum(int(counts.sum()) for counts in decisions.token_rewards.values())
        stats.changed[UNREWARDED_SPANS] += options.weights is not None and not given
    sequences = build_sequences(item.trajectory, turns, options)
    stats.skipped.update(turn.skipped for turn in turns if turn.skipped is not None)
    if not sequences:
        stats.trajectories_skipped[most_common_reason([turn.skipped for turn in turns])] += 1
    return sequences


def scored(sequence: TokenSequence, stats: ExportStats) -> TokenSequence | None:
    """The sequence without completions that lack a logprob, which are counted; None if no completion is left."""
    found = sequence.scored()
    if found is not sequence:
        stats.skipped[NO_LOGPROBS] += len(sequence.completions) - (0 if found is None else len(found.completions))
    return found


_INT64: Final = 2**63 - 1


def policy_number(version: str | None, *, largest: int = _INT64) -> int | None:
    """The version as a number from 0 to `largest`; None if it is unknown or no such number."""
    if version is None or not (version.isascii() and version.isdecimal()) or len(version) > len(str(largest)):
        return None
    return int(version) if int(version) <= largest else None
