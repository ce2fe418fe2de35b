"""Trajectories of SWE-agent: `*.traj`, one a file, with `trajectory`, `history` and `info`; or `attempts` of these.

A step of the trajectory has what its call was sent (`query`) and the text of the answer; the answer's tool calls stand
in the history. Before 1.1 there is no `query`: the history before an answer is its prompt, although the agent may have
sent less of it (its history processors cut old observations). Invariant: such a prompt says that messages are missing;
an answer that the agent did not accept is in no history, so where tools are called it is not known whole. The
definitions of tools are not told, and of times only how long commands took.

Source of the format: `sweagent/agent/agents.py`, `sweagent/agent/models.py` (https://swe-agent.com, 1.1), and the
trajectories of 0.7 and 1.0 in its repository.
"""

from collections.abc import Iterator, Sequence
from hashlib import blake2b
from typing import Final

import msgspec

from art_otel import attributes as names
from art_otel.sources.agents.session import Missing, Session, SessionCall, body_text, document_reader
from art_otel.sources.format import Refused, SourceFormat, converted
from art_otel.sources.json_documents import encode, head_detector, is_list, is_object
from art_otel.spans import Span, Value

_NAME: Final = "swe-agent"


class _Message(msgspec.Struct, frozen=True, kw_only=True):
    """An entry of the history or of a query; one without a role is none."""

    role: str = ""
    content: Value = None
    tool_calls: list[Value] | None = None
    tool_call_ids: list[str] | None = None
    thinking_blocks: list[Value] | None = None
    message_type: str | None = None
    is_demo: bool = False


class _Step(msgspec.Struct, frozen=True, kw_only=True):
    query: list[_Message] | None = None
    response: str
    extra_info: dict[str, Value] = {}


class _Model(msgspec.Struct, frozen=True, kw_only=True):
    name: str | None = None
    temperature: float | None = None
    top_p: float | None = None
    convert_system_to_user: bool = False


class _Agent(msgspec.Struct, frozen=True, kw_only=True):
    model: _Model = _Model()


class _Problem(msgspec.Struct, frozen=True, kw_only=True):
    id: str | None = None


class _Config(msgspec.Struct, frozen=True, kw_only=True):
    agent: _Agent = _Agent()
    problem_statement: _Problem = _Problem()


class _Info(msgspec.Struct, frozen=True, kw_only=True):
    exit_status: Value = None
    submission: str | None = None
    swe_agent_version: str = ""


class _Trajectory(msgspec.Struct, frozen=True, kw_only=True):
    trajectory: list[_Step]
    history: list[_Message]
    info: _Info = _Info()
    replay_config: str | dict[str, Value] | None = None


class _Attempts(msgspec.Struct, frozen=True, kw_only=True):
    attempts: list[_Trajectory]


def _detects(value: dict[str, Value]) -> bool:
    attempts = value.get("attempts")
    first = attempts[0] if is_list(attempts) and attempts else value
    steps = first.get("trajectory") if is_object(first) else None
    step = steps[0] if is_list(steps) and steps else None
    return is_object(step) and {"action", "observation", "response"} <= step.keys()


def _spans(value: dict[str, Value]) -> Iterator[Span]:
    """The spans of a run, or of each attempt; the best of these stands beside them again."""
    runs = converted(value, _Attempts).attempts if "attempts" in value else [converted(value, _Trajectory)]
    for run in runs:
        yield from _run_spans(run)


def _run_spans(run: _Trajectory) -> Iterator[Span]:
    config = _Config() if run.replay_config is None else _config(run.replay_config)
    instance, info = config.problem_statement.id, run.info
    digest = blake2b(msgspec.json.encode((run.trajectory, run.history)), digest_size=8).hexdigest()
    session = Session(
        _NAME, digest if instance is None else f"{instance}-{digest}", agent=_NAME, version=info.swe_agent_version
    )
    for number, (step, prompt, answer) in enumerate(_exchanges(run)):
        if any(message.role for message in prompt):  # else the agent ended the run, and asked nobody
            yield session.call(_call(number, step, prompt, answer, config.agent.model))
    metadata = {"exit_status": info.exit_status, "submission": info.submission, "instance_id": instance}
    yield session.rollout(0, len(run.trajectory), attributes={names.GROUP_ID: instance}, metadata=metadata)


def _config(config: str | dict[str, Value]) -> _Config:
    if not isinstance(config, str):
        return converted(config, _Config)
    try:
        return msgspec.json.decode(config, type=_Config)
    except ValueError as error:
        raise Refused("bad field", "replay_config", str(error)) from None


def _exchanges(run: _Trajectory) -> Iterator[tuple[_Step, Sequence[_Message], _Message | None]]:
    """Each step with its prompt and its answer; None where it is unknown whether the answer called tools."""
    recorded = [at for at, message in enumerate(run.history) if message.role == "assistant" and not message.is_demo]
    calls_tools = any(run.history[at].tool_calls for at in recorded)
    steps = run.trajectory
    accepted = [not _asked_again(step, after) for step, after in zip(steps, [*steps[1:], None], strict=True)]
    is_whole = len(recorded) == sum(accepted)
    rest = iter(recorded)
    at = next(rest, len(run.history))
    for step, is_accepted in zip(steps, accepted, strict=True):
        is_here = at < len(run.history) and (
            is_accepted if is_whole else step.query is None and run.history[at].content == step.response
        )
        text = None if calls_tools else _Message(role="assistant", content=step.response)
        yield step, run.history[:at] if step.query is None else step.query, run.history[at] if is_here else text
        at = next(rest, len(run.history)) if is_here else at


def _asked_again(step: _Step, after: _Step | None) -> bool:
    """Whether the next step asks the same again, with this answer and what was wrong with it, or without."""
    if after is None or not after.query or not any(message.role for message in after.query):
        return False
    return after.query == step.query or (len(after.query) > 1 and after.query[-2].message_type == "assistant")


def _call(number: int, step: _Step, prompt: Sequence[_Message], answer: _Message | None, model: _Model) -> SessionCall:
    missing: list[Missing] = ["tools"] if answer is None or _has_tools([answer, *prompt]) else []
    if answer is None:
        missing.append("answer")
    if step.query is None or step.extra_info:  # or the answer was chosen from several, by calls that are not told
        missing.append("messages")
    shown = answer or _Message(role="assistant", content=step.response)
    choice = {"index": 0, "message": _sent(shown, model)}
    fields = {"model": model.name, "temperature": model.temperature, "top_p": model.top_p}
    sent = [encode(_sent(message, model)) for message in prompt]
    return SessionCall(
        key=f"step {number}",
        model=model.name,
        start_ns=number,
        end_ns=number + 1,
        request=body_text(fields, sent),
        response=encode({"model": model.name, "choices": [choice]}),
        missing=missing,
    )


def _has_tools(messages: Sequence[_Message]) -> bool:
    return any(message.tool_calls is not None or message.role == "tool" for message in messages)


def _sent(message: _Message, model: _Model) -> dict[str, Value]:
    """A message as it is sent: without what the agent keeps beside it."""
    role = "user" if message.role == "system" and model.convert_system_to_user else message.role
    fields: dict[str, Value] = {"role": role, "content": message.content}
    if role == "tool":
        fields["tool_call_id"] = message.tool_call_ids[0] if message.tool_call_ids else None
    elif message.tool_calls is not None:
        fields |= {"tool_calls": message.tool_calls, "thinking_blocks": message.thinking_blocks or None}
    return {name: value for name, value in fields.items() if value is not None}


FORMAT: Final = SourceFormat(
    name=_NAME,
    detects=head_detector(_detects),
    reads=document_reader(_spans),
    not_in_format=("tools", "times", "finish reasons", "usage of each call", "tool spans", "failed calls"),
)
