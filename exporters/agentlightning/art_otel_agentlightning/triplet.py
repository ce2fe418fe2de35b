"""Triplet: one completion of a call as Agent Lightning's `Triplet`.

Invariant: `response.logprobs` is there only where every token has one, as in a triplet that Agent Lightning 0.3 makes;
`response.log_probs`, which Agent Lightning 1.0 reads, is None there.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias, cast

import msgspec

from art_otel.calls import InferenceCall
from art_otel.exporting import ExportStats
from art_otel.trajectories import ChatMessage, Turn, chat_message

JsonObject: TypeAlias = dict[str, Any]

NO_LOGPROBS: Final = "triplets without logprobs"


@dataclass(frozen=True, kw_only=True, slots=True)
class Sampled:
    """A completion: its turn and call, the ids of its whole prompt and its own, its logprobs where known."""

    call: InferenceCall
    turn: Turn
    prompt_ids: list[int]
    response_ids: list[int]
    logprobs: list[float] | None


def triplet(sampled: Sampled, reward: float | None, stats: ExportStats, *, raw_content: bool) -> JsonObject:
    """The triplet."""
    input_messages = sampled.call.input_messages
    asked = None if input_messages is None else [chat_message(message) for message in input_messages]
    prompt: JsonObject = {"token_ids": sampled.prompt_ids, "image_urls": _image_urls(asked or [])}
    response: JsonObject = {"token_ids": sampled.response_ids, "log_probs": sampled.logprobs}
    if raw_content:
        prompt["raw_content"] = asked
        response["raw_content"] = _answer(sampled.turn)
    if sampled.logprobs is None:
        stats.changed[NO_LOGPROBS] += 1
    else:
        response["logprobs"] = _logprobs(sampled.response_ids, sampled.logprobs)
    return {"prompt": prompt, "response": response, "reward": reward, "metadata": _metadata(sampled)}


def _logprobs(ids: Sequence[int], logprobs: Sequence[float]) -> list[JsonObject]:
    """As OpenAI's `ChatCompletionTokenLogprob`; a token's text, which nobody recorded, as vLLM writes its id."""
    return [
        {"token": f"token_id:{token}", "bytes": None, "logprob": logprob, "top_logprobs": []}
        for token, logprob in zip(ids, logprobs, strict=True)
    ]


def _answer(turn: Turn) -> list[JsonObject] | None:
    if turn.message is None:
        return None
    return [chat_message(turn.message) | {"finish_reason": turn.finish_reason}]


def _image_urls(messages: Sequence[ChatMessage]) -> list[str]:
    """The images of a prompt, which their trainer needs for positions of its tokens."""
    urls: list[str] = []
    for message in messages:
        content: object = message["content"]
        for part in cast(list[JsonObject], content) if isinstance(content, list) else ():
            image: object = part.get("image_url")
            url: object = cast(JsonObject, image).get("url") if isinstance(image, dict) else None
            if isinstance(url, str):
                urls.append(url)
    return urls


def _metadata(sampled: Sampled) -> JsonObject:
    call, turn = sampled.call, sampled.turn
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
