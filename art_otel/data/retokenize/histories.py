"""RetokenizedHistory: messages whose token ids no server gave, tokenized here.

Invariant: it is marked as such and has no logprobs. What stands before a completion is what the template renders as its
prompt; where the template writes an earlier completion otherwise in a later prompt (thinking dropped, another
tokenization), a new history starts. Each trained completion is trained in one history, or skipped with a reason.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from art_otel.calls import Message, TokenIds
from art_otel.data.retokenize.chat_template import ChatTemplate, RefusedError, Sample
from art_otel.data.tokenizer import ChatTokenizer
from art_otel.trajectories import (
    CompletionSpan,
    History,
    HistoryMessage,
    RebuiltPrompt,
    Trajectory,
    is_text,
    rebuild_prompts,
    text_only_histories,
)


@dataclass(frozen=True, kw_only=True, slots=True)
class RetokenizedHistory:
    """Shape of `token_ids` and `loss_mask`: (tokens,). A byte of `loss_mask` is 1 in the trained completions, else 0.

    `turns` are positions in the trajectory, `spans` has one entry for each of them: the completions trained here. Other
    completions are context. `logprobs` is None: nobody knows what the policy's were for these ids.
    """

    token_ids: TokenIds
    loss_mask: bytes
    turns: tuple[int, ...]
    spans: tuple[CompletionSpan, ...]
    logprobs: None = None
    retokenized: bool = True


@dataclass(frozen=True, kw_only=True, slots=True)
class Skipped:
    """Completions of these turns that could not be tokenized. `reason` is one of few, `detail` says more."""

    turns: tuple[int, ...]
    reason: str
    detail: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class RetokenizedHistories:
    """What became of the completions of a trajectory whose ids are unknown."""

    histories: tuple[RetokenizedHistory, ...]
    skipped: tuple[Skipped, ...]


@dataclass(frozen=True, slots=True)
class _Completion:
    """A trained completion and where it stands: from `start` to `end`, in characters or in tokens."""

    sample: Sample
    start: int
    end: int


@dataclass(slots=True)
class _Text:
    """A conversation as text up to the end of its last completion."""

    text: str = ""
    completions: list[_Completion] = field(default_factory=list[_Completion])


@dataclass(slots=True)
class _Tokens:
    """The same in tokens."""

    ids: TokenIds = field(default_factory=TokenIds)
    completions: list[_Completion] = field(default_factory=list[_Completion])


def retokenize(
    trajectory: Trajectory, tokenizer: ChatTokenizer | ChatTemplate, histories: Iterable[History] | None = None
) -> RetokenizedHistories:
    """Tokenize the histories whose ids are unknown (None: `text_only_histories(trajectory)`).

    `tokenizer` is a Hugging Face tokenizer with the policy's chat template (for many trajectories, one ChatTemplate of
    it). Each prompt is rendered as it was asked, also where it repeats a message in other words. The loss mask covers
    the completion with its stop token (without one where the answer was cut off at `length`), and of that only what the
    template marks, where it has `{% generation %}` markers and the tokenizer is a fast one.

    Needs the turns with their messages. Text is rendered twice a completion, so its cost grows with the square of a
    conversation's length; tokens are made twice a history, unless they come out otherwise in pieces than as a whole.
    Raises UsageError for a tokenizer without a chat template.
    """
    template = tokenizer if isinstance(tokenizer, ChatTemplate) else ChatTemplate(tokenizer)
    prompts = rebuild_prompts(trajectory.prompts, trajectory.turns)
    made_histories: list[RetokenizedHistory] = []
    skipped: list[Skipped] = []
    for history in text_only_histories(trajectory) if histories is None else histories:
        if history.messages is None:
            skipped.append(Skipped(turns=history.turns, reason="messages unknown"))
            continue
        for text in _texts(_samples(trajectory, history.messages, prompts), template, skipped):
            for tokens in _tokenize(text, template):
                made_histories.extend(_build(tokens, template, skipped))
    return RetokenizedHistories(histories=tuple(made_histories), skipped=tuple(skipped))


def _samples(
    trajectory: Trajectory, messages: Iterable[HistoryMessage], prompts: Sequence[RebuiltPrompt]
) -> Iterator[Sample]:
    for entry in messages:
        if entry.trained and entry.turn is not None:
            turn = trajectory.turns[entry.turn]
            prompt = prompts[turn.call].messages or ()
            yield Sample(entry.turn, trajectory.calls[turn.call], prompt, entry.message, turn.finish_reason)


def _texts(samples: Iterable[Sample], template: ChatTemplate, skipped: list[Skipped]) -> Iterator[_Text]:
    """The samples' conversations, those in one that go on with each other."""
    current = _Text()
    for sample in samples:
        rendered = _render(sample, template)
        if isinstance(rendered, Skipped):
            skipped.append(rendered)
            continue
        prompt, text = rendered
        if current.completions and not prompt.startswith(current.text):
            yield current
            current = _Text()
        end = template.end_of_completion(text, len(prompt), sample.finish_reason)
        current.text = text[:end]
        current.completions.append(_Completion(sample, len(prompt), end))
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
        return Skipped(turns=turns, reason="refused by the template", detail=str(error))
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


def _tokenize(text: _Text, template: ChatTemplate) -> Iterator[_Tokens]:
    """The text as tokens; in several parts where its tokens do not go on with each other."""
    pieces: list[TokenIds] = []
    tokens = _Tokens()
    end = size = 0
    for completion in text.completions:
        context, sampled = text.text[end : completion.start], text.text[completion.start : completion.end]
        pieces += (template.token_ids(context), template.token_ids(sampled))
        start = size + len(pieces[-2])
        end, size = completion.end, start + len(pieces[-1])
        tokens.completions.append(_Completion(completion.sample, start, size))
    tokens.ids = TokenIds(b"".join(piece.data for piece in pieces))
    # Pieces that give the ids of the whole end where tokens end: then every prompt has these ids on its own too.
    if tokens.ids == template.token_ids(text.text):
        yield tokens
    else:
        yield from _tokenize_each(text, template)


def _tokenize_each(text: _Text, template: ChatTemplate) -> Iterator[_Tokens]:
    """Every prompt tokenized as a whole, as the server did."""
    current = _Tokens()
    for completion in text.completions:
        prompt = template.token_ids(text.text[: completion.start])
        answered = template.token_ids(text.text[: completion.end])
        if not answered.startswith(prompt):
            # A token would reach from the prompt into the completion; nothing can be sampled so.
            answered = prompt + template.token_ids(text.text[completion.start : completion.end])
        if current.completions and not prompt.startswith(current.ids):
            yield current
            current = _Tokens()
        current.ids = answered
        current.completions.append(_Completion(completion.sample, len(prompt), len(answered)))
    yield current


def _build(tokens: _Tokens, template: ChatTemplate, skipped: list[Skipped]) -> Iterator[RetokenizedHistory]:
    """The history, or none where the template marks nothing of it."""
    marks = _marks(tokens, template)
    mask = bytearray(len(tokens.ids))
    spans: list[CompletionSpan] = []
    for completion in tokens.completions:
        start, end = completion.start, completion.end
        if marks is not None and start < end:
            marked = [index for index in range(start, end) if marks[index]]
            if not marked:
                skipped.append(Skipped(turns=(completion.sample.turn,), reason="not marked by the template"))
                continue
            start, end = marked[0], marked[-1] + 1
        mask[start:end] = b"\1" * (end - start)
        spans.append(CompletionSpan(turn=completion.sample.turn, start=start, end=end, trained=True))
    if spans:
        turns = tuple(span.turn for span in spans)
        yield RetokenizedHistory(token_ids=tokens.ids, loss_mask=bytes(mask), turns=turns, spans=tuple(spans))


def _marks(tokens: _Tokens, template: ChatTemplate) -> Sequence[int] | None:
    """A 1 for each token that the template marks; None where it has no markers or its tokens are not these."""
    generated = template.generated(tokens.completions[-1].sample)
    return generated[1] if generated is not None and generated[0].startswith(tokens.ids) else None
