"""Steps: the messages along one path of turns, as ATIF has them.

Invariant: a step is to be trained exactly where it is the agent's and not marked as copied context. Copied are steps
that stand in an earlier history of the document, messages of the assistant that nobody sampled, and what must not
be trained. Answers of tools are observations of the step that they follow.

Source: `harbor.models.trajectories` of Harbor 0.25.0.
"""

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final, TypeAlias

from art_otel.calls import InferenceCall, Message
from art_otel.exporting import ExportStats, TurnReward
from art_otel.trajectories import Trajectory, Turn
from art_otel_atif.config import TrajectoriesConfig
from art_otel_atif.content import Media
from art_otel_atif.facts import call_facts
from art_otel_atif.messages import Rendered, render
from art_otel_atif.metrics import step_metrics, without_none

JsonObject: TypeAlias = dict[str, Any]

NOT_SAMPLED: Final = "messages of the assistant that nobody sampled, marked as copied context"
UNTRAINED: Final = "completions not to be trained, marked as copied context"
OTHER_ROLE: Final = "messages of roles that ATIF does not have written as the user's"
NO_PROMPT: Final = "completions whose prompt nobody recorded"

_SOURCES: Final = {"system": "system", "developer": "system", "user": "user"}
_TOOLS: Final = ("tool", "function")
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, kw_only=True, slots=True)
class Subject:
    """What the steps of a document are made of. `turn_rewards` has shape (turns,)."""

    trajectory: Trajectory
    turn_rewards: tuple[TurnReward, ...]
    config: TrajectoriesConfig
    stats: ExportStats
    media: Media


@dataclass(frozen=True, kw_only=True, slots=True)
class Written:
    """What stands in the document: for each turn the history and the step where it is first, and the calls."""

    turns: dict[int, tuple[str, int]] = field(default_factory=dict[int, tuple[str, int]])
    calls: set[int] = field(default_factory=set[int])


class Path:
    """The steps of one history, from its turns; step ids count from 1."""

    def __init__(self, subject: Subject, written: Written, trajectory_id: str) -> None:
        self.steps: list[JsonObject] = []
        self._subject = subject
        self._written = written
        self._trajectory_id = trajectory_id

    def add(self, position: int) -> None:
        """The messages given to the turn, and what it sampled."""
        turn = self._subject.trajectory.turns[position]
        for message in _prompt_messages(self._subject.trajectory, turn) or ():
            self._give(message, again=turn.call in self._written.calls)
        if turn.message is not None:
            self._sample(position, turn, turn.message)
            self._written.turns.setdefault(position, (self._trajectory_id, len(self.steps)))
            self._written.calls.add(turn.call)

    def _give(self, message: Message, *, again: bool) -> None:
        """A message that was given to the model; `again` if it stands in the document already."""
        stats = self._subject.stats
        if message.role in _TOOLS:
            self._observe(message, again=again)
        elif message.role == "assistant":
            stats.changed[NOT_SAMPLED] += not again
            rendered = self._say(message, agent=True)
            self._step("agent", rendered, {"is_copied_context": True})
        else:
            stats.changed[OTHER_ROLE] += message.role not in _SOURCES
            rendered = self._say(message, agent=False)
            extra = without_none({"tool_call_id": message.tool_call_id})
            self._step(_SOURCES.get(message.role, "user"), rendered, _copied(copied=again), extra)

    def _observe(self, message: Message, *, again: bool) -> None:
        """What a tool answered; where it follows no step of the agent it gets a step of its own."""
        if not self.steps or not (self.steps[-1]["source"] == "agent" or "observation" in self.steps[-1]):
            self._step("system", Rendered(content=None, fields={}, extra={}), _copied(copied=again))
        step = self.steps[-1]
        rendered = self._say(message, agent=False)
        asked = message.tool_call_id in {call["tool_call_id"] for call in step.get("tool_calls", ())}
        name = {"source_call_id": message.tool_call_id} if asked else {}
        extra = rendered.extra if asked else rendered.extra | without_none({"tool_call_id": message.tool_call_id})
        result = without_none({**name, "content": rendered.content, "extra": extra or None})
        step.setdefault("observation", {"results": []})["results"].append(result)

    def _sample(self, position: int, turn: Turn, message: Message) -> None:
        subject, call = self._subject, self._subject.trajectory.calls[turn.call]
        rendered = self._say(message, agent=True)
        model = without_none({"model_name": call.request_model if call.response_model is None else call.response_model})
        if position in self._written.turns:
            self._step("agent", rendered, {**model, "is_copied_context": True, "llm_call_count": 1}, {"turn": position})
            return
        subject.stats.changed[UNTRAINED] += turn.untrained is not None
        subject.stats.changed[NO_PROMPT] += _prompt_messages(subject.trajectory, turn) is None
        first = turn.call not in self._written.calls
        metrics = step_metrics(turn, call, subject.config, subject.stats, with_usage=first)
        fields = {
            "timestamp": _timestamp(call.start_ns),
            **model,
            **without_none({"metrics": metrics}),
            **_copied(copied=turn.untrained is not None),
            "llm_call_count": 1,
        }
        self._step("agent", rendered, fields, self._sampled_facts(position, turn, call))

    def _sampled_facts(self, position: int, turn: Turn, call: InferenceCall) -> JsonObject:
        facts = {
            "turn": position,
            "call": turn.call,
            "choice": turn.choice,
            "drifted_at": turn.prompt.drifted_at,
            "respelled_at": turn.prompt.respelled_at,
            "finish_reason": turn.finish_reason,
            "untrained": turn.untrained,
            "reward": self._subject.turn_rewards[position].reward,
            "prompt_messages": "unknown" if _prompt_messages(self._subject.trajectory, turn) is None else None,
        }
        return without_none(facts) | call_facts(call)

    def _say(self, message: Message, *, agent: bool) -> Rendered:
        return render(message, self._subject.media, self._subject.stats, agent=agent, step=len(self.steps) + 1)

    def _step(self, source: str, rendered: Rendered, fields: JsonObject, extra: JsonObject | None = None) -> None:
        facts = rendered.extra | (extra or {})
        self.steps.append(
            {
                "step_id": len(self.steps) + 1,
                "source": source,
                "message": "" if rendered.content is None else rendered.content,
                **rendered.fields,
                **fields,
                **({"extra": facts} if facts else {}),
            }
        )


def _prompt_messages(trajectory: Trajectory, turn: Turn) -> tuple[Message, ...] | None:
    """The messages of a turn's prompt behind the path of its parent; None where nobody recorded them."""
    return trajectory.calls[turn.call].input_messages if turn.parent is None else turn.prompt.messages


def _copied(*, copied: bool) -> JsonObject:
    return {"is_copied_context": True} if copied else {}


def _timestamp(time_ns: int) -> str:
    """ISO 8601 in microseconds; `extra` has the nanoseconds."""
    return (_EPOCH + timedelta(microseconds=time_ns // 1000)).isoformat()
