"""Steps: the messages along one path of turns, with their tokens, as ATIF has them.

Invariant: a step is to be trained exactly if it is the agent's and not marked as copied context. Copied context are
steps that are in an earlier history of the document, assistant messages that were not sampled, and what must not be
trained. A tool's answer is an observation of the step that it follows. Nothing that a message says is dropped, but for
the difference between no content and empty content: what ATIF has no field for is in `extra`. The usage of a call with
several choices is in the step of one of them, so that sums over steps are right.

Source: `harbor.models.trajectories` (`step`, `tool_call`, `metrics`) of Harbor 0.25.0.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final, cast

import msgspec

from art_otel.calls import CallRecord, Message, ToolCall, Usage
from art_otel.exporting import ExportStats, JsonObject, ScoredTrajectory
from art_otel.trajectories import Call, Reward, ToolExecution, Trajectory, Turn, path_to
from art_otel_atif.content import Media, atif_content

NOT_SAMPLED: Final = "assistant messages that were not sampled, marked as copied context"
UNTRAINED: Final = "completions that must not be trained, marked as copied context"
OTHER_ROLE: Final = "messages with a role that ATIF does not have, written as user messages"
NO_PROMPT: Final = "completions whose prompt was not recorded"
NO_ID: Final = "tool calls without an id, which got one"
NO_OBJECT: Final = "arguments that are not a JSON object, written as {} with their text in extra"
OTHER_PARTS: Final = "content that ATIF cannot hold, put into extra"
NO_LOGPROBS: Final = "logprobs that are not finite, or not as many as the token ids, left out"

_SOURCES: Final = {"system": "system", "developer": "system", "user": "user"}
_USUAL_ROLES: Final = ("system", "user", "assistant", "tool")
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_OBJECT: Final = msgspec.json.Decoder(dict[str, Any])
_NO_USAGE: Final = Usage()
_EMPTY: Final[tuple[object, ...]] = (None, (), {})


@dataclass(frozen=True, kw_only=True, slots=True)
class DocumentDraft:
    """A document that is being made: what it is of, its files, and what is in it so far.

    `first_steps` has the `trajectory_id` and the `step_id` of the first step of each turn that has one. `calls` are the
    positions of the calls that have a step.
    """

    item: ScoredTrajectory
    stats: ExportStats
    media: Media
    prompt_token_ids: bool
    first_steps: dict[int, JsonObject] = field(default_factory=dict[int, JsonObject])
    calls: set[int] = field(default_factory=set[int])


def history_steps(draft: DocumentDraft, turns: Sequence[int], trajectory_id: str) -> list[JsonObject]:
    """Make the steps of a history: for each turn the messages that its prompt adds, then what it sampled."""
    history = _History(draft)
    for position in turns:
        turn = draft.item.trajectory.turns[position]
        for message in _prompt_messages(draft.item.trajectory, turn) or ():
            history.add_given(message, is_repeated=turn.call in draft.calls)
        if turn.message is not None:
            history.add_sampled(position, turn, turn.message)
            step = {"trajectory_id": trajectory_id, "step_id": len(history.steps)}
            draft.first_steps.setdefault(position, step)
            draft.calls.add(turn.call)
    return history.steps


@dataclass(frozen=True, kw_only=True, slots=True)
class _Said:
    """What a message says. `content` is None if it has none; `fields` are those that only steps of the agent have."""

    content: str | list[JsonObject] | None = None
    fields: JsonObject = field(default_factory=dict[str, Any])
    extra: JsonObject = field(default_factory=dict[str, Any])


class _History:
    """The steps of one history so far; their ids count from 1."""

    def __init__(self, draft: DocumentDraft) -> None:
        self.steps: list[JsonObject] = []
        self._draft = draft
        self._changed = draft.stats.changed

    def add_given(self, message: Message, *, is_repeated: bool) -> None:
        """Add a message of a prompt; `is_repeated` if an earlier history of the document has it."""
        copied = {"is_copied_context": True} if is_repeated else {}
        if message.role in ("tool", "function"):
            self._observe(message, copied)
        elif message.role == "assistant":
            self._changed[NOT_SAMPLED] += not is_repeated
            self._step("agent", self._say(message, is_agent=True), {"is_copied_context": True})
        else:
            self._changed[OTHER_ROLE] += message.role not in _SOURCES
            said = self._say(message)
            self._step(
                _SOURCES.get(message.role, "user"), said, copied, drop_empty({"tool_call_id": message.tool_call_id})
            )

    def add_sampled(self, position: int, turn: Turn, message: Message) -> None:
        """Add what the turn at `position` sampled, with its tokens and what is known of its call.

        If an earlier history has the turn, the step is a copy without them.
        """
        draft, trajectory = self._draft, self._draft.item.trajectory
        call = trajectory.calls[turn.call]
        said = self._say(message, is_agent=True)
        model = call.request_model if call.response_model is None else call.response_model
        if position in draft.first_steps:
            fields = {"model_name": model, "is_copied_context": True, "llm_call_count": 1}
            self._step("agent", said, drop_empty(fields), {"turn": position})
            return
        has_prompt = _prompt_messages(trajectory, turn) is not None
        is_left_out = turn.text_untrained is not None or draft.item.turn_rewards[position].skipped is not None
        self._changed[UNTRAINED] += is_left_out
        self._changed[NO_PROMPT] += not has_prompt
        fields = {
            # ISO 8601 in microseconds; `extra` has the nanoseconds.
            "timestamp": (_EPOCH + timedelta(microseconds=call.start_ns // 1000)).isoformat(),
            "model_name": model,
            "metrics": _step_metrics(turn, call, draft),
            "is_copied_context": True if is_left_out else None,
            "llm_call_count": 1,
        }
        facts = {
            "turn": position,
            "call": turn.call,
            "choice": turn.choice,
            "drifted_at": call.drifted_at,
            "rewritten_at": call.rewritten_at,
            "finish_reason": turn.finish_reason,
            "tokens_untrained": turn.tokens_untrained,
            "text_untrained": turn.text_untrained,
            "reward": draft.item.turn_rewards[position].reward,
            "prompt_messages": None if has_prompt else "unknown",
        }
        self._step(
            "agent", said, drop_empty(fields), drop_empty(facts) | call_facts(call, frozenset({"tools", "usage"}))
        )

    def _observe(self, message: Message, copied: JsonObject) -> None:
        """Add what a tool answered to the last step, or to a new one if that is not the agent's and has no answers."""
        if not self.steps or not (self.steps[-1]["source"] == "agent" or "observation" in self.steps[-1]):
            self._step("system", _Said(), copied)
        step = self.steps[-1]
        said = self._say(message)
        call_id = message.tool_call_id
        is_asked = call_id in {call["tool_call_id"] for call in step.get("tool_calls", ())}
        result = {
            "source_call_id": call_id if is_asked else None,
            "content": said.content,
            "extra": said.extra if is_asked else said.extra | drop_empty({"tool_call_id": call_id}),
        }
        step.setdefault("observation", {"results": []})["results"].append(drop_empty(result))

    def _say(self, message: Message, *, is_agent: bool = False) -> _Said:
        """Give what the message says in the fields of the next step, and in `extra` what has no field there."""
        content, unsupported = atif_content(message, self._draft.media)
        self._changed[OTHER_PARTS] += bool(unsupported)
        extra = {
            "role": None if message.role in _USUAL_ROLES else message.role,
            "name": message.name,
            "refusal": message.refusal,
            "parts": unsupported or None,
        }
        if is_agent:
            calls = [self._tool_call(position, call) for position, call in enumerate(message.tool_calls)]
            fields = {"reasoning_content": message.reasoning, "tool_calls": calls or None}
            return _Said(content=content, fields=drop_empty(fields), extra=drop_empty(extra))
        extra |= {"reasoning": message.reasoning, "tool_calls": message.tool_calls}
        return _Said(content=content, extra=drop_empty(extra))

    def _tool_call(self, position: int, call: ToolCall) -> JsonObject:
        """Give the arguments as an object, which ATIF requires. If their text as it was sampled is known, add it."""
        try:
            _OBJECT.decode(call.arguments)
            # As they are, so that numbers and the order of keys stay.
            arguments, is_object = msgspec.Raw(call.arguments.encode()), True
        except (msgspec.DecodeError, RecursionError):
            arguments, is_object = {}, False
        self._changed[NO_ID] += call.id is None
        self._changed[NO_OBJECT] += not is_object
        return {
            "tool_call_id": f"call-{len(self.steps) + 1}-{position}" if call.id is None else call.id,
            "function_name": call.name,
            "arguments": arguments,
            **({"extra": {"arguments": call.arguments}} if call.exact or not is_object else {}),
        }

    def _step(self, source: str, said: _Said, fields: JsonObject, extra: JsonObject | None = None) -> None:
        facts = said.extra | (extra or {})
        self.steps.append(
            {
                "step_id": len(self.steps) + 1,
                "source": source,
                "message": "" if said.content is None else said.content,
                **said.fields,
                **fields,
                **({"extra": facts} if facts else {}),
            }
        )


def _prompt_messages(trajectory: Trajectory, turn: Turn) -> tuple[Message, ...] | None:
    """Return the messages that a turn's prompt adds to the path of its parent; None if they were not recorded."""
    call, parent = trajectory.calls[turn.call], turn.parent
    if parent is None:
        return call.input_messages
    path = path_to(call.prompt_node)
    return tuple([node.message for node in path[len(path_to(trajectory.turns[parent].message_node)) :]])


def _step_metrics(turn: Turn, call: Call, draft: DocumentDraft) -> JsonObject:
    """Give the tokens of a sampled turn, and the usage of its call if no other step has it."""
    usage = (None if turn.call in draft.calls else call.usage) or _NO_USAGE
    prompt = call.prompt_token_ids if draft.prompt_token_ids else None
    logprobs = None if turn.logprobs is None else turn.logprobs.tolist()
    if logprobs is not None and (
        (turn.token_ids is not None and len(turn.token_ids) != len(logprobs)) or not all(map(math.isfinite, logprobs))
    ):
        draft.stats.changed[NO_LOGPROBS] += 1
        logprobs = None
    return drop_empty(
        {
            "prompt_tokens": usage.input_tokens,
            "completion_tokens": usage.output_tokens,
            "cached_tokens": usage.cached_tokens,
            "prompt_token_ids": None if prompt is None else prompt.tolist(),
            "completion_token_ids": None if turn.token_ids is None else turn.token_ids.tolist(),
            "logprobs": logprobs,
            "extra": drop_empty({"total_tokens": usage.total_tokens, "reasoning_tokens": usage.reasoning_tokens}),
        }
    )


def call_facts(call: CallRecord, without: frozenset[str] = frozenset()) -> JsonObject:
    """Give what is known of a call beside its prompt and its choices, by the names of our record."""
    names = [name for name in CallRecord.__struct_fields__ if name not in without]
    return drop_empty({name: getattr(call, name) for name in names})


def record_facts(record: Reward | ToolExecution) -> JsonObject:
    """Give the known fields of a record, by their names."""
    return drop_empty({name: getattr(record, name) for name in record.__struct_fields__})


def drop_empty(values: JsonObject) -> JsonObject:
    """Leave out the values that are unknown or empty. Mappings become dicts, as JSON wants them."""
    return {
        name: dict(cast("Mapping[str, Any]", value)) if isinstance(value, Mapping) else value
        for name, value in values.items()
        if value not in _EMPTY
    }
