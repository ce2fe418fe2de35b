"""Sampled choices: what a server that samples from ids says of a completion, at once or piece by piece.

Invariant: a choice is its pieces behind each other: ids, text, logprobs and masks; of all else the last that was said.
What is of another form is an error when it is decoded.

Source: vLLM 0.32 (`entrypoints/scale_out/token_in_token_out/protocol.py`).
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Final

import msgspec

from art_otel import attributes as names
from art_otel.calls import canonical_arguments
from art_otel.conventions import encode_ids, encode_logprobs, values
from art_otel.conventions.bodies.token_facts import fact_attributes
from art_otel.conventions.bodies.tokens import parse_ids, parse_logprobs
from art_otel.conventions.dialects.genai import WRITTEN_USAGE
from art_otel.exchange.answer_shapes import AnswerFields
from art_otel.model_gateway.splice import GatewayTurn, Splice
from art_otel.sampling import LogprobsMode
from art_otel.spans import Value

_MODE: Final[LogprobsMode] = "raw"
"""What of logprobs vLLM gives, unless it is started otherwise."""

_USAGE: Final = {"input_tokens": "prompt_tokens", "output_tokens": "completion_tokens"}


class SampledLogprobs(msgspec.Struct, frozen=True, kw_only=True):
    """An entry a token: `logprob`, `token`, `top_logprobs` and others, as Chat Completions have them."""

    content: list[AnswerFields] | None = None

    @property
    def entries(self) -> list[AnswerFields]:
        """The entries; none where the server sends null."""
        return self.content or []


class SampledChoice(msgspec.Struct, frozen=True, kw_only=True):
    """A choice of generate, or a piece of one. `stop_reason` is the text or the token that stopped it, if one did.

    `sampling_mask` has an entry a token; the facts of RL are read where they become attributes.
    """

    index: int
    token_ids: list[int] | None = None
    text: str | None = None
    finish_reason: str | None = None
    stop_reason: str | int | None = None
    logprobs: SampledLogprobs | None = None
    sampling_mask: list[Value] | None = None
    weight_versions: Value = None
    routed_experts: Value = None

    @property
    def ids(self) -> list[int]:
        """The ids; none where the server sends null."""
        return self.token_ids or []

    @property
    def stop_text(self) -> str | None:
        """The text that stopped it."""
        return self.stop_reason if isinstance(self.stop_reason, str) else None

    def attributes(self) -> dict[str, Value]:
        """What the span of the call says of it."""
        made: dict[str, Value] = {}
        if self.ids:
            made[f"{names.COMPLETION_TOKENS_PREFIX}{self.index}"] = encode_ids(parse_ids(self.ids))
        facts = ("weight_versions", "routed_experts", "sampling_mask")
        made |= fact_attributes(self.index, {name: getattr(self, name) for name in facts})
        logprobs = [] if self.logprobs is None else [entry["logprob"] for entry in self.logprobs.entries]
        if self.ids and len(logprobs) == len(self.ids):
            made[f"{names.COMPLETION_LOGPROBS_PREFIX}{self.index}"] = encode_logprobs(parse_logprobs(logprobs))
            made[names.LOGPROBS_MODE] = _MODE
        return made


class Generated(msgspec.Struct, frozen=True, kw_only=True):
    """An answer of generate, or a chunk of one. `error` is what the server says where it fails in the middle."""

    choices: list[SampledChoice] | None = None
    usage: AnswerFields | None = None
    error: AnswerFields | None = None


def joined(pieces: Sequence[SampledChoice]) -> SampledChoice:
    """The choice of pieces, of which there is one at least."""
    if len(pieces) == 1:
        return pieces[0]
    logprobs = [piece.logprobs for piece in pieces if piece.logprobs is not None]
    masks = [piece.sampling_mask for piece in pieces if piece.sampling_mask is not None]
    return SampledChoice(
        index=pieces[0].index,
        token_ids=[*chain.from_iterable(piece.ids for piece in pieces)],
        text="".join(piece.text or "" for piece in pieces),
        finish_reason=_last(piece.finish_reason for piece in pieces),
        stop_reason=_last(piece.stop_reason for piece in pieces),
        logprobs=SampledLogprobs(content=[*chain.from_iterable(one.entries for one in logprobs)]) if logprobs else None,
        sampling_mask=[*chain.from_iterable(masks)] if masks else None,
        weight_versions=_last(piece.weight_versions for piece in pieces),
        routed_experts=_last(piece.routed_experts for piece in pieces),
    )


def _kept(piece: SampledChoice) -> SampledChoice:
    """A piece without what is for the agent alone: texts and the odds of other tokens, which are large."""
    if piece.logprobs is None:
        return msgspec.structs.replace(piece, text=None)
    entries: list[AnswerFields] = [{"logprob": entry["logprob"]} for entry in piece.logprobs.entries]
    return msgspec.structs.replace(piece, text=None, logprobs=SampledLogprobs(content=entries))


def _last(said: Iterator[Value]) -> Value:
    known = None
    for one in said:
        known = known if one is None else one
    return known


class StreamedCalls:
    """The tool calls of one choice, as the parts of a stream make them. `text_behind` came behind the first part."""

    def __init__(self) -> None:
        self._parts: dict[int, AnswerFields] = {}
        self.text_behind = ""

    def take(self, delta: AnswerFields) -> AnswerFields:
        """Take calls out of a delta, and the text behind them: what is left.

        The first part of a call has its id and name, each some of the text of its arguments. A text that comes together
        with the first stands before it.
        """
        delta, is_behind = dict(delta), bool(self._parts)
        for part in delta.pop("tool_calls", None) or ():
            function: AnswerFields = part.get("function") or {}
            call = self._parts.setdefault(part["index"], {"id": None, "name": None, "arguments": ""})
            call["id"] = call["id"] or part.get("id")
            call["name"] = call["name"] or function.get("name")
            call["arguments"] += function.get("arguments") or ""
        if is_behind:
            self.text_behind += delta.pop("content", None) or ""
        return delta

    @property
    def calls(self) -> list[AnswerFields]:
        """The calls, as Chat Completions have them in a stream."""
        return [
            _call(index, call["id"], call["name"], call["arguments"]) for index, call in sorted(self._parts.items())
        ]

    def or_else(self, whole: Iterable[AnswerFields]) -> list[AnswerFields]:
        """These, unless the calls of the whole answer are others; of a call that was cut only a stream knows."""
        calls = [
            _call(index, call.get("id"), call["function"]["name"], call["function"]["arguments"])
            for index, call in enumerate(whole)
        ]
        return calls if calls and list(map(_meant, calls)) != list(map(_meant, self.calls)) else self.calls


def _call(index: int, call_id: Value, name: Value, arguments: Value) -> AnswerFields:
    return {"index": index, "id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def _meant(call: AnswerFields) -> tuple[str, str]:
    """What a call says, however its arguments are spelled."""
    function = call["function"]
    return str(function["name"]), canonical_arguments(str(function["arguments"]))


class _Placeholders(msgspec.Struct, frozen=True, kw_only=True):
    offset: int
    length: int


class _Features(msgspec.Struct, frozen=True, kw_only=True):
    mm_placeholders: dict[str, list[_Placeholders]]


def placeholders_of(features: Value) -> dict[str, list[list[int]]]:
    """Where images and the like stand in a rendered prompt, by their kind: offset and length in tokens.

    Raises ValueError for features of another form.
    """
    if not features:
        return {}
    places = msgspec.convert(features, _Features).mm_placeholders
    return {kind: [[one.offset, one.length] for one in ranges] for kind, ranges in places.items()}


class SampledCall:
    """What a call was sampled from, and what was sampled, choice by choice."""

    def __init__(self, spliced: Splice, placeholders: Mapping[str, list[list[int]]]) -> None:
        self._spliced = spliced
        self._placeholders = placeholders
        self._pieces: dict[int, list[SampledChoice]] = {}
        self._counts: Counter[int] = Counter()
        self.reasoning: dict[int, str] = {}
        self.usage: AnswerFields = {}
        """The server's account, which an agent's stream has only if it asks for it."""
        self.finished = 0

    def take(self, piece: SampledChoice) -> None:
        """Take what came of a choice."""
        self._pieces.setdefault(piece.index, []).append(_kept(piece))
        self._counts[piece.index] += len(piece.ids)
        self.finished += piece.finish_reason is not None

    def count(self, index: int) -> int:
        """How many tokens of a choice are sampled."""
        return self._counts[index]

    @property
    def outcome(self) -> str:
        """What became of the prompt."""
        return self._spliced.outcome

    def attributes(self) -> dict[str, Value]:
        """What the span of the call says of it."""
        spliced = self._spliced
        made: dict[str, Value] = {
            names.PROMPT_TOKENS: encode_ids(parse_ids([*spliced.prompt])),
            names.PROMPT: self.outcome,
        }
        counts = {name: values.integer(self.usage.get(counted)) for name, counted in _USAGE.items()}
        made |= {WRITTEN_USAGE[name]: count for name, count in counts.items() if count is not None}
        if spliced.reason:
            made[names.PROMPT_REASON] = spliced.reason
        if spliced.is_reasoning_kept:
            made[names.KEPT_REASONING] = True
        if self._placeholders:
            made[names.PLACEHOLDERS] = dict(self._placeholders)
        for pieces in self._pieces.values():
            made |= joined(pieces).attributes()
        return made

    def turns(self) -> Iterator[GatewayTurn]:
        """The turns that prompts may continue."""
        for choice in map(joined, self._pieces.values()):
            if choice.ids:
                is_stopped = choice.finish_reason == "stop" and choice.stop_text is None
                reasoning = self.reasoning.get(choice.index, "")
                yield self._spliced.sampled(choice.ids, is_stopped=is_stopped, reasoning=reasoning)
