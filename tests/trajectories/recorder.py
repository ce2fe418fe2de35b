"""Spans of chat calls at times of our choice, by scopes of our choice, and what was made of them."""

from msgspec import structs

from art_otel import histories
from art_otel.calls import Choice, Message, ToolCall
from art_otel.spans import Scope, Span
from art_otel.testing import SpanBuilder
from art_otel.trajectories import SpanGroup, Trajectory, build_trajectories

MS = 1_000_000
SYSTEM = Message(role="system", content="be brief")
LOOK = ToolCall(id="c1", name="look", arguments='{"city":"Paris","days":2}')


def said(content: str | None, finish: str | None = "stop", **fields) -> Choice:
    return Choice(index=0, message=Message(role="assistant", content=content, **fields), finish_reason=finish)


class Recorder:
    """Spans of chat calls at times of our choice, by scopes of our choice."""

    def __init__(self) -> None:
        self.builder = SpanBuilder()
        self.root = self.builder.rollout("r")
        self.spans = [self.root]

    def chat(
        self,
        scope: str,
        prompt: list[Message],
        answer: Choice | None,
        *,
        parent: Span | None = None,
        response_id: str | None = "chatcmpl-7",
        lasts: tuple[int, int] = (10, 20),
        known: dict[str, object] | None = None,
        without: tuple[str, ...] = (),
        **fields,
    ) -> Span:
        span = self.builder.chat(parent or self.root, prompt, [] if answer is None else [answer])
        attributes = {name: value for name, value in span.attributes.items() if name != "gen_ai.response.id"}
        if response_id is not None:
            attributes["gen_ai.response.id"] = response_id
        if answer is None:
            del attributes["gen_ai.output.messages"], attributes["gen_ai.response.finish_reasons"]
        attributes = {name: value for name, value in attributes.items() if name not in without} | (known or {})
        begin, end = (self.root.start_ns + at * MS for at in lasts)
        span = structs.replace(
            span, scope=Scope(name=scope), attributes=attributes, start_ns=begin, end_ns=end, **fields
        )
        self.spans.append(span)
        return span

    def trajectory(self) -> Trajectory:
        (found,) = build_trajectories(SpanGroup(spans=self.spans)).trajectories
        return found


def texts(trajectory: Trajectory) -> list[tuple[str, str | None]]:
    """The last message of each call's prompt, and what was answered."""
    return sorted(
        (call.input_messages[-1].content, call.choices[0].message.content if call.choices else None)
        for call in trajectory.calls
    )


def trained(trajectory: Trajectory) -> list[str]:
    return [
        entry.message.content for history in histories(trajectory) for entry in history.messages or () if entry.trained
    ]
