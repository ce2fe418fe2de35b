"""Samples: trajectories for the tests of exporters, from a server that tokenizes by bytes.

A token is a byte of UTF-8, or a mark: ROLES for the start of a message of a role, END behind a message, CALL before
each tool call in it. So every id is below VOCABULARY, and each prompt begins with the tokens of what it goes on with.
"""

from art_otel.calls import Choice, InferenceCall, Logprobs, Message, TokenIds, ToolCall
from art_otel.trajectories import PolicyVersions, Reward, Trajectory
from art_otel.trajectories.lineage import build_lineage

ROLES = {"system": 256, "user": 257, "assistant": 258, "tool": 259}
END = 260
CALL = 261
VOCABULARY = 262

TRACE = "ab" * 16
LOOK_UP = {
    "type": "function",
    "function": {
        "name": "look_up",
        "description": "Look something up.",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}
SYSTEM = Message(role="system", content="You look things up.")
QUESTION = Message(role="user", content="Weather in Zürich? 🌦")


def said(content: str | None, **fields) -> Message:
    return Message(role="assistant", content=content, **fields)


def looking(city: str, call_id: str = "call_0") -> Message:
    """A tool call, its arguments spelled as a model would and json.dumps would not."""
    return said(None, tool_calls=(ToolCall(id=call_id, name="look_up", arguments=f'{{"city":"{city}" }}'),))


def found(content: str, call_id: str = "call_0") -> Message:
    return Message(role="tool", content=content, tool_call_id=call_id)


def completion_ids(message: Message) -> list[int]:
    """What the policy samples for a message."""
    ids = list((message.content or "").encode())
    for call in message.tool_calls:
        ids += [CALL, *f"{call.name}{call.arguments}".encode()]
    return [*ids, END]


def prompt_ids(messages) -> list[int]:
    """What the server makes of a prompt, with the start of the answer."""
    ids = [token for message in messages for token in (ROLES[message.role], *completion_ids(message))]
    return [*ids, ROLES["assistant"]]


def asked(number: int, prompt, *answers: Message, ids: bool = True, logprobs: bool = True, **fields) -> InferenceCall:
    """A call. The logprobs of a completion are -number.0, -number.25, -number.5, …, exact in float32."""
    choices = []
    for index, answer in enumerate(answers):
        tokens = completion_ids(answer)
        choices.append(
            Choice(
                index=index,
                message=answer,
                finish_reason="tool_calls" if answer.tool_calls else "stop",
                token_ids=TokenIds.of(tokens) if ids else None,
                logprobs=Logprobs.of([-number - at / 4 for at in range(len(tokens))]) if ids and logprobs else None,
            )
        )
    told = {"tools": (LOOK_UP,), "policy_version": "7", "request_model": "policy", **fields}
    return InferenceCall(
        trace_id=TRACE,
        span_id=f"{number + 1:016x}",
        operation_name="chat",
        start_ns=1_700_000_000_000_000_000 + 1_000_000 * number,
        end_ns=1_700_000_000_000_500_000 + 1_000_000 * number,
        input_messages=tuple(prompt),
        choices=tuple(choices) or None,
        prompt_token_ids=TokenIds.of(prompt_ids(prompt)) if ids else None,
        **told,
    )


def rollout(rollout_id: str, calls, **fields) -> Trajectory:
    lineage = build_lineage(list(calls))
    told = {
        "name": "weather",
        "group_id": "g",
        "split": "train",
        "training_step": 3,
        "policy_version": PolicyVersions(first="7", last="7"),
        "started_at": 1_700_000_000_000_000_000,
        "ended_at": 1_700_000_060_000_000_000,
        "tools": (LOOK_UP,),
        **fields,
    }
    return Trajectory(
        rollout_id=rollout_id,
        trace_id=TRACE,
        calls=lineage.calls,
        **told,
    )


def conversation(rollout_id: str, answer: str, reward: float | None, **fields) -> Trajectory:
    """One question, one tool call and one answer."""
    first = (SYSTEM, QUESTION)
    second = (*first, looking("Zürich"), found("rain"))
    calls = [asked(0, first, second[2], step=0), asked(1, second, said(answer), step=1)]
    return rollout(rollout_id, calls, reward=reward, **fields)


def group() -> list[Trajectory]:
    """Three members of group `g` with rewards 1, 0.5 and 0, with metrics, metadata, logs and rewards of steps."""
    given = [Reward(name="reward", value=0.25, step=1, source="evaluation", time_ns=1_700_000_000_002_000_000)]
    full = {
        "metrics": {"tokens": 4.0},
        "metadata": {"level": 3, "hard": True, "nested": {"a": [1, None]}},
        "logs": ("looked", "naïve"),
        "rewards": tuple(given),
    }
    return [
        conversation("r-good", "Rain.", 1.0, **full),
        conversation("r-fair", "Rain, or so.", 0.5),
        conversation("r-bad", "Sun.", 0.0),
    ]


def branching() -> Trajectory:
    """A call of two choices, one of which goes on; a sub-agent; a call that failed, and the same again."""
    first = (SYSTEM, QUESTION)
    second = (*first, looking("Zürich"), found("rain"))
    helper = (Message(role="system", content="You help."), Message(role="user", content="Is it rain?"))
    return rollout(
        "r-branching",
        [
            asked(0, first, second[2], said("I do not know.")),
            asked(1, helper, said("Yes."), agent="helper", tools=()),
            asked(2, second, error_type="Timeout", error="timed out"),
            asked(3, second, said("Rain.")),
        ],
        reward=0.75,
    )


def without_ids() -> Trajectory:
    """Nobody recorded ids or logprobs."""
    first = (SYSTEM, QUESTION)
    return rollout("r-without-ids", [asked(0, first, said("Rain."), ids=False)], reward=0.5)


def without_logprobs() -> Trajectory:
    """Ids, but no logprobs, no reward and no group."""
    first = (SYSTEM, QUESTION)
    return rollout("r-without-logprobs", [asked(0, first, said("Rain."), logprobs=False)], group_id=None)


def failed() -> Trajectory:
    """The rollout ended in an error after one answer."""
    calls = [asked(0, (SYSTEM, QUESTION), looking("Zürich"))]
    return rollout("r-failed", calls, status="error", error="ValueError: no rain")


def samples() -> list[Trajectory]:
    """All of them."""
    return [*group(), branching(), without_ids(), without_logprobs(), failed()]
