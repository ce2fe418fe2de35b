"""RunningHistory: the messages of a rollout that runs, up to and with a completion, to be continued.

Invariant: what is appended is recorded with the rollout, so that it is in its trajectory even if the model is never
asked again.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, overload

from art_otel.conventions import history_messages
from art_otel.errors import ParseError, UsageError
from art_otel.trajectories import History, HistoryMessage

if TYPE_CHECKING:
    from art_otel.tracing.api.running.running import RunningTrajectory


class RunningHistory(Sequence[HistoryMessage]):
    """A sequence of messages; `completion_id` is the completion that it leads to.

    Append the result of a tool with `history.append({"role": "tool", "tool_call_id": call.id, "content": result})`, and
    ask again with `client.chat.completions.create(model=model, messages=history.to_openai())`.
    """

    def __init__(self, running: "RunningTrajectory", completion_id: str, choice: int, history: History) -> None:
        self.completion_id = completion_id
        self.choice = choice
        self._running = running
        self._messages = list(history)

    def __len__(self) -> int:
        return len(self._messages)

    @overload
    def __getitem__(self, index: int) -> HistoryMessage: ...
    @overload
    def __getitem__(self, index: slice) -> list[HistoryMessage]: ...
    def __getitem__(self, index: int | slice) -> HistoryMessage | list[HistoryMessage]:
        return self._messages[index]

    def __repr__(self) -> str:
        return f"<RunningHistory of {self.completion_id}: {len(self)} messages>"

    def append(self, message: Mapping[str, Any]) -> None:
        """Put a message of OpenAI's chat format behind the last one, as the result of a tool, and record it.

        Raises UsageError for what is no message.
        """
        try:
            messages = history_messages(message)
        except (ParseError, TypeError, ValueError) as error:
            raise UsageError(
                'history.append(): give a message as {"role": "tool", "tool_call_id": …, "content": …}'
            ) from error
        if not isinstance(message.get("content"), str | list | None):
            raise UsageError("history.append(): the content of a message is text; write other values as json.dumps(…)")
        self._running.add_message(self.completion_id, self.choice, message, messages)
        self._messages.extend(HistoryMessage(message=one) for one in messages)

    def to_openai(self) -> list[Any]:
        """The messages as plain dicts, for `client.chat.completions.create(messages=…)`."""
        return [entry.to_openai() for entry in self]
