"""Rollouts as agents make them: a list of calls becomes a trajectory by the lineage that conversions use."""

from hypothesis import strategies as st

from art_otel.calls import Choice, InferenceCall, Message, ToolCall
from art_otel.trajectories import Reward, Trajectory
from art_otel.trajectories.lineage import build_lineage
from tests.trajectories.agents import agent_calls


def user(content: str) -> Message:
    return Message(role="user", content=content)


def assistant(content: str | None = None, **fields) -> Message:
    return Message(role="assistant", content=content, **fields)


def looking(arguments: str = '{"city":"Paris"}', *, id: str = "call_0", content: str | None = None) -> Message:  # noqa: A002
    return assistant(content, tool_calls=(ToolCall(id=id, name="look", arguments=arguments),))


def answer(content: str, *, id: str = "call_0") -> Message:  # noqa: A002
    return Message(role="tool", content=content, tool_call_id=id)


def call(number: int, prompt, *sampled: Message, finish_reason: str | None = "stop", **fields) -> InferenceCall:
    choices = tuple(
        Choice(index=index, message=message, finish_reason=finish_reason) for index, message in enumerate(sampled)
    )
    told = {"operation_name": "chat", **fields}
    return InferenceCall(
        trace_id="ab" * 16,
        span_id=f"{number + 1:016x}",
        start_ns=number,
        end_ns=number + 1,
        input_messages=None if prompt is None else tuple(prompt),
        choices=choices or None,
        **told,
    )


def chat(*messages: Message, **fields) -> list[InferenceCall]:
    """The calls of one conversation: each assistant message is sampled from all that stands before it."""
    sampled = [at for at, message in enumerate(messages) if message.role == "assistant"]
    return [call(number, messages[:at], messages[at], **fields) for number, at in enumerate(sampled)]


def rollout(calls, rollout_id: str = "r", **fields) -> Trajectory:
    lineage = build_lineage(list(calls))
    return Trajectory(
        rollout_id=rollout_id,
        trace_id="ab" * 16,
        calls=lineage.calls,
        **fields,
    )


def said(content: str, rollout_id: str, reward: float | None, *, group: str | None = "g", **fields) -> Trajectory:
    """A rollout of one answer to one question."""
    return rollout(chat(user("hello"), assistant(content)), rollout_id, group_id=group, reward=reward, **fields)


def given(name: str, value: float | None, **fields) -> Reward:
    return Reward(name=name, value=value, source="evaluation", time_ns=0, **fields)


@st.composite
def agent_rollouts(draw) -> list[Trajectory]:
    """A few rollouts of agents, in a group or not, with and without rewards."""
    return [
        rollout(
            draw(agent_calls()),
            f"r-{number}",
            group_id=draw(st.sampled_from(["g", "g", "g", None])),
            reward=draw(st.sampled_from([0.0, 0.5, 1.0, None])),
            incomplete_reasons=draw(st.sampled_from([{}, {}, {}, {"missing root": 1}])),
            status=draw(st.sampled_from(["ok", "ok", "ok", "error"])),
        )
        for number in range(draw(st.integers(0, 3)))
    ]


def ended_on_failure(trajectory: Trajectory) -> bool:
    """Whether no call ended well after the last that failed, by the times that they ended."""
    ends = sorted((one.end_ns or 0, one.failed) for one in trajectory.calls)
    return bool(ends) and ends[-1][1]
