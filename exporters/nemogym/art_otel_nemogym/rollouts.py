"""Rollouts: token histories as the lines that NeMo Gym collects.

Invariant: the items of an output that have token ids are the trained completions of the history, each once, and the
prompt of each begins with the prompt and the completion of the one before: what a trainer joins to a sequence. A
message becomes one item of the Responses API or more, in the order in which they were sampled. The ids of items follow
from the place of their message alone.

Source: `BaseVerifyResponse` and `NeMoGymResponse` of NeMo Gym 0.4.0.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final

import numpy as np
from msgspec import Meta

from art_otel.calls import Message
from art_otel.exporting import (
    NO_LOGPROBS,
    ExportStats,
    FormatError,
    JsonObject,
    ScoredTrajectory,
    TokenSequence,
    is_function,
    sequences_of,
    text_message,
)
from art_otel.trajectories import Call, GroupKey, Trajectory, chat_message

NO_REWARD: Final = "no reward"
NO_MESSAGES: Final = "no messages recorded"
APART: Final = "messages that do not continue where the token ids do"
NOTHING_LEFT: Final = "sequences that train nothing"
NO_FUNCTION: Final = "tools that are no functions, left out"
FURTHER: Final = "further histories of a rollout, written as rollouts of their own"
NO_CALL_ID: Final = "a tool call or its result without an id"
NO_SUCH_ROLE: Final = "messages with a role that the Responses API does not have"

_ASKING: Final = ("user", "system", "developer")


@dataclass(frozen=True, kw_only=True, slots=True)
class NemoGymRolloutsConfig:
    """Options of `rollouts`."""

    agent: Annotated[
        Annotated[str, Meta(min_length=1)] | None,
        Meta(description="the agent, by which NeMo Gym reports (default: the name of the rollout, or art-otel)"),
    ] = None


def encode_rollouts(
    items: Iterator[ScoredTrajectory], config: NemoGymRolloutsConfig, stats: ExportStats
) -> Iterator[JsonObject]:
    """A record for each token history that trains something, has a reward, and whose messages are known."""
    tasks: dict[GroupKey | str, int] = {}
    members: dict[int, int] = {}
    for item in items:
        trajectory = item.trajectory
        records: list[JsonObject] = []
        problem = ""
        for sequence in sequences_of(item, stats):
            try:
                records.append(_record(sequence, trajectory, stats))
            except FormatError as error:
                problem = str(error)
                stats.skipped[problem] += 1
        if problem and not records:
            stats.trajectories_skipped[problem] += 1
        stats.changed[FURTHER] += max(len(records) - 1, 0)
        recording = f"{trajectory.rollout_id} {trajectory.attempt} {trajectory.trace_id}"
        group = trajectory.group_key or recording
        for record in records:
            task = tasks.setdefault(group, len(tasks))
            members[task] = members.get(task, -1) + 1
            agent = {"name": config.agent or trajectory.name or "art-otel"}
            yield record | {"_ng_task_index": task, "_ng_rollout_index": members[task], "agent_ref": agent}


def _record(sequence: TokenSequence, trajectory: Trajectory, stats: ExportStats) -> JsonObject:
    """The record of a history. Raises FormatError."""
    if sequence.reward is None:
        raise FormatError(NO_REWARD)
    calls = [trajectory.calls[trajectory.turns[span.turn].call] for span in sequence.completions]
    conversation, answers = _conversation(sequence, trajectory, calls, stats)
    first_answer = answers[0]
    tokens = _tokens(sequence, answers, stats)
    if not tokens:
        raise FormatError(NOTHING_LEFT)
    output: list[JsonObject] = []
    for place, message in enumerate(conversation[first_answer:], start=first_answer):
        items = _items(message, place)
        output += [*items[:-1], items[-1] | tokens.get(place, {})]
    first, last = calls[0], calls[-1]
    tools = [_tool(tool) for tool in first.tools or () if is_function(tool)]
    stats.changed[NO_FUNCTION] += len(first.tools or ()) - len(tools)
    model = last.response_model or last.request_model or ""
    request = {
        "input": [item for place, message in enumerate(conversation[:first_answer]) for item in _items(message, place)],
        "tools": tools,
        "parallel_tool_calls": True,
        "tool_choice": "auto",
    }
    return {
        "responses_create_params": request | ({"model": model} if model else {}),
        "response": {
            "id": last.response_id or f"resp_{last.span_id}",
            "created_at": last.start_ns // 1_000_000_000,
            "model": model,
            "object": "response",
            "output": output,
            "parallel_tool_calls": True,
            "tool_choice": "auto",
            "tools": tools,
        },
        "reward": sequence.reward,
        "rollout_id": sequence.rollout_id,
        "group_id": sequence.group_id,
        "training_step": sequence.training_step,
        "policy_version": sequence.policy_version,
    }


def _conversation(
    sequence: TokenSequence, trajectory: Trajectory, calls: Sequence[Call], stats: ExportStats
) -> tuple[list[JsonObject], list[int]]:
    """Return the messages of the history, and the place of each trained completion among them.

    Raises FormatError if messages are unknown, or if those of a prompt are not the messages that stand before its
    answer.
    """
    prompts = [call.input_messages for call in calls]
    sampled = [trajectory.turns[span.turn].message for span in sequence.completions]
    if any(not prompt for prompt in prompts) or None in sampled:
        raise FormatError(NO_MESSAGES)
    messages = [*(prompts[-1] or ()), sampled[-1]]
    answers = [len(prompt or ()) for prompt in prompts]
    for prompt, position, message in zip(prompts, answers, sampled, strict=True):
        before, answer = messages[:position], messages[position : position + 1]
        if _identities(before) != _identities(prompt or ()) or [one and one.role for one in answer] != ["assistant"]:
            raise FormatError(APART)
        messages[position] = message
    written = [text_message(chat_message(message), stats) for message in messages if message is not None]
    return written, answers


def _identities(messages: Sequence[Message | None]) -> list[object]:
    """What lineage compares of messages: neither reasoning, nor how the arguments of a tool are spelled."""
    return [message and message.identity for message in messages]


def _tokens(sequence: TokenSequence, answers: Sequence[int], stats: ExportStats) -> dict[int, JsonObject]:
    """The fields of the item that ends each trained message, by the message's place."""
    tokens: dict[int, JsonObject] = {}
    for span, place in zip(sequence.completions, answers, strict=True):
        logprobs = sequence.logprobs[span.start : span.end]
        if np.isnan(logprobs).any():
            stats.skipped[NO_LOGPROBS] += 1
            continue
        tokens[place] = {
            "prompt_token_ids": sequence.input_ids[: span.start].tolist(),
            "generation_token_ids": sequence.input_ids[span.start : span.end].tolist(),
            "generation_log_probs": logprobs.tolist(),
        }
    return tokens


def _tool(tool: JsonObject) -> JsonObject:
    """A function as the Responses API describes it."""
    function = tool["function"]
    return {
        "type": "function",
        "name": function["name"],
        "description": function.get("description"),
        "parameters": function.get("parameters"),
        "strict": function.get("strict"),
    }


def _items(message: Mapping[str, Any], place: int) -> list[JsonObject]:
    """The items of a message whose content is text. Raises FormatError."""
    if message["role"] == "assistant":
        return _sampled_items(message, place)
    if message["role"] == "tool":
        call_id = message.get("tool_call_id")
        if not call_id:
            raise FormatError(NO_CALL_ID)
        return [{"type": "function_call_output", "call_id": call_id, "output": message["content"]}]
    if message["role"] not in _ASKING:
        raise FormatError(NO_SUCH_ROLE)
    return [{"type": "message", "role": message["role"], "content": message["content"]}]


def _sampled_items(message: Mapping[str, Any], place: int) -> list[JsonObject]:
    """The items of what the policy sampled, in this order: reasoning, text, tool calls."""
    items: list[JsonObject] = []
    calls: Sequence[Mapping[str, Any]] = message.get("tool_calls") or ()
    if reasoning := message.get("reasoning_content"):
        summary = [{"type": "summary_text", "text": reasoning}]
        items.append({"type": "reasoning", "id": f"rs_{place}", "summary": summary})
    if message["content"] or not calls:
        text: JsonObject = {"type": "output_text", "text": message["content"], "annotations": []}
        answer = {"type": "message", "id": f"msg_{place}", "role": "assistant", "status": "completed"}
        items.append({**answer, "content": [text]})
    for call in calls:
        if not call.get("id"):
            raise FormatError(NO_CALL_ID)
        function = call["function"]
        tool_call = {"type": "function_call", "call_id": call["id"], "name": function["name"]}
        items.append({**tool_call, "arguments": function["arguments"]})
    return items
