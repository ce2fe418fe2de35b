"""Attributes: what was recorded of one call, its attributes' names, their values, and lists flattened over them.

`AttributeNames` are the names of a span's attributes and what follows from them alone: the spans of one instrumentor
have the same names, so what was computed of a set of names is kept for the next span. `AttributeReader` reads values
and collects the gaps in what they tell. `unflatten` rebuilds lists and objects that a convention flattens to one
attribute a value, `prefix.0.role`, …. `PrefixCache` remembers what was read of the history that prompts repeat.

Invariant: nothing here raises for any content. A value that cannot be read whole is unknown, and a gap names its
attribute; a list that lost entries (the SDK drops the oldest attributes of a span beyond 128) is unknown, not shorter.
Memory holds at most `REMEMBERED` sets of names, each of at most `REMEMBERED_LENGTH` characters.
"""

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import lru_cache
from operator import itemgetter
from typing import Any, Final, Generic, TypeAlias, TypeVar

import msgspec

from art_otel.calls import Gap, GapKind
from art_otel.conventions import values
from art_otel.errors import ParseError
from art_otel.spans import Attributes, LogRecord, Span, Value

REMEMBERED: Final = 256
REMEMBERED_LENGTH: Final = 16_384

Shape: TypeAlias = str | dict[str, "Shape"] | tuple["Shape", ...]
"""How attributes make up a value: the name of one, or an object or a list of shapes."""

MAX_NAME: Final = 256
"""Longer names are split each time: they are few, and keeping them would hold too much memory."""

MAX_STEPS: Final = 64
"""A name with more steps keeps the rest as one: shapes must not run out of stack."""

_FIRST_INDEX: Final = re.compile(r"\.(?=[0-9]+(?:\.|$))")

_Tree: TypeAlias = dict[str, "str | _Tree"]
_Result = TypeVar("_Result")


class AttributeNames:
    """The names of attributes, in their order."""

    __slots__ = ("_lists", "_memo", "_names", "_starting")

    def __init__(self, names: tuple[str, ...]) -> None:
        self._names = dict.fromkeys(names)
        self._starting: dict[str | tuple[str, ...], tuple[str, ...]] = {}
        self._lists: dict[str, Shape] | None = None
        self._memo: dict[object, Any] = {}

    def memo(self, compute: Callable[["AttributeNames"], _Result]) -> _Result:
        """The result of a function of these names, computed once; it must be a function of a module."""
        try:
            return self._memo[compute]
        except KeyError:
            result = self._memo[compute] = compute(self)
            return result

    def __contains__(self, name: str) -> bool:
        return name in self._names

    def among(self, names: Iterable[str]) -> tuple[str, ...]:
        """The names that are both here and in `names`, in the order of `names`."""
        return tuple([name for name in names if name in self._names])

    def starting(self, prefix: str | tuple[str, ...]) -> tuple[str, ...]:
        """The names that start with a prefix, or with one of several."""
        matches = self._starting.get(prefix)
        if matches is None:
            matches = self._starting[prefix] = tuple([name for name in self._names if name.startswith(prefix)])
        return matches

    @property
    def lists(self) -> Mapping[str, Shape]:
        """The lists flattened to `prefix.<n>` or `prefix.<n>.…`, by prefix; not a tuple where entries are missing."""
        if self._lists is None:
            trees: dict[str, _Tree] = {}
            for name in self._names:
                position = _split_cached(name) if len(name) <= MAX_NAME else _split(name)
                if position is not None:
                    prefix, path, last = position
                    _put(trees.setdefault(prefix, {}), path, last, name)
            self._lists = {prefix: _shape(tree) for prefix, tree in trees.items()}
        return self._lists


def _split(name: str) -> tuple[str, list[str], str] | None:
    """Split a name into what precedes its first index, the steps from there to the last one, and the last step."""
    index = _FIRST_INDEX.search(name)
    if index is None:
        return None
    *path, last = name[index.end() :].split(".", MAX_STEPS)
    return name[: index.start()], path, last


_split_cached: Final = lru_cache(maxsize=4096)(_split)


def _put(tree: _Tree, path: list[str], last: str, name: str) -> None:
    """Put a name at a path. A name that is also a prefix of others stays what it was first."""
    for step in path:
        inner = tree.get(step)
        if inner is None:
            inner = tree[step] = {}
        elif isinstance(inner, str):
            return
        tree = inner
    if last not in tree:
        tree[last] = name


def _shape(tree: _Tree) -> Shape:
    """Turn every object of a tree whose keys are 0, 1, … into a list."""
    shapes: dict[str, Shape] = {
        step: inner if isinstance(inner, str) else _shape(inner) for step, inner in tree.items()
    }
    if "0" not in shapes:
        return shapes
    entries = [shapes.get(str(position)) for position in range(len(shapes))]
    return shapes if None in entries else tuple(entry for entry in entries if entry is not None)


_REMEMBERED_NAMES: Final[dict[tuple[str, ...], AttributeNames]] = {}


def names_of(attributes: Iterable[str]) -> AttributeNames:
    """The names of these attributes; equal names are one object, so that `memo` serves all spans that have them."""
    names = tuple(attributes)
    attribute_names = _REMEMBERED_NAMES.get(names)
    if attribute_names is None:
        attribute_names = AttributeNames(names)
        if sum(map(len, names)) <= REMEMBERED_LENGTH:
            if len(_REMEMBERED_NAMES) >= REMEMBERED:
                _REMEMBERED_NAMES.clear()
            _REMEMBERED_NAMES[names] = attribute_names
    return attribute_names


_RAW_OBJECT: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
_MESSAGE_LISTS: Final = frozenset({"messages", "input"})


class AttributeReader:
    """Reads the attributes of a span, event or log record. Of several names the first that has a value wins."""

    __slots__ = ("_gaps", "_names", "attributes")

    def __init__(self, attributes: Attributes, names: AttributeNames | None = None) -> None:
        self.attributes = attributes
        self._names = names
        self._gaps: dict[Gap, None] = {}

    @property
    def names(self) -> AttributeNames:
        """The names of the attributes."""
        if self._names is None:
            self._names = names_of(self.attributes)
        return self._names

    @property
    def gaps(self) -> tuple[Gap, ...]:
        """What of the content is not, or may not be, what was sent and sampled, in the order it was read."""
        return tuple(self._gaps)

    def gap(self, kind: GapKind, evidence: str, *, field: str = "call") -> None:
        """Record a gap in the content (see `calls.Gap`)."""
        self._gaps[Gap(kind=kind, field=field, evidence=evidence)] = None

    def add_gaps(self, other: "AttributeReader", but: Collection[GapKind] = ()) -> None:
        """Record the gaps that another reader of these attributes recorded, but for those of some kinds."""
        self._gaps |= {gap: None for gap in other.gaps if gap.kind not in but}

    def mark_invalid(self, name: str) -> None:
        """Record that the value of an attribute is not what its convention says."""
        self.gap("not understood", name, field=field_of(name))

    def mark_cut(self, name: str) -> None:
        """Record that the JSON of an attribute ends before its end."""
        self.gap("cut", name, field=field_of(name))

    def text(self, *names: str) -> str | None:
        """The first non-empty text among the attributes named."""
        for name in names:
            value = self.attributes.get(name)
            if value and isinstance(value, str):
                return value
        return None

    def integer(self, *names: str) -> int | None:
        """The first whole number among the attributes named."""
        for name in names:
            value = self.attributes.get(name)
            if value is not None and (number := values.integer(value)) is not None:
                return number
        return None

    def flag(self, *names: str) -> bool | None:
        """The first boolean among the attributes named."""
        for name in names:
            value = self.attributes.get(name)
            if value is not None and (boolean := values.flag(value)) is not None:
                return boolean
        return None

    def structured(self, name: str, *, may_be_text: bool = False) -> Value:
        """Decode an attribute that is JSON text, or return its structured value; None for other text.

        Text that begins as JSON and is none was cut off, unless it `may_be_text`.
        """
        value = self.attributes.get(name)
        if not isinstance(value, str):
            return value
        if not values.looks_like_json(value):
            return None
        try:
            decoded, whole = values.decode(value)
        except ParseError:
            if not may_be_text:
                self.mark_cut(name)
            return None
        if not whole:  # what no text and no number of JSON can be was replaced
            self.mark_invalid(name)
        return decoded

    def json_safe(self, name: str) -> Value:
        """Decode an attribute to values that any JSON writer accepts; text that is no JSON stays text."""
        value = self.structured(name)
        if value is None:
            value = None if any(gap.evidence == name for gap in self._gaps) else self.attributes.get(name)
        return self.make_safe(name, value)

    def decoded(self, name: str) -> Value:
        """Decode an attribute that is JSON always, so that a text stands in quotation marks; other text stays text."""
        value = self.attributes.get(name)
        if isinstance(value, str) and value.startswith('"'):
            return self.make_safe(name, values.json_value(value))
        return self.json_safe(name)

    def make_safe(self, name: str, value: Value) -> Value:
        """Make what attribute `name` holds safe for any JSON writer; None, and a gap, when it cannot be."""
        return self.parsed(name, values.json_safe, value)

    def parsed(self, name: str, parse: Callable[[Value], _Result], value: Value) -> _Result | None:
        """What a parser makes of the value of attribute `name`; None, and a gap, when it raises ParseError."""
        if value is None:
            return None
        try:
            return parse(value)
        except ParseError:
            self.mark_invalid(name)
            return None

    def body(self, name: str, *, may_be_text: bool = False) -> dict[str, Value] | None:
        """Decode the JSON object that attribute `name` holds; lists of messages in it stay JSON (`msgspec.Raw`)."""
        value = self.attributes.get(name)
        if isinstance(value, str):
            try:
                fields = _RAW_OBJECT.decode(value)
                return {key: _decode_field(key, raw) for key, raw in fields.items()}
            except (ValueError, RecursionError):
                pass
        return values.mapping(self.structured(name, may_be_text=may_be_text))


_FIELDS: Final = (
    ("tools", re.compile(r"tools?\b(?!_call)|functions|tool_definitions|tool\.definitions")),
    ("tokens", re.compile(r"token|logprobs")),
    ("parameters", re.compile(r"parameters|metadata|extra|env_state|response_format|schema")),
    ("answer", re.compile(r"output|completion|response|choice|answer")),
    ("prompt", re.compile(r"input|prompt|request|system_instructions")),
)
"""The words in attributes' names by which they hold a field of a call; the first that fits."""


@lru_cache(maxsize=1024)
def field_of(name: str) -> str:
    """Return the field of a call (see `calls.Gap`) that an attribute holds, by the words in its name."""
    return next((field for field, words in _FIELDS if words.search(name)), "call")


def _decode_field(key: str, raw: msgspec.Raw) -> Value:
    return raw if key in _MESSAGE_LISTS and memoryview(raw)[:1].tobytes() == b"[" else msgspec.json.decode(raw)


class SpanRecording(msgspec.Struct, frozen=True, gc=False):
    """An inference span, its log records, and the names of the span's attributes."""

    span: Span
    logs: Sequence[LogRecord]
    names: AttributeNames

    def reader(self) -> AttributeReader:
        """A new reader of the span's attributes."""
        return AttributeReader(self.span.attributes, self.names)


def unflatten(reader: AttributeReader, prefix: str) -> list[Value] | None:
    """Rebuild the list below `prefix`; None when there is none, or when entries are missing, which is a gap."""
    shape = reader.names.lists.get(prefix)
    if not isinstance(shape, tuple):
        if shape is not None or reader.names.starting(f"{prefix}."):
            reader.gap("dropped", prefix, field=field_of(prefix))
        return None
    return [_value_of(entry, reader.attributes) for entry in shape]


def numbered(value: Value) -> list[tuple[int, Value]]:
    """The entries of a list below another, with their numbers; a list with holes in it stayed an object."""
    entries = values.items(value)
    if entries is not None:
        return list(enumerate(entries))
    fields = values.mapping(value) or {}
    return sorted(
        ((int(step), entry) for step, entry in fields.items() if step.isascii() and step.isdigit()), key=itemgetter(0)
    )


def _object_of(shape: dict[str, Shape], attributes: Attributes) -> dict[str, Value]:
    return {step: _value_of(inner, attributes) for step, inner in shape.items()}


def _value_of(shape: Shape, attributes: Attributes) -> Value:
    """Rebuild the value of a shape from the flattened attributes."""
    if isinstance(shape, str):
        value = attributes[shape]
        return _with_lists(value) if isinstance(value, dict) else value
    if isinstance(shape, tuple):
        return [_value_of(entry, attributes) for entry in shape]
    return _object_of(shape, attributes)


def _with_lists(value: Value) -> Value:
    """Turn every object in a value whose keys are 0, 1, … into a list."""
    fields = values.mapping(value)
    if fields is None:
        return value
    lists = {name: _with_lists(inner) for name, inner in fields.items()}
    if all(str(position) in lists for position in range(len(lists))):
        return [lists[str(position)] for position in range(len(lists))]
    return lists


REMEMBERED_PREFIXES: Final = 8
"""How many sequences a cache keeps: a few, because sub-agents and recorders alternate."""

REMEMBERED_PREFIX_LENGTH: Final = 2 << 20

_LONG: Final = 1 << 14
_PIECES: Final = 12
"""A prefix longer than `_LONG` is not copied when it grows: it is kept as at most so many pieces."""

_SequenceT = TypeVar("_SequenceT", str, tuple[Any, ...])
_ValueT = TypeVar("_ValueT")


class Prefix(msgspec.Struct, Generic[_SequenceT, _ValueT], frozen=True, gc=False):
    """The beginning of a sequence in pieces, its length and its value."""

    length: int
    value: _ValueT
    pieces: tuple[_SequenceT, ...]


class PrefixCache(Generic[_SequenceT, _ValueT]):
    """What was parsed or judged last, the last kept first: only the rest of what begins with it is looked at.

    Most bytes of a dump repeat the history of a conversation. A sequence is a text (the JSON of messages, base64 of
    ids), or a tuple (messages); `is_at` says whether a piece stands at a position of one. Invariant: memory holds at
    most `REMEMBERED_PREFIXES` sequences a cache, each of at most `REMEMBERED_PREFIX_LENGTH` characters, and a cached
    value is exactly what the same sequence would give again.
    """

    def __init__(self, is_at: Callable[[_SequenceT, _SequenceT, int], bool]) -> None:
        self._is_at = is_at
        self._last: tuple[Prefix[_SequenceT, _ValueT], ...] = ()

    def find(self, sequence: _SequenceT, start: int = 0) -> Prefix[_SequenceT, _ValueT] | None:
        """A cached prefix of `sequence[start:]`.

        It is the last that was kept, because a conversation mostly continues its last call, or else the longest.
        """
        last, is_at = self._last, self._is_at
        longest = None
        for candidate in last:
            if longest is not None and candidate.length <= longest.length:
                continue
            position = start
            for piece in candidate.pieces:
                if not is_at(sequence, piece, position):
                    break
                position += len(piece)
            else:
                if candidate is last[0]:
                    return candidate
                longest = candidate
        return longest

    def keep(
        self,
        sequence: _SequenceT,
        value: _ValueT,
        *,
        start: int = 0,
        end: int | None = None,
        earlier: Prefix[_SequenceT, _ValueT] | None = None,
    ) -> None:
        """Cache the value of `sequence[start:end]`; `earlier` is the prefix that `find` gave for it."""
        length = (len(sequence) if end is None else end) - start
        if length > REMEMBERED_PREFIX_LENGTH:
            return
        if earlier is not None and length > _LONG and len(earlier.pieces) < _PIECES:
            pieces = (*earlier.pieces, sequence[start + earlier.length : end])
        else:
            pieces = (sequence[start:end],)
        # Replaced as a whole, so that threads of a live app need no lock.
        self._last = (Prefix(length, value, pieces), *self._last[: REMEMBERED_PREFIXES - 1])
