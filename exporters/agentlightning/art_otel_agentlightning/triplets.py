"""Triplets: a trajectory as Agent Lightning's rollout of triplets.

Invariant: each completion with tokens is the response of exactly one triplet, or counted with the reason why it is not;
the ids of a prompt are what the server saw. Triplets stand in the order of their calls. `response.logprobs` is there
only where every token has one, as in a triplet that Agent Lightning 0.3 makes; elsewhere `response.log_probs`, which
Agent Lightning 1.0 reads, is None.

Source: `RolloutLegacy` and `Triplet` in `agentlightning/types/core.py`, and `span_to_triplet` in
`agentlightning/adapter/triplet.py`, of Agent Lightning 0.3.0; `CompletedRollout` in
`agentlightning/verl/agl_rollout_manager.py` and `RolloutAdapter` of 1.0.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal, cast

import msgspec
import numpy as np
from msgspec import Meta

from art_otel import attributes as names
from art_otel.calls import InferenceCall
from art_otel.exporting import ExportStats, JsonObject, ScoredTrajectory, sequences_of, unrewarded
from art_otel.trajectories import ChatMessage, Trajectory, Turn, chat_message

NULL: Final = "final rewards that are null, for which Agent Lightning's trainer takes 0: {}"
EARLIER: Final = "rollouts whose calls have different rewards, written with the last one (reward=each keeps all)"
NO_LOGPROBS: Final = "triplets without logprobs"


@dataclass(frozen=True, kw_only=True, slots=True)
class TripletsConfig:
    """Options of `triplets`."""

    reward: Annotated[
        Literal["last", "each"],
        Meta(
            description="last: only the last triplet has a reward, that of the rollout. each: every triplet has the"
            " reward of its turn, for rewards of steps or calls. Readers of triplets add their rewards up"
        ),
    ] = "last"
    raw_content: Annotated[
        bool, Meta(description="write the messages of prompts and responses beside their token ids")
    ] = True


def encode_triplets(
    items: Iterator[ScoredTrajectory], config: TripletsConfig, stats: ExportStats
) -> Iterator[JsonObject]:
    """Yield a record for each rollout that has a completion, as `RolloutLegacy.model_validate_json` reads it."""
    for item in items:
        completions = _completions(item, stats)
        if completions:
            yield _rollout(item.trajectory, completions, config, stats)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Completion:
    """A sampled completion. `prompt_ids` are those of its whole prompt. `logprobs` is None if one is no number."""

    call: InferenceCall
    turn: Turn
    prompt_ids: list[int]
    response_ids: list[int]
    logprobs: list[float] | None
    reward: float | None


def _completions(item: ScoredTrajectory, stats: ExportStats) -> list[_Completion]:
    """The completions by their turns, which are in the order of calls."""
    by_turn: dict[int, _Completion] = {}
    for sequence in sequences_of(item, stats):
        for span, reward in zip(sequence.completions, sequence.rewards, strict=True):
            turn, logprobs = item.trajectory.turns[span.turn], sequence.logprobs[span.start : span.end]
            by_turn[span.turn] = _Completion(
                call=item.trajectory.calls[turn.call],
                turn=turn,
                prompt_ids=sequence.input_ids[: span.start].tolist(),
                response_ids=sequence.input_ids[span.start : span.end].tolist(),
                logprobs=logprobs.tolist() if np.isfinite(logprobs).all() else None,
                reward=reward,
            )
    return [by_turn[turn] for turn in sorted(by_turn)]


def _rollout(
    trajectory: Trajectory, completions: Sequence[_Completion], config: TripletsConfig, stats: ExportStats
) -> JsonObject:
    """Make the completions of a trajectory a rollout. By default only its last triplet has the reward."""
    final = next((one.reward for one in reversed(completions) if one.reward is not None), None)
    if final is None:
        stats.changed[NULL.format(unrewarded(trajectory) or "no reward")] += 1
    rewards = [one.reward for one in completions]
    if config.reward == "last":
        stats.changed[EARLIER] += len(set(rewards)) > 1
        rewards = [*[None] * (len(completions) - 1), final]
    return {
        "rollout_id": trajectory.rollout_id,
        "final_reward": final,
        "triplets": [
            _triplet(completion, reward, stats, raw_content=config.raw_content)
            for completion, reward in zip(completions, rewards, strict=True)
        ],
        "logs": list(trajectory.logs),
        "metadata": dict(_metadata(trajectory)),
    }


def _metadata(trajectory: Trajectory) -> Iterator[tuple[str, Any]]:
    """The fields of a trajectory that their rollout has no field for, under the names of our attributes."""
    fields = {
        names.ROLLOUT_NAME: trajectory.name,
        names.ROLLOUT_ATTEMPT: trajectory.attempt,
        names.GROUP_ID: trajectory.group_id,
        names.SPLIT: trajectory.split,
        names.TRAINING_STEP: trajectory.training_step,
        "trace_id": trajectory.trace_id,
        "status": trajectory.status,
        "error": trajectory.error,
    }
    yield from ((name, value) for name, value in fields.items() if value is not None)
    yield from ((names.METRIC_PREFIX + name, value) for name, value in trajectory.metrics.items())
    yield from ((names.METADATA_PREFIX + name, value) for name, value in trajectory.metadata.items())


def _triplet(completion: _Completion, reward: float | None, stats: ExportStats, *, raw_content: bool) -> JsonObject:
    """Make a completion a triplet. `raw_content` adds the messages of the prompt and the response."""
    input_messages = completion.call.input_messages
    messages = None if input_messages is None else [chat_message(message) for message in input_messages]
    prompt: JsonObject = {"token_ids": completion.prompt_ids, "image_urls": _image_urls(messages or [])}
    response: JsonObject = {"token_ids": completion.response_ids, "log_probs": completion.logprobs}
    if raw_content:
        prompt["raw_content"] = messages
        response["raw_content"] = _answer(completion.turn)
    if completion.logprobs is None:
        stats.changed[NO_LOGPROBS] += 1
    else:
        response["logprobs"] = _logprobs(completion.response_ids, completion.logprobs)
    return {"prompt": prompt, "response": response, "reward": reward, "metadata": _call_metadata(completion)}


def _logprobs(ids: Sequence[int], logprobs: Sequence[float]) -> list[JsonObject]:
    """Make a `ChatCompletionTokenLogprob` of OpenAI for each token.

    No recording has the text of a token, so its id stands there, as vLLM writes it.
    """
    return [
        {"token": f"token_id:{token}", "bytes": None, "logprob": logprob, "top_logprobs": []}
        for token, logprob in zip(ids, logprobs, strict=True)
    ]


def _answer(turn: Turn) -> list[JsonObject] | None:
    """The sampled message and its finish reason, in a list of one; None if nobody recorded the message."""
    if turn.message is None:
        return None
    return [chat_message(turn.message) | {"finish_reason": turn.finish_reason}]


def _image_urls(messages: Sequence[ChatMessage]) -> list[str]:
    """The images of a prompt. Their trainer needs them for the positions of tokens."""
    urls: list[str] = []
    for message in messages:
        content: object = message["content"]
        for part in cast(list[JsonObject], content) if isinstance(content, list) else ():
            image: object = part.get("image_url")
            url: object = cast(JsonObject, image).get("url") if isinstance(image, dict) else None
            if isinstance(url, str):
                urls.append(url)
    return urls


def _call_metadata(completion: _Completion) -> JsonObject:
    """The request and the response of the call, as far as they are recorded, and what identifies both."""
    call, turn = completion.call, completion.turn
    request = dict(call.parameters)
    request |= {} if call.request_model is None else {"model": call.request_model}
    request |= {} if call.tools is None else {"tools": list(call.tools)}
    response = {
        "id": call.response_id,
        "model": call.response_model,
        "finish_reason": turn.finish_reason,
        "usage": None if call.usage is None else msgspec.to_builtins(call.usage),
    }
    fields = {
        "agent_name": call.agent,
        "step": call.step,
        "choice": turn.choice,
        "policy_version": call.policy_version,
    }
    return {
        "request": request,
        "response": {name: value for name, value in response.items() if value is not None},
        "response_id": call.response_id,
        "span_id": call.span_id,
        **{name: value for name, value in fields.items() if value is not None},
    }
