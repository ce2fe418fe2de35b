"""Trajectories of mini-swe-agent: `*.traj.json`, one a file, `"trajectory_format": "mini-swe-agent-1…"`, or a list.

Messages are OpenAI's, or items of the Responses API; one that the model gave has the response's body in
`extra.response`, and those before it are its prompt. Before 1.10 there are no bodies, and every `assistant` message is
an answer but those that hold a command and nothing else, which a person typed. Invariant: where tools were called they
are missing, because no trajectory tells their definitions.

Source of the format: `minisweagent.agents.default` (https://mini-swe-agent.com), recordings of 1.9, 1.17 and 2.4.
"""

import re
from collections.abc import Iterator
from hashlib import blake2b
from typing import Final

import msgspec

from art_otel import attributes as names
from art_otel.sources.agents.session import Missing, Session, SessionCall, body_text, document_reader
from art_otel.sources.backends.values import seconds_to_ns
from art_otel.sources.format import SourceFormat, converted
from art_otel.sources.json_documents import encode, head_detector, is_list, is_object, object_or_empty
from art_otel.spans import Span, Value

_NAME: Final = "mini-swe-agent"
_SUBMITS: Final = "COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"
"""What the prompts of the agent say that a task ends with, and no other chat does."""

_TYPED: Final = re.compile(r"\n```\w+\n.*\n```", re.DOTALL)


_NOT_SENT: Final = ("extra", "provider_specific_fields", "timestamp")


class _ModelConfig(msgspec.Struct, frozen=True, kw_only=True):
    model_name: str | None = None
    model_kwargs: dict[str, Value] = {}


class _Config(msgspec.Struct, frozen=True, kw_only=True):
    model: _ModelConfig = _ModelConfig()


class _Info(msgspec.Struct, frozen=True, kw_only=True):
    config: _Config = _Config()
    mini_version: str = ""
    exit_status: str | None = None
    submission: str | None = None


class _Trajectory(msgspec.Struct, frozen=True, kw_only=True):
    messages: list[dict[str, Value]]
    info: _Info = _Info()
    instance_id: str | None = None


def _detects(value: dict[str, Value]) -> bool:
    """Whether it is a trajectory, or a message of a list that is one."""
    is_message = value.keys() == {"role", "content"}
    named = value.get("content") if is_message else value.get("trajectory_format")
    return isinstance(named, str) and (_SUBMITS in named if is_message else named.startswith("mini-swe-agent-1"))


def _spans(value: dict[str, Value]) -> Iterator[Span]:
    trajectory = converted(value, _Trajectory)
    info, messages = trajectory.info, trajectory.messages
    digest = blake2b(msgspec.json.encode(messages), digest_size=8).hexdigest()
    rollout_id = digest if trajectory.instance_id is None else f"{trajectory.instance_id}-{digest}"
    session = Session(_NAME, rollout_id, agent=_NAME, version=info.mini_version)
    times = _times(messages)
    prompt: list[str] = []
    for number, (message, response) in enumerate(zip(messages, _responses(messages), strict=True)):
        if response is not None:
            start_ns = times[max(0, number - 1)]
            yield session.call(_call(number, response, info.config.model, prompt, (start_ns, times[number])))
        prompt += map(encode, _sent(message))
    metadata = {"exit_status": info.exit_status, "submission": info.submission, "instance_id": trajectory.instance_id}
    yield session.rollout(
        min(times, default=0),
        max(times, default=0),
        attributes={names.GROUP_ID: trajectory.instance_id},
        metadata=metadata,
    )


def _responses(messages: list[dict[str, Value]]) -> list[dict[str, Value] | None]:
    """The response that each message is of; None for one that no model gave."""
    bodies = [object_or_empty(message.get("extra")).get("response") for message in messages]
    responses = [body if is_object(body) else None for body in bodies]
    if any(responses):
        return responses
    return [
        {"choices": [{"index": 0, "message": message}]}
        if message.get("role") == "assistant" and not _TYPED.fullmatch(str(message.get("content")))
        else None
        for message in messages
    ]


def _call(
    number: int, response: dict[str, Value], model: _ModelConfig, prompt: list[str], times: tuple[int, int]
) -> SessionCall:
    messages = "input" if "output" in response else "messages"
    fields = {name: value for name, value in model.model_kwargs.items() if name != "api_key"}
    missing: tuple[Missing, ...] = ("tools",) if _calls_tools(response) else ()
    return SessionCall(
        key=f"message {number}",
        model=model.model_name,
        start_ns=times[0],
        end_ns=times[1],
        request=body_text({"model": model.model_name, **fields}, prompt, messages),
        response=encode(response),
        missing=missing,
    )


def _sent(message: dict[str, Value]) -> list[dict[str, Value]]:
    """A message as it is sent: without what the agent keeps beside it. A response is sent as its items."""
    output = message.get("output")
    if is_list(output):
        return [item for item in output if is_object(item)]
    return [{name: value for name, value in message.items() if name not in _NOT_SENT}]


def _calls_tools(response: dict[str, Value]) -> bool:
    text = encode(response)
    return '"tool_calls":[' in text or '"type":"function_call"' in text


def _times(messages: list[dict[str, Value]]) -> list[int]:
    """When each message was there; one that does not say, with the one before."""
    stamps = [
        object_or_empty(message.get("extra")).get("timestamp") or message.get("timestamp") for message in messages
    ]
    seconds = [stamp if isinstance(stamp, (int, float)) else None for stamp in stamps]
    latest = next((stamp for stamp in seconds if stamp is not None), 0.0)
    times: list[int] = []
    for stamp in seconds:
        latest = max(latest, stamp or 0.0)
        times.append(seconds_to_ns(latest, "extra.timestamp"))
    return times


FORMAT: Final = SourceFormat(
    name=_NAME,
    detects=head_detector(_detects),
    reads=document_reader(_spans, field_of_list="messages"),
    not_in_format=("tools", "tool spans", "failed calls"),
)
