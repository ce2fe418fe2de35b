"""Messages: what ART's histories are made of, messages as dicts and sampled ones as Choices.

Invariant: a message is a Choice where, and only where, it is trained, and a Choice has logprobs where, and only where,
the ids of its prompt, its own ids and as many finite logprobs of the policy are known: ART trains on exactly these.

Source: `art.preprocessing.tokenize` of openpipe-art 0.5.23, which fails on logprobs without `prompt_token_ids` and
`token_ids`, and of 0.5.18, which reads ids of `token_id:<id>` instead.
"""

import math
from typing import Any, Final, TypeAlias

from art_otel.calls import InferenceCall
from art_otel.exporting import ExportStats
from art_otel.trajectories import ChatMessage, Turn, chat_message, is_text
from art_otel_art.config import TrajectoriesConfig

JsonObject: TypeAlias = dict[str, Any]

_EMPTY: Final = dict.fromkeys(("refusal", "annotations", "audio", "function_call", "tool_calls"))
"""What ART's own dump of a Choice has as null."""

_FINISH_REASONS: Final = ("stop", "length", "tool_calls", "content_filter", "function_call")

NOT_TRAINED: Final = "completions without token ids and logprobs, which ART does not train on"
NO_PROMPT_IDS: Final = "completions without the token ids of their prompt, which ART does not train on"
CONSTRAINED: Final = (
    "completions sampled under a grammar, whose logprobs are not the policy's, which ART does not train on"
)
NO_FINISH_REASON: Final = "unknown finish reasons written as stop or tool_calls"
NO_ID: Final = "tool calls without an id given an empty one"
NO_PARTS: Final = "content of sampled messages beside their text left out"
NO_TOOL_CALLS: Final = "tool calls left out beside the sampled tokens that hold them"


def art_choice(call: InferenceCall, turn: Turn, config: TrajectoriesConfig, stats: ExportStats) -> JsonObject | None:
    """The Choice of a turn that is trained; None where ART has none for it, because the role is not assistant."""
    message = turn.message
    if message is None or message.role != "assistant":
        return None
    chat = chat_message(message)
    if not is_text(message):
        stats.changed[NO_PARTS] += 1
        chat["content"] = message.content
    tokens = _tokens(call, turn, stats)
    if tokens and "tool_calls" in chat and config.tool_calls == "drop":
        stats.changed[NO_TOOL_CALLS] += 1
        del chat["tool_calls"]
    reason = turn.finish_reason
    if reason not in _FINISH_REASONS:
        stats.changed[NO_FINISH_REASON] += 1
        reason = "tool_calls" if message.tool_calls else "stop"
    return {
        "finish_reason": reason,
        "index": turn.choice,
        "logprobs": None,
        "message": _EMPTY | _with_ids(chat, stats),
        **tokens,
    }


def _with_ids(chat: ChatMessage, stats: ExportStats) -> ChatMessage:
    calls: list[JsonObject] = chat.get("tool_calls", [])
    for call in calls:
        if "id" not in call:
            stats.changed[NO_ID] += 1
            call["id"] = ""
    return chat


def _tokens(call: InferenceCall, turn: Turn, stats: ExportStats) -> JsonObject:
    """What ART trains on: ids of the prompt, ids and logprobs of the completion. Empty where one is unknown."""
    ids, logprobs = turn.token_ids, turn.logprobs
    if not ids or logprobs is None or len(ids) != len(logprobs) or not all(map(math.isfinite, logprobs)):
        stats.changed[NOT_TRAINED] += 1
        return {}
    if call.prompt_token_ids is None:
        stats.changed[NO_PROMPT_IDS] += 1
        return {}
    if call.is_constrained:
        stats.changed[CONSTRAINED] += 1
        return {}
    content: list[JsonObject] = [
        {"token": f"token_id:{token}", "bytes": None, "logprob": logprob, "top_logprobs": []}
        for token, logprob in zip(ids, logprobs, strict=True)
    ]
    return {
        "logprobs": {"content": content, "refusal": None},
        "prompt_token_ids": call.prompt_token_ids.tolist(),
        "token_ids": ids.tolist(),
    }
