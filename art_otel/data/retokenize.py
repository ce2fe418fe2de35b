"""Retokenizing: token ids for completions of which no server gave any, made by the policy's chat template.

Invariant: such a history is marked and has no logprobs. A prompt is rendered as the server rendered it, with the
messages, tools and `chat_template_kwargs` of its call, and a completion ends with the stop token the policy sampled:
the one that the template writes behind an answer, or what begins the next message where it writes none (GLM-4.5). Where
nothing shows it, it is left out, and the completion's span says so. Where the template writes an earlier completion
otherwise in a later prompt (thinking dropped, another tokenization), a new history starts. Each trained completion is
trained in one history, or skipped with a reason.

The way: messages of a call -> text by the template -> texts that go on with each other -> tokens -> histories.
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
    """Completions of these turns that could not be tokenized. `reason` is one of few, `detail` says more."""

    turns: tuple[int, ...]
    reason: str
    detail: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class RetokenizedHistories:
    """What became of the completions of a trajectory whose ids are unknown.

    `histories` have no logprobs: nobody knows what the policy's were for these ids.
    """

    histories: tuple[TokenHistory, ...]
    skipped: tuple[Skipped, ...]


class RefusedError(Exception):
    """The template raised for these messages."""


@dataclass(frozen=True, slots=True)
class Sample:
    """A completion and what it answered: the call, its prompt, and the sampled message.

    `following` is the message that was put behind it, None where there is none.
    """

    turn: int
    call: Call
    prompt: Sequence[Message]
    message: Message
    finish_reason: str | None
    following: Message | None


class ChatTemplate:
    """The tokenizer's template. Raises UsageError for a tokenizer without one, and for what is no tokenizer."""

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
        """What the server asked the policy to go on with. Raises RefusedError."""
        return str(self._apply(sample, (), tokenize=False, add_generation_prompt=True))

    def answered(self, sample: Sample) -> str:
        """The conversation that ends with the completion. Raises RefusedError."""
        return str(self._apply(sample, (sample.message,), tokenize=False))

    def completion(self, sample: Sample, text: str, start: int) -> "_Ended":
        """The text of `answered` up to the end of the completion that starts at `start`.

        Behind the stop token stand a newline and the like, which the template wrote. A completion that ran into the
        token limit, or that a filter cut, has no stop token.
        """
        end = self._end_of_text(text, start)
        stop = next((stop for stop in self._stops if text.endswith(stop, start, end)), "")
        if sample.finish_reason in EARLY_ENDS:
            return _Ended(text[: max(start, end - len(stop))], is_end_known=True)
        if stop:
            return _Ended(text[:end], is_end_known=True)
        shown = self._stop_in_next_message(sample, start)
        return _Ended(text[: max(start, end)] + shown, is_end_known=bool(shown))

    def _end_of_text(self, text: str, start: int) -> int:
        """Where the last message ends, without the token and the spaces that only end a conversation."""
        end = len(text.rstrip())
        if self._ending and text.endswith(self._ending, start, end):
            end = len(text[: end - len(self._ending)].rstrip())
        return end

    def _stop_in_next_message(self, sample: Sample, start: int) -> str:
        """What the template writes behind the answer up to the first special token, as GLM-4.5's `<|user|>`; or "".

        Where it drops the answer's reasoning once a message follows, the answer without it shows the same.
        """
        if sample.following is None or sample.following.role == "assistant":
            return ""
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
        """The ids of a text that was rendered. Shape: (tokens,)."""
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


class _Ended(NamedTuple):
    """A conversation up to the end of its last completion, and whether it is known what the policy ended it with."""

    text: str
    is_end_known: bool


@dataclass(frozen=True, slots=True)
class _RenderedCompletion:
    """A trained completion and where it stands: from `start` to `end`, in characters or in tokens."""

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
    """The token histories that the tokenizer makes of what has no ids.

    Raises UsageError for a tokenizer without a chat template, and for what is no tokenizer.
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
    """Tokenize the histories that are given, None: those that have completions without ids, in which only these train.

    `tokenizer` is a Hugging Face tokenizer with the policy's chat template (for many trajectories, one ChatTemplate of
    it). Each prompt is rendered as it was asked, also where it repeats a message in other words. The loss mask covers
    the completion with its stop token (without one where the answer was cut off, and where the template
    writes none and no message behind the answer shows it).

    Needs the turns with their messages. Text is rendered twice a completion, so its cost grows with the square of a
    conversation's length; tokens are made twice a history, unless they come out otherwise in pieces than as a whole.
    Raises UsageError for a tokenizer without a chat template.
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
    """The histories that train a completion without token ids, in which those with ids are context."""
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
    """The samples' conversations, those in one that go on with each other."""
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
    """The prompt, and the conversation that begins with it and ends with the completion."""
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
    """Whether the template wrote all that was sampled; some drop thinking, tool calls, or the text beside these."""
    written = "".join(completion.split())
    parts = (message.content, message.refusal, message.reasoning, *(call.name for call in message.tool_calls))
    return all("".join(text.split()) in written for text in parts if text is not None)


def _tokenize(text: _RenderedText, template: ChatTemplate) -> Iterator[_RenderedTokens]:
    """The text as tokens; in several parts where its tokens do not go on with each other."""
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
    # Pieces that give the ids of the whole end where tokens end: then every prompt has these ids on its own too.
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
            # A token would reach from the prompt into the completion; nothing can be sampled so.
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
    """The texts of special tokens, long ones first."""
    added: Mapping[int, Any] = getattr(tokenizer, "added_tokens_decoder", {})
    named: Sequence[object] = getattr(tokenizer, "all_special_tokens", ())
    texts = {str(token) for token in named} | {str(token.content) for token in added.values() if token.special}
    return tuple(sorted(texts, key=lambda token: (-len(token), token)))


def template_message(message: Message) -> ChatMessage:
    """The message as chat templates take it, in text alone: no content is "", a refusal is content.

    Arguments that are a JSON object are parsed: templates write them with `tojson`, which would encode text twice.
    """
    chat = message_json(message)
    chat["content"] = message.content or chat.pop("refusal", None) or ""
    for call in cast(list[JsonObject], chat.get("tool_calls", [])):
        call["function"]["arguments"] = _parsed(call["function"]["arguments"])
    return chat


def _parsed(arguments: str) -> object:
    """Arguments as an object; as they are where they are none, or hold half a character, which no tokenizer takes."""
    if not arguments.strip():
        return {}
    try:
        value = msgspec.json.decode(arguments)
    except (ValueError, RecursionError):
        return arguments
    return value if _is_object(value) else arguments


def _is_object(value: object) -> bool:
    return isinstance(value, dict)
