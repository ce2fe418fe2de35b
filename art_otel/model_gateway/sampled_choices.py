"""Sampled choices: a completion as a server that samples from ids describes it, whole or piece by piece.

Invariant: joining the pieces of a choice appends their ids, texts, logprobs and masks; of all other fields the last
value counts. A field of another type raises when the answer is decoded.

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
"""The kind of logprobs that vLLM returns by default."""

_USAGE: Final = {"input_tokens": "prompt_tokens", "output_tokens": "completion_tokens"}


class SampledLogprobs(msgspec.Struct, frozen=True, kw_only=True):
    """The logprobs of a choice: an entry for each token, in the form of Chat Completions (`logprob`, `token`, …)."""

    content: list[AnswerFields] | None = None

    @property
    def entries(self) -> list[AnswerFields]:
        """The entries; [] where the server sends null."""
        return self.content or []


class SampledChoice(msgspec.Struct, frozen=True, kw_only=True):
    """A choice of generate's answer, or a piece of one.

    `stop_reason` is the stop text or the id of the stop token that ended the choice. `sampling_mask` has an entry for
    each token. `weight_versions` and `routed_experts` are checked where they become attributes.
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
        """The ids; [] where the server sends null."""
        return self.token_ids or []

    @property
    def stop_text(self) -> str | None:
        """The stop text that ended the choice; None where it ended otherwise."""
        return self.stop_reason if isinstance(self.stop_reason, str) else None

    def attributes(self) -> dict[str, Value]:
        """The attributes of this choice for the span of the call."""
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
    """An answer of generate, or a chunk of one. `error` has the server's error where it fails in the middle."""

    choices: list[SampledChoice] | None = None
    usage: AnswerFields | None = None
    error: AnswerFields | None = None


def joined(pieces: Sequence[SampledChoice]) -> SampledChoice:
    """One choice made of its pieces (one or more)."""
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
    """A piece without what only the agent needs, and what is large: texts, and logprobs of other tokens."""
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
    """The tool calls of one choice, put together from the parts of a stream.

    `text_behind` is the text that came after the first part of a call.
    """

    def __init__(self) -> None:
        self._parts: dict[int, AnswerFields] = {}
        self.text_behind = ""

    def take(self, delta: AnswerFields) -> AnswerFields:
        """Take the parts of calls out of a delta, and the text that comes after them. Returns the rest of the delta.

        The first part of a call has its id and name; every part has a piece of the text of its arguments. A text in the
        same delta as the first part stands before the call.
        """
        delta, is_behind = dict(delta), bool(self._parts)
        for part in delta.pop("tool_calls", None) or ():
            function: AnswerFields = part.get("function") or {}
            call = self._parts.setdefault(part["index"], {"id": None, "name": None, "arguments": ""})
            call["id"] = call["id"] or part.get("id")
            call["name"] = call["name"] or function.get("name")
            call["arguments"] += function.get("arguments") or ""
        # A text after the first call. The calls are sent when the answer has ended, and then the text behind them.
        if is_behind:
            self.text_behind += delta.pop("content", None) or ""
        return delta

    @property
    def calls(self) -> list[AnswerFields]:
        """The calls in the form of Chat Completions' streams."""
        return [
            _call(index, call["id"], call["name"], call["arguments"]) for index, call in sorted(self._parts.items())
        ]

    def or_else(self, whole: Iterable[AnswerFields]) -> list[AnswerFields]:
        """The streamed calls, or those of the whole answer if they differ.

        An unfinished call is only in the stream, so the streamed calls stay where the whole answer has none.
        """
        calls = [
            _call(index, call.get("id"), call["function"]["name"], call["function"]["arguments"])
            for index, call in enumerate(whole)
        ]
        return calls if calls and list(map(_meant, calls)) != list(map(_meant, self.calls)) else self.calls


def _call(index: int, call_id: Value, name: Value, arguments: Value) -> AnswerFields:
    return {"index": index, "id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def _meant(call: AnswerFields) -> tuple[str, str]:
    """The name and the arguments of a call, the latter in one spelling, so that calls can be compared."""
    function = call["function"]
    return str(function["name"]), canonical_arguments(str(function["arguments"]))


class _Placeholders(msgspec.Struct, frozen=True, kw_only=True):
    offset: int
    length: int


class _Features(msgspec.Struct, frozen=True, kw_only=True):
    mm_placeholders: dict[str, list[_Placeholders]]


def placeholders_of(features: Value) -> dict[str, list[list[int]]]:
    """The places of images and other media in a rendered prompt: `{"image": [[offset, length], …]}`, in tokens.

    Raises ValueError for features of another form.
    """
    if not features:
        return {}
    places = msgspec.convert(features, _Features).mm_placeholders
    return {kind: [[one.offset, one.length] for one in ranges] for kind, ranges in places.items()}


class SampledCall:
    """The prompt that a call was sampled from, and what was sampled, choice by choice."""

    def __init__(self, spliced: Splice, placeholders: Mapping[str, list[list[int]]]) -> None:
        self._spliced = spliced
        self._placeholders = placeholders
        self._pieces: dict[int, list[SampledChoice]] = {}
        self._counts: Counter[int] = Counter()
        self.reasoning: dict[int, str] = {}
        self.usage: AnswerFields = {}
        """The usage that the server counts. The agent's stream has it only if the agent asked for it."""
        self.finished = 0

    def take(self, piece: SampledChoice) -> None:
        """Add a piece of a choice."""
        # An answer may have many tokens, each with the logprobs of others: keep only what the span needs.
        self._pieces.setdefault(piece.index, []).append(_kept(piece))
        self._counts[piece.index] += len(piece.ids)
        self.finished += piece.finish_reason is not None

    def count(self, index: int) -> int:
        """How many tokens of a choice were sampled so far."""
        return self._counts[index]

    @property
    def outcome(self) -> str:
        """How the prompt was made: the `outcome` of its Splice."""
        return self._spliced.outcome

    def attributes(self) -> dict[str, Value]:
        """The attributes for the span of the call: the ids of the prompt and of each choice, usage, and the rest."""
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
        """The turns that later prompts may continue: one for each choice with ids."""
        for choice in map(joined, self._pieces.values()):
            if choice.ids:
                # A stop text ends the sampling without a stop token at the end of the ids.
                is_stopped = choice.finish_reason == "stop" and choice.stop_text is None
                reasoning = self.reasoning.get(choice.index, "")
                yield self._spliced.sampled(choice.ids, is_stopped=is_stopped, reasoning=reasoning)
