"""SGLang: the answers of `tests.tracing.wire` with token ids where SGLang puts them, and what it refuses.

Invariant: `truth` has the ids and log-probabilities that were sampled, whether or not they were asked for.

Source of the format: SGLang 0.5.23, `entrypoints/openai/serving_chat.py`.
"""

from collections.abc import Iterator, Mapping

from tests.tracing import wire

INPUT_IDS = "x-sglext-return-input-ids"
OUTPUT_IDS = "x-sglext-return-output-ids"
_EXTENSION = {INPUT_IDS: "return_input_ids_in_sglext", OUTPUT_IDS: "return_output_ids_in_sglext"}


def asked(body: dict, headers: Mapping[str, str]) -> dict:
    """The request with what its headers ask for as fields."""
    return {**body, **{field: True for header, field in _EXTENSION.items() if headers.get(header) == "1"}}


def refusal(body: dict) -> str | None:
    """Why a request is refused."""
    if not (body.get("stream") and body.get("return_token_ids")):
        return None
    where = "return_token_ids is not supported with streaming on /v1/chat/completions."
    return f"{where} Please set stream=false when using return_token_ids=true."


def truth(body: dict, response_id: str) -> dict:
    """A whole chat completion with all that was sampled."""
    return wire.chat({**body, "return_token_ids": True, "logprobs": True}, response_id)


def chat(body: dict, response_id: str) -> dict:
    """A whole chat completion."""
    answer = wire.chat(_of_openai(body), response_id)
    for choice, sampled in zip(answer["choices"], truth(body, response_id)["choices"], strict=True):
        _spell(choice)
        if body.get("return_token_ids"):
            choice["response_token_ids"] = sampled["token_ids"]
            choice["prompt_token_ids"] = truth(body, response_id)["prompt_token_ids"]
    return {**answer, "sglext": _extension(body, response_id)}


def chat_chunks(body: dict, response_id: str) -> Iterator[dict]:
    """The same as chunks; the extension stands in one without choices, before that of the usage."""
    extension = _extension(body, response_id)
    for chunk in wire.chat_chunks(_of_openai(body), response_id):
        if extension is not None and not chunk["choices"]:
            yield {**chunk, "usage": None, "sglext": extension}
            extension = None
        for choice in chunk["choices"]:
            _spell(choice)
        yield chunk
    if extension is not None:
        head = {name: chunk[name] for name in ("id", "object", "created", "model")}
        yield {**head, "choices": [], "usage": None, "sglext": extension}


def _of_openai(body: dict) -> dict:
    return {name: value for name, value in body.items() if name != "return_token_ids"}


def _spell(choice: dict) -> None:
    """Write tokens as texts, which say no ids."""
    for entry in (choice["logprobs"] or {}).get("content", ()):
        entry["token"] = "t"


def _extension(body: dict, response_id: str) -> dict | None:
    whole = truth(body, response_id)
    extension: dict = {}
    if body.get(_EXTENSION[INPUT_IDS]):
        extension["input_ids"] = whole["prompt_token_ids"]
    if body.get(_EXTENSION[OUTPUT_IDS]):
        extension["output_ids"] = [choice["token_ids"] for choice in whole["choices"]]
    return extension or None
