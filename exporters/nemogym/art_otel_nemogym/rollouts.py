"""Rollouts: token histories as the lines that NeMo Gym collects.

Invariant: the items of an output that have token ids are the trained completions of the history, each once, and the
prompt of each begins with the prompt and the completion of the one before: what a trainer joins to a sequence.

Source: `BaseVerifyResponse` and `NeMoGymResponse` of NeMo Gym 0.4.0.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Final, TypeAlias

import numpy as np

from art_otel.calls import InferenceCall, Message
from art_otel.exporting import (
    NO_LOGPROBS,
    ExportStats,
    FormatError,
    ScoredTrajectory,
    TokenSequence,
    is_function,
    sequences_of,
    text_message,
)
from art_otel.trajectories import Trajectory, chat_message
from art_otel_nemogym.config import RolloutsConfig
from art_otel_nemogym.items import items_of

JsonObject: TypeAlias = dict[str, Any]

NO_REWARD: Final = "no reward"
NO_MESSAGES: Final = "no messages recorded"
APART: Final = "messages that are no continuation where the token ids are"
NOTHING_LEFT: Final = "sequences that train nothing"
NO_FUNCTION: Final = "tools that are no functions left out"
FURTHER: Final = "further histories of a rollout, as rollouts of their own"


def encode_rollouts(
    items: Iterator[ScoredTrajectory], config: RolloutsConfig, stats: ExportStats
) -> Iterator[JsonObject]:
    """A record for each token history that trains something, has a reward, and whose messages are known."""
    tasks: dict[tuple[str | None, int | None, str], int] = {}
    members: dict[int, int] = {}
    for item in items:
        trajectory = item.trajectory
        found: list[JsonObject] = []
        problem = ""
        for sequence in sequences_of(item, stats):
            try:
                found.append(_record(sequence, trajectory, stats))
            except FormatError as error:
                problem = str(error)
                stats.skipped[problem] += 1
        if problem and not found:
            stats.trajectories_skipped[problem] += 1
        stats.changed[FURTHER] += max(len(found) - 1, 0)
        alone = f"{trajectory.rollout_id} {trajectory.attempt} {trajectory.trace_id}"
        group = trajectory.group_id
        for record in found:
            task = tasks.setdefault((group, trajectory.training_step, alone if group is None else ""), len(tasks))
            members[task] = members.get(task, -1) + 1
            agent = {"name": config.agent or trajectory.name or "art-otel"}
            yield record | {"_ng_task_index": task, "_ng_rollout_index": members[task], "agent_ref": agent}


def _record(sequence: TokenSequence, trajectory: Trajectory, stats: ExportStats) -> JsonObject:
    """The record of a history. Raises FormatError."""
    if sequence.reward is None:
        raise FormatError(NO_REWARD)
    calls = [trajectory.calls[trajectory.turns[span.turn].call] for span in sequence.completions]
    conversation, asked, answers = _conversation(sequence, trajectory, calls, stats)
    tokens = _tokens(sequence, answers, stats)
    if not tokens:
        raise FormatError(NOTHING_LEFT)
    output: list[JsonObject] = []
    for place, message in enumerate(conversation[asked:], start=asked):
        made = items_of(message, place)
        output += [*made[:-1], made[-1] | tokens.get(place, {})]
    first, last = calls[0], calls[-1]
    tools = [_tool(tool) for tool in first.tools or () if is_function(tool)]
    stats.changed[NO_FUNCTION] += len(first.tools or ()) - len(tools)
    model = last.response_model or last.request_model or ""
    asked_for = {
        "input": [item for place, message in enumerate(conversation[:asked]) for item in items_of(message, place)],
        "tools": tools,
        "parallel_tool_calls": True,
        "tool_choice": "auto",
    }
    return {
        "responses_create_params": asked_for | ({"model": model} if model else {}),
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
    sequence: TokenSequence, trajectory: Trajectory, calls: Sequence[InferenceCall], stats: ExportStats
) -> tuple[list[JsonObject], int, list[int]]:
    """The messages of the history, how many of them were asked, and where each trained completion stands.

    Raises FormatError where they are unknown, or where those of a prompt are not the ones before it and its answer.
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
    return written, answers[0], answers


def _identities(messages: Sequence[Message | None]) -> list[object]:
    """What lineage compares of messages: not their reasoning, nor how the arguments of a tool are spelled."""
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
