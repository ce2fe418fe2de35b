"""Retokenizing: make token ids of messages with the policy's chat template, for completions without a server's ids.

    messages of a call ─► text by the template ─► texts that continue each other ─► tokens ─► histories

Invariant: each trained completion is trained in one such history, or skipped with a reason. The histories are marked
as retokenized and have no logprobs. A prompt is rendered with the messages, tools and `chat_template_kwargs` of its
call. A completion ends with the policy's stop token: the token that the template writes after an answer, or at the
begin of the next message (GLM-4.5); if neither shows it, there is none, and the completion's span says so.

If a later prompt has an earlier completion in another form (thinking dropped, other tokens), a new history starts.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from inspect import signature
from itertools import zip_longest
from typing import Any, NamedTuple, Protocol, cast

import msgspec

from art_otel.calls import Message, TokenIds
from art_otel.conventions import EARLY_ENDS
from art_otel.data.sequences import MadeHistories, MakeHistories
from art_otel.errors import UsageError
from art_otel.spans import JsonObject
from art_otel.trajectories import (
    Call,
    ChatMessage,
    CompletionSpan,
    History,
    HistoryMessage,
    TokenHistory,
    Trajectory,
    histories,
    is_text,
    message_json,
)


class ChatTokenizer(Protocol):
    """A Hugging Face tokenizer with a chat template (`transformers.PreTrainedTokenizerBase`)."""

    def apply_chat_template(self, conversation: Any, **options: Any) -> Any:  # noqa: ANN401 # as transformers has it
        """Render or tokenize messages."""
        ...

    def __call__(self, text: str, **options: Any) -> Any:  # noqa: ANN401 # as transformers has it
        """Tokenize text; `["input_ids"]` are the ids."""
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class Skipped:
    """Completions of these turns that could not be tokenized. `reason` is a skip reason, `detail` the exact problem."""

    turns: tuple[int, ...]
    reason: str
    detail: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class RetokenizedHistories:
    """The made histories of a trajectory, and its completions that could not be tokenized.

    `histories` have no logprobs: the policy's logprobs of these ids are unknown.
    """

    histories: tuple[TokenHistory, ...]
    skipped: tuple[Skipped, ...]


class RefusedError(Exception):
    """The chat template raised an error for these messages."""


@dataclass(frozen=True, slots=True)
class Sample:
    """A completion with its call, the call's prompt, and the sampled message.

    `following` is the next message of the history, or None.
    """

    turn: int
    call: Call
    prompt: Sequence[Message]
    message: Message
    finish_reason: str | None
    following: Message | None


class ChatTemplate:
    """A tokenizer's chat template. Raises UsageError for a tokenizer without one, and for another object."""

    def __init__(self, tokenizer: ChatTokenizer) -> None:
        if not callable(getattr(tokenizer, "apply_chat_template", None)):
            raise UsageError(
                f"tokenizer={tokenizer!r:.200}: give a tokenizer, not its name, such as "
                'transformers.AutoTokenizer.from_pretrained("Qwen/Qwen3-8B")'
            )
        template: object = getattr(tokenizer, "chat_template", None)
        if not template:
            raise UsageError(f"{type(tokenizer).__name__} has no chat template; set tokenizer.chat_template")
        self._tokenizer = tokenizer
        self._options = frozenset(signature(tokenizer.apply_chat_template).parameters)
        self._stops = _special_tokens(tokenizer)
        self._ending = self._find_ending()

    def prompt(self, sample: Sample) -> str:
        """The rendered prompt, which the policy continued. Raises RefusedError."""
        return str(self._apply(sample, (), tokenize=False, add_generation_prompt=True))

    def answered(self, sample: Sample) -> str:
        """The rendered prompt and completion. Raises RefusedError."""
        return str(self._apply(sample, (sample.message,), tokenize=False))

    def completion(self, sample: Sample, text: str, start: int) -> "_Ended":
        """The text of `answered` up to the end of the completion that starts at `start`.

        A completion that was cut at the token limit, or by a filter, gets no stop token.
        """
        # After the stop token the template writes a newline and the like, which the policy did not sample.
        end = self._end_of_text(text, start)
        stop = next((stop for stop in self._stops if text.endswith(stop, start, end)), "")
        if sample.finish_reason in EARLY_ENDS:
            return _Ended(text[: max(start, end - len(stop))], is_end_known=True)
        if stop:
            return _Ended(text[:end], is_end_known=True)
        shown = self._stop_in_next_message(sample, start)
        return _Ended(text[: max(start, end)] + shown, is_end_known=bool(shown))

    def _end_of_text(self, text: str, start: int) -> int:
        """The end of the last message, without the token and the spaces that only end a whole conversation."""
        end = len(text.rstrip())
        if self._ending and text.endswith(self._ending, start, end):
            end = len(text[: end - len(self._ending)].rstrip())
        return end

    def _stop_in_next_message(self, sample: Sample, start: int) -> str:
        """The text from the end of the answer to the next special token, e.g. GLM-4.5's `<|user|>`; or ""."""
        if sample.following is None or sample.following.role == "assistant":
            return ""
        # A template may drop the reasoning when a message follows: then the answer without reasoning is compared.
        for answer in (sample.message, msgspec.structs.replace(sample.message, reasoning=None)):
            try:
                closed = str(self._apply(sample, (answer,), tokenize=False))
                followed = str(self._apply(sample, (answer, sample.following), tokenize=False))
            except RefusedError:
                continue
            closed = closed[: self._end_of_text(closed, start)]
            if followed.startswith(closed):
                behind = followed[len(closed) :]
                spaces = len(behind) - len(behind.lstrip())
                stop = next((stop for stop in self._stops if behind.startswith(stop, spaces)), "")
                return behind[: spaces + len(stop)] if stop else ""
        return ""

    def token_ids(self, text: str) -> TokenIds:
        """Tokenize rendered text. Shape: (tokens,)."""
        encoding = self._tokenizer(text, add_special_tokens=False, truncation=False, padding=False, verbose=False)
        return TokenIds(TokenIds.of(encoding["input_ids"]).data)

    def _apply(self, sample: Sample, answer: Sequence[Message], **options: Any) -> Any:  # noqa: ANN401 # str or ids
        messages = [template_message(message) for message in (*sample.prompt, *answer)]
        tools = list(sample.call.tools or ()) or None
        return self._render(messages, tools=tools, **(self._variables(sample.call) | options))

    def _variables(self, call: Call) -> dict[str, Any]:
        """The template's variables that the request set (vLLM's and SGLang's `chat_template_kwargs`)."""
        requested: object = call.parameters.get("chat_template_kwargs")
        if not isinstance(requested, dict):
            return {}
        # An option of the tokenizer is no variable: a recording must not choose the template, for example.
        named = cast(dict[str, Any], requested).items()
        return {name: value for name, value in named if name not in self._options}

    def _render(self, messages: Sequence[ChatMessage], **options: Any) -> Any:  # noqa: ANN401 # str or ids
        try:
            return self._tokenizer.apply_chat_template(messages, **options)
        except ImportError:
            raise
        except Exception as error:  # a template is a program, which may raise anything for messages that it refuses
            raise RefusedError(f"{type(error).__name__}: {error}") from error

    def _find_ending(self) -> str:
        """The token that the template writes only at the end of a conversation, not of each message; or ""."""
        greeting: list[ChatMessage] = [{"role": "user", "content": "a"}]
        try:
            closed = str(self._render(greeting, tokenize=False))
            is_open = str(self._render(greeting, tokenize=False, add_generation_prompt=True)).startswith(closed)
        except RefusedError:
            return ""
        return "" if is_open else next((stop for stop in self._stops if closed.rstrip().endswith(stop)), "")


class _Ended(NamedTuple):
    """A conversation up to the end of its last completion, and whether the policy's stop token there is known."""

    text: str
    is_end_known: bool


@dataclass(frozen=True, slots=True)
class _RenderedCompletion:
    """A trained completion and its place, `start` to `end` (exclusive), in characters or in tokens."""

    sample: Sample
    start: int
    end: int
    is_end_known: bool


@dataclass(slots=True)
class _RenderedText:
    """A conversation as text up to the end of its last completion."""

    text: str = ""
    completions: list[_RenderedCompletion] = field(default_factory=list[_RenderedCompletion])


@dataclass(slots=True)
class _RenderedTokens:
    """A conversation as tokens up to the end of its last completion."""

    ids: TokenIds = field(default_factory=TokenIds)
    completions: list[_RenderedCompletion] = field(default_factory=list[_RenderedCompletion])


def retokenizing_histories(tokenizer: ChatTokenizer) -> MakeHistories:
    """A function that makes token histories of a trajectory's completions without ids.

    Raises UsageError for a tokenizer without a chat template, and for an object that is no tokenizer.
    """
    template = ChatTemplate(tokenizer)

    def histories(trajectory: Trajectory) -> MadeHistories:
        made = retokenize(trajectory, template)
        skipped = {turn: each.reason for each in made.skipped for turn in each.turns}
        return MadeHistories(made.histories, skipped)

    return histories


def retokenize(
    trajectory: Trajectory, tokenizer: ChatTokenizer | ChatTemplate, given: Iterable[History] | None = None
) -> RetokenizedHistories:
    """Tokenize the `given` histories; None: the histories with completions without ids, in which only these train.

        template = ChatTemplate(tokenizer)      # once, for many trajectories
        retokenize(trajectory, template).histories

    `tokenizer` is a Hugging Face tokenizer with the policy's chat template. Each prompt is rendered with the wording
    that it was sent in. The loss mask covers the completion with its stop token, if this is known and the answer was
    not cut at the token limit or by a filter.

    The trajectory must have its messages. Text is rendered twice per completion, so the cost grows with the square of a
    conversation's length. Raises UsageError for a tokenizer without a chat template.
    """
    template = tokenizer if isinstance(tokenizer, ChatTemplate) else ChatTemplate(tokenizer)
    made_histories: list[TokenHistory] = []
    skipped: list[Skipped] = []
    for history in histories_without_ids(trajectory) if given is None else given:
        if history.messages is None:
            skipped.append(Skipped(turns=history.turns, reason="messages unknown"))
            continue
        for text in _texts(_samples(trajectory, history.messages), template, skipped):
            made_histories.extend(map(_build, _tokenize(text, template)))
    return RetokenizedHistories(histories=tuple(made_histories), skipped=tuple(skipped))


def histories_without_ids(trajectory: Trajectory) -> tuple[History, ...]:
    """The histories with completions without token ids. Only these are trained; completions with ids are context."""
    turns = trajectory.turns
    result: list[History] = []
    for history in histories(trajectory):
        if all(turns[turn].has_tokens for turn in history.turns):
            continue
        messages = history.messages and tuple(
            replace(entry, trained=entry.trained and entry.turn is not None and not turns[entry.turn].has_tokens)
            for entry in history.messages
        )
        result.append(replace(history, messages=messages))
    return tuple(result)


def _samples(trajectory: Trajectory, messages: Sequence[HistoryMessage]) -> Iterator[Sample]:
    for entry, next_entry in zip_longest(messages, messages[1:]):
        if entry.trained and entry.turn is not None:
            turn = trajectory.turns[entry.turn]
            prompt = trajectory.calls[turn.call].input_messages or ()
            following = None if next_entry is None else next_entry.message
            yield Sample(entry.turn, trajectory.calls[turn.call], prompt, entry.message, turn.finish_reason, following)


def _texts(samples: Iterable[Sample], template: ChatTemplate, skipped: list[Skipped]) -> Iterator[_RenderedText]:
    """Render the samples. Samples whose texts continue each other share one text."""
    current = _RenderedText()
    for sample in samples:
        rendered = _render(sample, template)
        if isinstance(rendered, Skipped):
            skipped.append(rendered)
            continue
        prompt, text = rendered
        if current.completions and not prompt.startswith(current.text):
            yield current
            current = _RenderedText()
        current.text, is_end_known = template.completion(sample, text, len(prompt))
        current.completions.append(_RenderedCompletion(sample, len(prompt), len(current.text), is_end_known))
    if current.completions:
        yield current


def _render(sample: Sample, template: ChatTemplate) -> tuple[str, str] | Skipped:
    """The rendered prompt, and the rendered prompt with the completion; or why the sample is skipped."""
    turns = (sample.turn,)
    if sample.call.operation_name == "text_completion":
        return Skipped(turns=turns, reason="not a chat")
    if sample.call.parameters.get("continue_final_message"):
        return Skipped(turns=turns, reason="continues a message")
    if not all(is_text(message) for message in (*sample.prompt, sample.message)):
        return Skipped(turns=turns, reason="not text alone")
    try:
        prompt, text = template.prompt(sample), template.answered(sample)
    except RefusedError as error:
        return Skipped(turns=turns, reason="rejected by the chat template", detail=str(error))
    if not text.startswith(prompt):
        return Skipped(turns=turns, reason="prompt rendered otherwise")
    if not _is_whole(sample.message, text[len(prompt) :]):
        return Skipped(turns=turns, reason="not rendered whole")
    return prompt, text


def _is_whole(message: Message, completion: str) -> bool:
    """Whether the template wrote the whole answer: some drop thinking, tool calls, or the text beside tool calls."""
    written = "".join(completion.split())
    parts = (message.content, message.refusal, message.reasoning, *(call.name for call in message.tool_calls))
    return all("".join(text.split()) in written for text in parts if text is not None)


def _tokenize(text: _RenderedText, template: ChatTemplate) -> Iterator[_RenderedTokens]:
    """Tokenize the text; into several histories if a later prompt's tokens do not continue the earlier ones."""
    pieces: list[TokenIds] = []
    tokens = _RenderedTokens()
    end = size = 0
    for completion in text.completions:
        context, sampled = text.text[end : completion.start], text.text[completion.start : completion.end]
        pieces += (template.token_ids(context), template.token_ids(sampled))
        start = size + len(pieces[-2])
        end, size = completion.end, start + len(pieces[-1])
        tokens.completions.append(replace(completion, start=start, end=size))
    tokens.ids = TokenIds(b"".join(piece.data for piece in pieces))
    # If the pieces together have the ids of the whole, no token crosses a border: each prompt has these ids by itself.
    if tokens.ids == template.token_ids(text.text):
        yield tokens
    else:
        yield from _tokenize_each(text, template)


def _tokenize_each(text: _RenderedText, template: ChatTemplate) -> Iterator[_RenderedTokens]:
    """Every prompt tokenized as a whole, as the server did."""
    current = _RenderedTokens()
    for completion in text.completions:
        prompt = template.token_ids(text.text[: completion.start])
        answered = template.token_ids(text.text[: completion.end])
        if not answered.startswith(prompt):
            # A token crosses the border between prompt and completion, which cannot have been sampled like this.
            answered = prompt + template.token_ids(text.text[completion.start : completion.end])
        if current.completions and not prompt.startswith(current.ids):
            yield current
            current = _RenderedTokens()
        current.ids = answered
        current.completions.append(replace(completion, start=len(prompt), end=len(answered)))
    yield current


def _build(tokens: _RenderedTokens) -> TokenHistory:
    mask = bytearray(len(tokens.ids))
    spans: list[CompletionSpan] = []
    for one in tokens.completions:
        mask[one.start : one.end] = b"\1" * (one.end - one.start)
        spans.append(
            CompletionSpan(
                turn=one.sample.turn, start=one.start, end=one.end, trained=True, is_end_known=one.is_end_known
            )
        )
    turns = tuple(span.turn for span in spans)
    return TokenHistory(token_ids=tokens.ids, loss_mask=bytes(mask), logprobs=None, turns=turns, spans=tuple(spans))


def _special_tokens(tokenizer: ChatTokenizer) -> tuple[str, ...]:
    """The texts of special tokens, the longest first, so that no other one hides it."""
    added: Mapping[int, Any] = getattr(tokenizer, "added_tokens_decoder", {})
    named: Sequence[object] = getattr(tokenizer, "all_special_tokens", ())
    texts = {str(token) for token in named} | {str(token.content) for token in added.values() if token.special}
    return tuple(sorted(texts, key=lambda token: (-len(token), token)))


def template_message(message: Message) -> ChatMessage:
    """The message for a chat template: missing content is "", a refusal is content.

    Tool arguments are parsed, because templates write them with `tojson`, which would encode a text a second time.
    """
    chat = message_json(message)
    chat["content"] = message.content or chat.pop("refusal", None) or ""
    for call in cast(list[JsonObject], chat.get("tool_calls", [])):
        call["function"]["arguments"] = _parsed(call["function"]["arguments"])
    return chat


def _parsed(arguments: str) -> object:
    """Arguments as a JSON object; unchanged if they are no object, or have a lone surrogate (no tokenizer takes it)."""
    if not arguments.strip():
        return {}
    try:
        value = msgspec.json.decode(arguments)
    except (ValueError, RecursionError):
        return arguments
    return value if _is_object(value) else arguments


def _is_object(value: object) -> bool:
    return isinstance(value, dict)
