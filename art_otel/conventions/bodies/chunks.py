"""JoinedChunks: the chunks of a streamed Chat Completion or Completion as the body it has without streaming.

Invariant: pieces are joined in the order they came, in time linear in their size; what never came is absent. If some
token ids of a choice are missing, all its ids are left out. llama.cpp loses ids without a sign, so its ids are kept
only beside a usage that counts them.

Source of the format: https://platform.openai.com/docs/api-reference/chat-streaming; `prompt_token_ids` and `token_ids`
are vLLM's, `sglext` is SGLang's, `timings` llama.cpp's (`tools/server/server-task.cpp`).
"""

from collections.abc import Sequence
from typing import Annotated, Any, Final, cast

import msgspec
from msgspec import UNSET, UnsetType
from msgspec.structs import astuple

from art_otel.conventions import values
from art_otel.conventions.bodies.tokens import (
    SAMPLING,
    choice_tokens,
    has_sampling_logprobs,
    ids_in_tokens,
    may_lose_ids,
)
from art_otel.spans import Value

_PROMPT_IDS: Final = "prompt_token_ids"
_HEAD: Final = ("id", "model", _PROMPT_IDS, "sglext")
_APART: Final = frozenset({"index", "delta", "token_ids", "logprobs"})
_SAMPLED_COUNT: Final = "completion_tokens"
_SAMPLED: Final = ("content", "reasoning_content", "reasoning", "refusal", "tool_calls", "function_call", "text")


class JoinedChunks:
    """What a stream has sent so far. `head` is what it says of the answer beside its choices."""

    def __init__(self) -> None:
        self.head: dict[str, Value] = {}
        self._is_named = False
        self._counts = _Counts()
        self._choices: dict[int, _JoinedChoice] = {}

    def add(self, chunk: dict[str, Value]) -> None:
        """Join the next chunk."""
        for name in _HEAD:
            if name not in self.head and chunk.get(name) not in (None, ""):  # Azure's first chunk names nothing yet
                self.head[name] = chunk[name]
        if chunk.get("usage") is not None or "timings" in chunk:
            self._counts.add(chunk)
        for position, entry in enumerate(values.items(chunk.get("choices")) or ()):
            fields = values.mapping(entry) or {}
            index = values.place_of(fields, position)
            choice = self._choices.get(index)
            if choice is None:
                choice = self._choices[index] = _JoinedChoice()
            choice.add(fields)

    def add_text(self, chunk: "TextChunk") -> bool:
        """Join a chunk that says one more piece of text, as `add` would; False where `add` has to read it."""
        (piece,) = chunk.choices
        choice = self._choices.get(piece.index)
        if choice is None or "id" not in self.head or "model" not in self.head:
            return False
        logprobs: Sequence[float] = ()
        if piece.logprobs != _NULL:
            try:
                logprobs = [entry.logprob for entry in _LOGPROBS.decode(piece.logprobs).content]
            except values.UNREADABLE:
                return False
            if logprobs and not piece.token_ids:  # they may be spelled in the logprobs
                return False
        choice.add_text(piece.delta.content, piece.token_ids or (), logprobs)
        return True

    def add_all(self, chunks: bytes) -> bool:
        """Join a JSON list of chunks at once, many times as fast; False, and nothing, where one has unusual fields."""
        try:
            decoded = _CHUNKS.decode(chunks)
        except values.UNREADABLE:
            return False
        for chunk in decoded:
            ids = chunk.prompt_token_ids
            if ids is not _NULL and ids != _NULL and _PROMPT_IDS not in self.head:
                self.head[_PROMPT_IDS] = ids.copy()  # else it holds all of the chunks
            if not self._is_named:
                named = {"id": chunk.id or None, "model": chunk.model or None, **self.head}
                self.head |= {name: value for name, value in named.items() if value is not None}
                self._is_named = "id" in self.head and "model" in self.head
            if chunk.usage is not None or chunk.timings is not None:
                places = [{"index": piece.index} for piece in chunk.choices]
                self._counts.add({"usage": chunk.usage, "timings": chunk.timings, "choices": places})
            for piece in chunk.choices:
                choice = self._choices.get(piece.index)
                if choice is None:
                    choice = self._choices[piece.index] = _JoinedChoice()
                choice.add_piece(piece)
        return True

    def body(self) -> dict[str, Value]:
        """The body so far."""
        ids = self.head.get(_PROMPT_IDS)
        if isinstance(ids, msgspec.Raw):
            self.head[_PROMPT_IDS] = values.json_value(bytes(ids).decode(errors="replace"))
        return self._joined()

    def json(self) -> bytes:
        """The body so far as JSON: thousands of ids of a prompt need not be read for that."""
        return msgspec.json.encode(self._joined())

    def _joined(self) -> dict[str, Value]:
        usage = self._counts.usage()
        counted = {} if usage is None else {"usage": usage}
        choices = [
            {"index": index, **self._choices[index].fields(is_counted=bool(counted))} for index in sorted(self._choices)
        ]
        return {**self.head, **counted, "choices": choices}


class _Counts:
    """The usage that a stream told so far.

    llama.cpp tells that of each choice apart, in an event behind it where it was asked to, and always in its `timings`.
    """

    def __init__(self) -> None:
        self._last: Value = None
        self._sampled: dict[int, int] = {}
        """By choice."""
        self._behind: list[dict[str, Value]] = []

    def add(self, chunk: dict[str, Value]) -> None:
        usage, timings = chunk.get("usage"), values.mapping(chunk.get("timings"))
        if usage is not None:
            self._last = usage  # some servers count up with each chunk
        if timings is None:
            return
        choices = values.items(chunk.get("choices")) or ()
        if not choices and (counted := values.mapping(usage)) is not None:
            self._behind.append(counted)
        for position, entry in enumerate(choices):
            if (sampled := values.integer(timings.get("predicted_n"))) is not None:
                self._sampled[values.place_of(values.mapping(entry) or {}, position)] = sampled

    def usage(self) -> Value:
        if not self._behind and not self._sampled:
            return self._last
        behind = [values.integer(usage.get(_SAMPLED_COUNT)) or 0 for usage in self._behind]
        sampled = behind or [*self._sampled.values()]
        last = values.mapping(self._last)
        if last is not None and len(sampled) == 1:
            return self._last
        kept = {name: count for name, count in (last or {}).items() if name != "total_tokens"}
        return {**kept, _SAMPLED_COUNT: sum(sampled)}


class _JoinedChoice:
    def __init__(self) -> None:
        self._fields: dict[str, Value] = {}
        self._message: dict[str, Value] = {}
        self._ids: list[Value] = []
        self._logprobs: list[Value] = []
        self._has_gap = False
        self._needs_count = False
        self._logprobs_name = "token_logprobs"

    def add(self, fields: dict[str, Value]) -> None:
        ids, logprobs = choice_tokens(fields)
        self._ids += values.items(ids) or ()
        if logprobs and not self._logprobs and has_sampling_logprobs(fields):
            self._logprobs_name = SAMPLING
        self._logprobs += values.items(logprobs) or ()
        self._needs_count = self._needs_count or ("token_ids" not in fields and may_lose_ids(fields))
        message = values.mapping(fields.get("delta"))
        if message:
            join(self._message, message)
        for name, value in fields.items():
            if value is not None and name not in _APART:
                join(self._fields, {name: value})
        if not ids and not self._has_gap:
            content = message or fields
            self._has_gap = any(content.get(name) for name in _SAMPLED)

    def add_piece(self, piece: "_StreamedChoice") -> None:
        """Add a choice of a chunk as `add` would."""
        delta, ids, listed = piece.delta, piece.token_ids, piece.logprobs
        logprobs: Sequence[float] = ()
        if listed is not None and listed.content:
            first, *more = listed.content
            logprobs = [first.logprob, *[entry.logprob for entry in more]] if more else (first.logprob,)
            if ids is None:
                ids = ids_in_tokens([entry.token for entry in listed.content])
        text = delta.get("content")
        if len(delta) == 1 and type(text) is str:
            self.add_text(text, ids or (), logprobs)
        elif delta or ids or logprobs:  # the last chunk has none of them
            join(self._message, delta)
            self._has_gap = self._has_gap or (not ids and any(delta.get(name) for name in _SAMPLED))
            self._ids += ids or ()
            self._logprobs += logprobs
        if piece.finish_reason is not None or piece.stop_reason is not None or piece.matched_stop is not None:
            for name, value in zip(_ENDS, astuple(piece), strict=False):
                if value is not None:
                    join(self._fields, {name: value})

    def add_text(self, text: str, ids: Sequence[int], logprobs: Sequence[float]) -> None:
        before = self._message.get("content")
        if type(before) is _Text:
            before.pieces.append(text)
        else:
            join(self._message, {"content": text})
        if ids:
            self._ids += ids
        elif text:
            self._has_gap = True
        if logprobs:
            self._logprobs += logprobs

    def fields(self, *, is_counted: bool) -> dict[str, Value]:
        choice: dict[str, Value] = {"finish_reason": None, **_whole_fields(self._fields)}
        if self._message:
            choice["message"] = _whole_fields(self._message)
        if self._logprobs:
            choice["logprobs"] = {self._logprobs_name: self._logprobs}
        if self._ids and not self._has_gap and (is_counted or not self._needs_count):
            choice["token_ids"] = self._ids
        return choice


_TEXTS: Final = frozenset(
    {"content", "text", "refusal", "reasoning", "reasoning_content", "arguments", "input", "transcript", "data"}
)
"""Fields whose pieces are joined; any other text replaces what came before. The last two are those of an audio."""

_CALLS: Final = "tool_calls"


class _Text:
    """The pieces of a text, joined once: a long completion has thousands."""

    __slots__ = ("pieces",)

    def __init__(self, first: Value) -> None:
        self.pieces: list[str] = [first] if isinstance(first, str) else []


class _Calls(dict[int, dict[str, Value]]):
    """The tool calls of a message by place, which is the index that their pieces name.

    Some servers give no index, or several calls the same (Gemini's for OpenAI's clients, older ones of Ollama): there,
    a piece with another id and a name begins the next call.
    """

    def __init__(self) -> None:
        super().__init__()
        self._places: dict[int, int] = {}
        """Where the pieces of an index go."""

    def of(self, piece: dict[str, Value], position: int) -> dict[str, Value]:
        """The call that a piece belongs to. `position` is where it stands in its chunk."""
        index = values.place_of(piece, position)
        place = self._places.get(index, index)
        if place in self and _begins_another(self[place], piece):
            place = max(self) + 1
        self._places[index] = place
        return self.setdefault(place, {})


def _begins_another(call: dict[str, Value], piece: dict[str, Value]) -> bool:
    known, given = values.text(call.get("id")), values.text(piece.get("id"))
    tool = values.mapping(piece.get("function")) or values.mapping(piece.get("custom")) or {}
    return None not in (known, given) and known != given and values.text(tool.get("name")) is not None


def join(joined: dict[str, Value], piece: dict[str, Value]) -> None:
    """Add a piece of an object to `joined`, which holds the pieces before it."""
    for name, value in piece.items():
        if isinstance(value, str):
            _join_text(joined, name, value)
        elif value is None:
            joined.setdefault(name, None)
        elif name == _CALLS:
            _join_calls(joined, values.items(value) or [])
        elif (fields := values.mapping(value)) is not None:
            if values.mapping(joined.get(name)) is None:
                joined[name] = {}
            join(joined[name], fields)
        elif (listed := values.items(value)) is not None and values.items(joined.get(name)) is not None:
            joined[name].extend(listed)
        else:
            joined[name] = value


def whole(value: Value) -> Value:
    """Return what was joined in JSON's own types."""
    if isinstance(value, _Text):
        return "".join(value.pieces)
    if isinstance(value, _Calls):
        return [whole(value[index]) for index in sorted(value)]
    fields = values.mapping(value)
    if fields is not None:
        return _whole_fields(fields)
    listed = values.items(value)
    return value if listed is None else [whole(inner) for inner in listed]


def _whole_fields(fields: dict[str, Value]) -> dict[str, Value]:
    # Most values are texts, which need no call.
    return {name: value if type(value) is str else whole(value) for name, value in fields.items()}


def _join_text(joined: dict[str, Value], name: str, piece: str) -> None:
    before = joined.get(name)
    if name in _TEXTS:
        if not isinstance(before, _Text):
            before = joined[name] = _Text(before)
        before.pieces.append(piece)
    elif piece or before is None:
        joined[name] = piece


def _join_calls(joined: dict[str, Value], pieces: list[Value]) -> None:
    calls = joined.get(_CALLS)
    if not isinstance(calls, _Calls):
        calls = joined[_CALLS] = _Calls()
    for position, piece in enumerate(pieces):
        fields = values.mapping(piece) or {}
        join(calls.of(fields, position), {name: value for name, value in fields.items() if name != "index"})


def objects(joined: dict[str, Value], name: str) -> list[dict[str, Value]]:
    """Return the list of objects in a field; an empty one is put there first if there is none, or null."""
    if joined.get(name) is None:  # vLLM's reasoning items begin with null
        joined[name] = []
    return cast(list[dict[str, Value]], joined[name])


_NULL: Final = msgspec.Raw(b"null")


class _TextLogprob(msgspec.Struct, forbid_unknown_fields=True):
    token: str
    logprob: float
    bytes: object = None
    top_logprobs: object = None


class _TextLogprobs(msgspec.Struct, forbid_unknown_fields=True):
    content: list[_TextLogprob]
    refusal: None = None


class _TextDelta(msgspec.Struct, forbid_unknown_fields=True):
    content: str


class _TextChoice(msgspec.Struct, forbid_unknown_fields=True):
    index: int
    delta: _TextDelta
    finish_reason: None = None
    stop_reason: None = None
    token_ids: list[int] | UnsetType | None = UNSET
    logprobs: msgspec.Raw = _NULL  # msgspec takes `Raw | None` for null alone


class _Plain(msgspec.Struct):
    """Fields that say more than a text where they are there."""

    error: None = None
    usage: UnsetType | None = UNSET
    type: UnsetType = UNSET
    timings: UnsetType = UNSET
    sglext: UnsetType = UNSET
    prompt_token_ids: UnsetType = UNSET
    weight_versions: UnsetType = UNSET


class TextChunk(_Plain, kw_only=True):
    """A chunk of Chat Completions that says one more piece of text, as nearly every event of a stream does.

        {"id": "c", "model": "m", "choices": [{"index": 0, "delta": {"content": " word"}, "finish_reason": null,
         "token_ids": [7], "logprobs": {"content": [{"token": " word", "logprob": -0.5, …}]}}]}

    It is decoded once, to what a recording needs of it. `JoinedChunks.add_text` joins it as `add` would, at a fifth of
    the cost. A chunk with anything else in it is none.
    """

    choices: tuple[_TextChoice]

    @property
    def raw_logprobs(self) -> bytes | None:
        """The bytes that its logprobs have."""
        raw = self.choices[0].logprobs
        return None if raw == _NULL else bytes(raw)


_CHUNK: Final = msgspec.json.Decoder(TextChunk)
_LOGPROBS: Final = msgspec.json.Decoder(_TextLogprobs)


_ENDS: Final = ("finish_reason", "stop_reason", "matched_stop")
"""The fields of a choice that say why it ended, as they stand in `_StreamedChoice`."""


class _PieceLogprobs(msgspec.Struct, forbid_unknown_fields=True):
    content: list[_TextLogprob] | None = None
    refusal: None = None


class _StreamedChoice(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """A choice of a chunk."""

    finish_reason: str | None = None
    stop_reason: str | int | None = None
    matched_stop: str | int | None = None
    index: Annotated[int, msgspec.Meta(ge=0)]
    delta: dict[str, Any]
    token_ids: list[int] | None = None
    logprobs: _PieceLogprobs | None = None


class _StreamedChunk(msgspec.Struct):
    """A chunk, but for what no recording needs; one with an error, or of another API, is none."""

    choices: list[_StreamedChoice]
    id: str | None = None
    model: str | None = None
    usage: dict[str, Any] | None = None
    timings: dict[str, Any] | None = None
    prompt_token_ids: msgspec.Raw = _NULL
    error: None = None
    type: UnsetType = UNSET
    sglext: UnsetType = UNSET


_CHUNKS: Final = msgspec.json.Decoder(list[_StreamedChunk])


def read_text_chunk(data: bytes) -> TextChunk | None:
    """Decode the data of an event; None where it is no text chunk."""
    try:
        return _CHUNK.decode(data)
    except values.UNREADABLE:
        return None
