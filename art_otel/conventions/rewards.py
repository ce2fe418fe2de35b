"""Rewards: read the rewards that spans and log records have for a rollout, step or call.

These forms are read: the event `gen_ai.evaluation.result` (GenAI), `art.reward` (ours), `rl.reward.score`
(https://github.com/open-telemetry/semantic-conventions-genai/issues/88), and Agent Lightning's annotation spans.

Invariant: a reward's value is a finite float as it was given, or None if only a label was given. A reward without both
becomes a BadReward, which is counted and never trained.
"""

from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from art_otel import attributes as names
from art_otel.attributes import REWARD_NAME, RewardSource
from art_otel.conventions import values
from art_otel.conventions.attributes import AttributeReader, unflatten
from art_otel.conventions.dialects.genai import RESPONSE_ID, event_name
from art_otel.conventions.roles import role_of
from art_otel.spans import Attributes, LogRecord, Span, Value

SPAN_NAME: Final = "span "
"""The prefix of a span id that a reward names in place of a response id."""

EVALUATION: Final = "gen_ai.evaluation.result"

_EVALUATION_NAME: Final = "gen_ai.evaluation.name"
_SCORE: Final = "gen_ai.evaluation.score.value"
_LABEL: Final = "gen_ai.evaluation.score.label"
_EXPLANATION: Final = "gen_ai.evaluation.explanation"
_PART: Final = (names.REWARD_CHOICE, names.REWARD_TOKEN_START, names.REWARD_TOKEN_END)
_RL_SCORE: Final = "rl.reward.score"
_HAVING_RESPONSES: Final = ("agent", "embeddings", "retrieval")
_AGENTLIGHTNING_SPANS: Final = frozenset({"agentlightning.annotation", "agentlightning.reward"})
_AGENTOPS_OUTPUTS: Final = ("agentops.task.output", "agentops.entity.output")
_GIVING: Final = frozenset({_SCORE, _LABEL, names.REWARD, _RL_SCORE, names.ROLLOUT_FACTS, *_AGENTOPS_OUTPUTS})
"""Attributes that carry a reward. A span without any of them can only have one in events, or be Agent Lightning's."""

_GIVING_TO_OTHERS: Final = _GIVING - {names.REWARD, _RL_SCORE}
"""Attributes whose reward may name a response. The other two reward their own span, unless it is a reward span."""

_BEHIND_EVENTS: Final = 1 << 20
"""The position of the first reward in attributes: fixed, so that lost events do not change it."""


class RecordedReward(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A reward as it was recorded. `response_id` is the response that it judges, if it names one.

    `choice`, `token_start` and `token_end` are the judged part of a call. `facts` are attributes of the rollout that
    were given with the reward, as JSON; a record without value and label has only facts. `position` identifies and
    orders the rewards of one span: events, then attributes, then log records. Rewards with an `order` come after all
    without one, sorted by it.
    """

    name: str
    value: float | None
    time_ns: int
    source: RewardSource
    label: str | None = None
    explanation: str | None = None
    response_id: str | None = None
    choice: int | None = None
    token_start: int | None = None
    token_end: int | None = None
    position: int = 0
    order: str = ""
    facts: str | None = None


class BadReward(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A reward without a number and a label, or for a part of a call that cannot exist."""

    name: str
    detail: str


def rewards_of(span: Span) -> list[RecordedReward | BadReward]:
    """Read the rewards of a span: from events, our attribute, `rl.reward.score`, Agent Lightning's (primary first)."""
    has_others = span.name in _AGENTLIGHTNING_SPANS or not span.attributes.keys().isdisjoint(_GIVING)
    if not span.events and not has_others:
        return []
    events = [_evaluation(event.attributes, event.time_ns) for event in span.events if event.name == EVALUATION]
    others = _of_attributes(span) if has_others else []
    positioned = [*enumerate(events), *enumerate(others, _BEHIND_EVENTS)]
    if not span.name.startswith(names.REWARD_SPAN_PREFIX):
        return [_with(reward, position=position) for position, reward in positioned]
    order = AttributeReader(span.attributes).text(names.REWARD_ORDER) or ""
    source = "evaluation" if span.attributes.get(names.REWARD_EVALUATION) is True else "reward_span"
    facts = AttributeReader(span.attributes).text(names.ROLLOUT_FACTS)
    judged = AttributeReader(span.attributes).text(names.REWARD_SPAN_ID)
    named = {} if judged is None else {"response_id": f"{SPAN_NAME}{judged}"}
    if facts is not None and not positioned:
        positioned = [(0, RecordedReward(name="", value=None, time_ns=span.start_ns, source=source))]
    return [
        _with(reward, position=position, order=order, source=source, facts=facts, **named)
        for position, reward in positioned
    ]


def may_give_to_others(span: Span) -> bool:
    """Whether a reward on the span may be for another target than the span, apart from its links."""
    if span.events or span.name in _AGENTLIGHTNING_SPANS or span.name.startswith(names.REWARD_SPAN_PREFIX):
        return True
    return not span.attributes.keys().isdisjoint(_GIVING_TO_OTHERS)


def _with(reward: RecordedReward | BadReward, **fields: object) -> RecordedReward | BadReward:
    return reward if isinstance(reward, BadReward) else msgspec.structs.replace(reward, **fields)


def _of_attributes(span: Span) -> list[RecordedReward | BadReward]:
    """Read the rewards in a span's own attributes. A reward span may also name a response."""
    time_ns = span.start_ns if span.end_ns is None else span.end_ns
    on_reward_span = span.name.startswith(names.REWARD_SPAN_PREFIX)
    reader = AttributeReader(span.attributes)
    response_id = reader.text(RESPONSE_ID) if on_reward_span else None
    rewards: list[RecordedReward | BadReward] = []
    if _SCORE in span.attributes or (on_reward_span and _LABEL in span.attributes):
        rewards.append(_with(_evaluation(span.attributes, time_ns), source="evaluation"))
    if names.REWARD in span.attributes:
        name = span.name.removeprefix(names.REWARD_SPAN_PREFIX) if on_reward_span else REWARD_NAME
        reward = _reward(
            name or REWARD_NAME, span.attributes[names.REWARD], time_ns, "attribute", response_id=response_id
        )
        rewards.append(_of_part(span.attributes, reward))
    if _RL_SCORE in span.attributes:
        name = reader.text("rl.reward.name") or REWARD_NAME
        rewards.append(_reward(name, span.attributes[_RL_SCORE], time_ns, "rl", response_id=response_id))
    if span.name in _AGENTLIGHTNING_SPANS or not span.attributes.keys().isdisjoint(_AGENTOPS_OUTPUTS):
        rewards.extend(_agentlightning(span, time_ns))
    return rewards


def evaluation_attributes(
    name: str,
    value: float | None,
    *,
    label: str | None = None,
    explanation: str | None = None,
    response_id: str | None = None,
) -> dict[str, str | float]:
    """Write a reward as attributes of the event `gen_ai.evaluation.result`, the inverse of reading it."""
    fields = {
        _EVALUATION_NAME: name,
        _SCORE: value,
        # Tells an app's reward with its own name from an evaluation by others.
        names.REWARD: None if name == REWARD_NAME else value,
        _LABEL: label,
        _EXPLANATION: explanation,
        RESPONSE_ID: response_id,
    }
    return {key: value for key, value in fields.items() if value is not None}


def part_attributes(choice: int | None, token_start: int | None, token_end: int | None) -> dict[str, int]:
    """Write the judged part of a call as further attributes of `evaluation_attributes`."""
    fields = zip(_PART, (choice, token_start, token_end), strict=True)
    return {key: value for key, value in fields if value is not None}


def rewards_of_log(log: LogRecord) -> list[RecordedReward | BadReward]:
    """Read the reward of a log record, if it is an evaluation result."""
    if event_name(log) != EVALUATION:
        return []
    return [_evaluation({**(values.mapping(log.body) or {}), **log.attributes}, log.time_ns)]


def has_response(span: Span, response_id: str) -> bool:
    """Whether the span names this response without being an LLM call: an agent's span, or a fetch of a response."""
    return span.attributes.get(RESPONSE_ID) == response_id and role_of(span) in _HAVING_RESPONSES


def _evaluation(attributes: Attributes, time_ns: int) -> RecordedReward | BadReward:
    reader = AttributeReader(attributes)
    reward = _reward(
        reader.text(_EVALUATION_NAME) or "evaluation",
        attributes.get(_SCORE),
        time_ns,
        "attribute" if names.REWARD in attributes else "evaluation",
        label=reader.text(_LABEL),
        explanation=reader.text(_EXPLANATION),
        response_id=reader.text(RESPONSE_ID),
    )
    return _of_part(attributes, reward)


def _of_part(attributes: Attributes, reward: RecordedReward | BadReward) -> RecordedReward | BadReward:
    """The reward with the part of a call that the attributes name."""
    if isinstance(reward, BadReward) or attributes.keys().isdisjoint(_PART):
        return reward
    recorded = [attributes.get(name) for name in _PART]
    if all(value is None for value in recorded):
        return reward
    choice, start, end = numbers = [values.integer(value) for value in recorded]
    unread = any(number is None and value is not None for number, value in zip(numbers, recorded, strict=True))
    if unread or not is_part(choice, start, end):
        part = "choice {!r:.50}, tokens {!r:.50} to {!r:.50}".format(*recorded)
        return BadReward(name=reward.name, detail=f"is for a part of a call that does not exist: {part}")
    return msgspec.structs.replace(reward, choice=choice, token_start=start, token_end=end)


def is_part(choice: int | None, token_start: int | None, token_end: int | None) -> bool:
    """Whether the values may be a part of a call: a choice from 0 on, and a range of at least one token, or none."""
    if choice is not None and choice < 0:
        return False
    if token_start is None or token_end is None:
        return token_start is token_end
    return 0 <= token_start < token_end


def _reward(
    name: str,
    recorded: Value,
    time_ns: int,
    source: RewardSource,
    *,
    label: str | None = None,
    explanation: str | None = None,
    response_id: str | None = None,
) -> RecordedReward | BadReward:
    boolean = values.flag(recorded)
    value = values.number(recorded) if boolean is None else float(boolean)
    if value is None and (recorded is not None or label is None):
        detail = (
            f"is no finite number: {recorded!r:.100}" if recorded is not None else "has neither a score nor a label"
        )
        return BadReward(name=name, detail=detail)
    return RecordedReward(
        name=name,
        value=value,
        time_ns=time_ns,
        source=source,
        label=label,
        explanation=explanation,
        response_id=response_id,
    )


def _agentlightning(span: Span, time_ns: int) -> Iterator[RecordedReward | BadReward]:
    """Agent Lightning 0.3 (indexed rewards), 0.2 (`reward`), and AgentOps' outputs of its first releases."""
    reader = AttributeReader(span.attributes)
    if span.name in _AGENTLIGHTNING_SPANS:
        response_id = _linked_response(reader)
        for position, entry in enumerate(_entries(reader, "agentlightning.reward")):
            name = values.text(entry.get("name")) or REWARD_NAME
            # The first is the primary one, whatever its name: it is the reward, the others are further dimensions.
            reward_names = [REWARD_NAME] if name == "primary" else list(dict.fromkeys([REWARD_NAME, name]))
            for reward_name in reward_names if position == 0 else [name]:
                yield _reward(reward_name, entry.get("value"), time_ns, "agentlightning", response_id=response_id)
        if REWARD_NAME in span.attributes:
            yield _reward(REWARD_NAME, span.attributes[REWARD_NAME], time_ns, "agentlightning", response_id=response_id)
    for name in reader.families.among(_AGENTOPS_OUTPUTS):
        output = values.mapping(reader.structured(name)) or {}
        if output.get("type") == "reward" and output.get("value") is not None:
            yield _reward(REWARD_NAME, output["value"], time_ns, "agentlightning")


def _linked_response(reader: AttributeReader) -> str | None:
    """The response id that a link `agentlightning.link.<n>.{key_match,value_match}` asks for."""
    links = _entries(reader, "agentlightning.link")
    response_ids = (values.text(link.get("value_match")) for link in links if link.get("key_match") == RESPONSE_ID)
    return next((response_id for response_id in response_ids if response_id), None)


def _entries(reader: AttributeReader, prefix: str) -> Sequence[dict[str, Value]]:
    return [entry for value in unflatten(reader, prefix) or () if (entry := values.mapping(value)) is not None]
