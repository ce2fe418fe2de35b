"""Echo: Completions that were asked with `echo`, whose choices begin with the prompt.

Invariant: what was sampled is what follows the prompt; where it cannot be told where that ends, it is unknown. vLLM
leaves the prompt out of `token_ids`, and out of the text where it was asked for these, but never out of logprobs:
https://github.com/vllm-project/vllm (`vllm/entrypoints/openai/completion/serving.py`).
"""

from collections.abc import Mapping, Sequence

import msgspec

from art_otel.calls import Choice, TokenIds
from art_otel.conventions.attributes import values
from art_otel.conventions.bodies.tokens import choice_tokens, told_ids
from art_otel.conventions.facts import UNSAID, CallFacts
from art_otel.spans import Value


def is_echo(request: Mapping[str, Value]) -> bool:
    """Whether a request's parameters ask for the prompt to be echoed."""
    return values.flag(request.get("echo")) is True


def leaves_prompt_out(request: Mapping[str, Value]) -> bool:
    """Whether a request asks for ids, so that a server that tells them echoes the prompt in neither them nor text."""
    return values.flag(request.get("return_token_ids")) is True


def sampled_tokens(
    choice: dict[str, Value], prompt: Sequence[Value] | None, *, is_left_out: bool
) -> tuple[Value, Value]:
    """As `choice_tokens`, of a choice of Completions; `prompt` is the prompt's ids."""
    found, told = choice_tokens(choice)
    ids, logprobs = values.items(found), values.items(told)
    if ids is None:
        return found, None
    begins = prompt is not None and ids[: len(prompt)] == prompt
    if told_ids(choice) is None:
        if not begins:
            return None, None
        ids = ids[len(prompt or ()) :]
    elif prompt and begins and not is_left_out:  # it may be another server's
        return None, None
    return ids, None if logprobs is None else logprobs[max(0, len(logprobs) - len(ids)) :]


def certain_tokens(choice: Choice, prompt: TokenIds | None, *, is_left_out: bool) -> Choice:
    """The choice without its tokens where these may begin with the prompt's."""
    ids = choice.token_ids
    if ids is None or (prompt is not None and (is_left_out or not ids.startswith(prompt))):
        return choice
    return msgspec.structs.replace(choice, token_ids=None, logprobs=None)


def sampled_facts(facts: CallFacts) -> CallFacts:
    """The facts with what was sampled as messages; choices of which neither that nor tokens are known are left out."""
    if not facts.choices or not is_echo(facts.parameters):
        return facts
    asked = facts.input_messages or ()
    prompt = asked[0].content if len(asked) == 1 else None
    is_left_out = leaves_prompt_out(facts.parameters)
    found = [_sampled(choice, prompt, is_left_out=is_left_out) for choice in facts.choices]
    return msgspec.structs.replace(facts, choices=tuple(choice for choice in found if choice is not None) or None)


def _sampled(choice: Choice, prompt: str | None, *, is_left_out: bool) -> Choice | None:
    said, has_ids = choice.message, choice.token_ids is not None
    if prompt is None:
        return msgspec.structs.replace(choice, message=UNSAID) if has_ids else None
    rest = _after(said.content, prompt) if said.parts is None else None
    if rest is None or (is_left_out and has_ids):
        return choice if has_ids else None
    return msgspec.structs.replace(choice, message=msgspec.structs.replace(said, content=rest))


def _after(text: str | None, prompt: str) -> str | None:
    return text[len(prompt) :] if text is not None and text.startswith(prompt) else None
