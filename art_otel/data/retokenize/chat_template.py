"""ChatTemplate: how a server's chat template writes a conversation, by a Hugging Face tokenizer.

Invariant: a prompt is rendered as the server rendered it, with the messages, tools and `chat_template_kwargs` of its
call. A completion ends with the stop token the policy sampled; what the template writes behind it is no completion.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from inspect import signature
from typing import Any, Final, cast

from art_otel.calls import InferenceCall, Message, TokenIds
from art_otel.data.retokenize.template_message import template_message
from art_otel.data.tokenizer import ChatTokenizer
from art_otel.errors import UsageError
from art_otel.trajectories import ChatMessage

_MARKERS: Final = re.compile(r"\{%-?\s*generation\s*-?%\}")
"""Where a template says itself what the assistant generates: `{% generation %}`."""


class RefusedError(Exception):
    """The template raised for these messages."""


@dataclass(frozen=True, slots=True)
class Sample:
    """A completion and what it answered: the call, its prompt, and the sampled message."""

    turn: int
    call: InferenceCall
    prompt: Sequence[Message]
    message: Message
    finish_reason: str | None


class ChatTemplate:
    """The tokenizer's template. Raises UsageError for a tokenizer without one, and for what is no tokenizer."""

    def __init__(self, tokenizer: ChatTokenizer) -> None:
        if not callable(getattr(tokenizer, "apply_chat_template", None)):
            raise UsageError(
                f"tokenizer={tokenizer!r:.200}: give a tokenizer itself, as"
                ' transformers.AutoTokenizer.from_pretrained("Qwen/Qwen3-8B") makes one'
            )
        template: object = getattr(tokenizer, "chat_template", None)
        if not template:
            raise UsageError(f"{type(tokenizer).__name__} has no chat template; set tokenizer.chat_template")
        self._tokenizer = tokenizer
        self._options = frozenset(signature(tokenizer.apply_chat_template).parameters)
        self._marked = _MARKERS.search(str(template)) is not None and bool(getattr(tokenizer, "is_fast", False))
        self._stops = _special_tokens(tokenizer)
        self._ending = self._find_ending()

    def prompt(self, sample: Sample) -> str:
        """What the server asked the policy to go on with. Raises RefusedError."""
        return str(self._apply(sample, (), tokenize=False, add_generation_prompt=True))

    def answered(self, sample: Sample) -> str:
        """The conversation that ends with the completion. Raises RefusedError."""
        return str(self._apply(sample, (sample.message,), tokenize=False))

    def end_of_completion(self, text: str, start: int, finish_reason: str | None) -> int:
        """Where the completion that starts at `start` ends in the text of `answered`.

        Behind the stop token stand a newline and the like, which the template wrote. A completion that ran into the
        token limit has no stop token.
        """
        end = len(text.rstrip())
        if self._ending and text.endswith(self._ending, start, end):
            end = len(text[: end - len(self._ending)].rstrip())
        stop = next((stop for stop in self._stops if text.endswith(stop, start, end)), "")
        if finish_reason == "length":
            end -= len(stop)
        return max(start, end)

    def token_ids(self, text: str) -> TokenIds:
        """The ids of a text that was rendered. Shape: (tokens,)."""
        encoding = self._tokenizer(text, add_special_tokens=False, truncation=False, padding=False, verbose=False)
        return TokenIds(TokenIds.of(encoding["input_ids"]).data)

    def generated(self, sample: Sample) -> tuple[TokenIds, Sequence[int]] | None:
        """The ids of `answered` and a 1 for each that the template marks as generated; None if it has no markers."""
        if not self._marked:
            return None
        options = {"return_dict": True, "return_assistant_tokens_mask": True, "truncation": False, "padding": False}
        encoding = self._apply(sample, (sample.message,), tokenize=True, **options)
        return TokenIds(TokenIds.of(encoding["input_ids"]).data), encoding["assistant_masks"]

    def _apply(self, sample: Sample, answer: Sequence[Message], **options: Any) -> Any:  # noqa: ANN401 # str or ids
        messages = [template_message(message) for message in (*sample.prompt, *answer)]
        tools = list(sample.call.tools or ()) or None
        return self._render(messages, tools=tools, **(self._variables(sample.call) | options))

    def _variables(self, call: InferenceCall) -> dict[str, Any]:
        """The template's variables that the request set (vLLM's and SGLang's `chat_template_kwargs`)."""
        requested: object = call.parameters.get("chat_template_kwargs")
        if not isinstance(requested, dict):
            return {}
        # What is an option of the tokenizer is no variable: a recording must not choose the template, say.
        named = cast(dict[str, Any], requested).items()
        return {name: value for name, value in named if name not in self._options}

    def _render(self, messages: Sequence[ChatMessage], **options: Any) -> Any:  # noqa: ANN401 # str or ids
        try:
            return self._tokenizer.apply_chat_template(messages, **options)
        except ImportError:
            raise
        except Exception as error:  # a template is a program: it raises what it likes for messages it does not like
            raise RefusedError(f"{type(error).__name__}: {error}") from error

    def _find_ending(self) -> str:
        """The token that the template writes at the end of a conversation only, not of each message; or ''."""
        greeting: list[ChatMessage] = [{"role": "user", "content": "a"}]
        try:
            closed = str(self._render(greeting, tokenize=False))
            is_open = str(self._render(greeting, tokenize=False, add_generation_prompt=True)).startswith(closed)
        except RefusedError:
            return ""
        return "" if is_open else next((stop for stop in self._stops if closed.rstrip().endswith(stop)), "")


def _special_tokens(tokenizer: ChatTokenizer) -> tuple[str, ...]:
    """The texts of special tokens, long ones first."""
    added: Mapping[int, Any] = getattr(tokenizer, "added_tokens_decoder", {})
    named: Sequence[object] = getattr(tokenizer, "all_special_tokens", ())
    texts = {str(token) for token in named} | {str(token.content) for token in added.values() if token.special}
    return tuple(sorted(texts, key=lambda token: (-len(token), token)))
