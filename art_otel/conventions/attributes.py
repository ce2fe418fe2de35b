"""Attributes: read the values of attributes, and lists that are flattened over many attributes.

    llm.input_messages.0.message.role = "user"          `unflatten` makes [{"message": {"role": "user",
    llm.input_messages.0.message.content = "hi"          "content": "hi"}}]

`AttributeReader` reads values and collects the gaps in them; `attribute_names` has the names.

Invariant: nothing here raises for any content. A value that cannot be read whole is unknown, and a gap has the name of
its attribute. A list that lost entries (an SDK drops the oldest attributes beyond 128) is unknown, and not shorter.
Memory has at most `REMEMBERED_SHAPES` shapes, each of names of at most `REMEMBERED_LENGTH` characters.
"""

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import lru_cache
from operator import itemgetter
from typing import Final, TypeAlias, TypeVar

import msgspec

from art_otel.calls import Gap, GapKind
from art_otel.conventions import values
from art_otel.conventions.attribute_names import REMEMBERED_LENGTH, AttributeNames, NameFamilies
from art_otel.errors import ParseError
from art_otel.spans import Attributes, LogRecord, Span, Value

_Result = TypeVar("_Result")

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
            self._names = AttributeNames(self.attributes)
        return self._names

    @property
    def families(self) -> NameFamilies:
        """The families of the names."""
        return self.names.families

    @property
    def gaps(self) -> tuple[Gap, ...]:
        """The gaps that were found so far, in the order of reading."""
        return tuple(self._gaps)

    def gap(self, kind: GapKind, evidence: str, *, field: str = "call") -> None:
        """Record a gap in the content (see `calls.Gap`)."""
        self._gaps[Gap(kind=kind, field=field, evidence=evidence)] = None

    def add_gaps(self, other: "AttributeReader", but: Collection[GapKind] = ()) -> None:
        """Add the gaps of another reader of these attributes, except those of the kinds in `but`."""
        self._gaps |= {gap: None for gap in other.gaps if gap.kind not in but}

    def mark_invalid(self, name: str) -> None:
        """Record that the value of an attribute does not follow its convention."""
        self.gap("not understood", name, field=field_of(name))

    def mark_cut(self, name: str) -> None:
        """Record that the JSON of an attribute was cut."""
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

        A text that begins like JSON but is none counts as cut, unless the attribute `may_be_text`.
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
        if not whole:  # invalid texts or numbers were replaced
            self.mark_invalid(name)
        return decoded

    def json_safe(self, name: str) -> Value:
        """Decode an attribute to values that any JSON writer accepts; text that is no JSON stays text."""
        value = self.structured(name)
        if value is None:
            value = None if any(gap.evidence == name for gap in self._gaps) else self.attributes.get(name)
        return self.make_safe(name, value)

    def decoded(self, name: str) -> Value:
        """Decode an attribute that is always JSON, so that a text is in quotation marks; other text stays text."""
        value = self.attributes.get(name)
        if isinstance(value, str) and value.startswith('"'):
            return self.make_safe(name, values.json_value(value))
        return self.json_safe(name)

    def make_safe(self, name: str, value: Value) -> Value:
        """Make the value of attribute `name` safe for every JSON writer; None and a gap if that is impossible."""
        return self.parsed(name, values.json_safe, value)

    def parsed(self, name: str, parse: Callable[[Value], _Result], value: Value) -> _Result | None:
        """Parse the value of attribute `name`; None and a gap if the parser raises ParseError."""
        if value is None:
            return None
        try:
            return parse(value)
        except ParseError:
            self.mark_invalid(name)
            return None

    def body(self, name: str, *, may_be_text: bool = False) -> dict[str, Value] | None:
        """Decode the JSON object in attribute `name`. Lists of messages in it stay undecoded (`msgspec.Raw`)."""
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
"""Words in attributes' names that show the field of a call; the first line that fits counts."""


@lru_cache(maxsize=1024)
def field_of(name: str) -> str:
    """The field of a call (see `calls.Gap`) that an attribute has, by the words in its name."""
    return next((field for field, words in _FIELDS if words.search(name)), "call")


def _decode_field(key: str, raw: msgspec.Raw) -> Value:
    return raw if key in _MESSAGE_LISTS and memoryview(raw)[:1].tobytes() == b"[" else msgspec.json.decode(raw)


class SpanRecording(msgspec.Struct, frozen=True, gc=False):
    """An inference span, its log records, and the names of the span's attributes."""

    span: Span
    logs: Sequence[LogRecord]
    names: AttributeNames

    @property
    def families(self) -> NameFamilies:
        """The families of the names."""
        return self.names.families

    def reader(self) -> AttributeReader:
        """A new reader of the span's attributes."""
        return AttributeReader(self.span.attributes, self.names)


def unflatten(reader: AttributeReader, prefix: str) -> list[Value] | None:
    """Rebuild the list below `prefix`; None if there is none, or (with a gap) if entries are missing."""
    if not reader.families.starting(f"{prefix}."):
        return None
    entries = reader.names.entries(prefix)
    listed = [entries.get(str(position), {}) for position in range(len(entries))]
    if not listed or not all(listed):
        reader.gap("dropped", prefix, field=field_of(prefix))
        return None
    return [_value_of(_shape_of(tuple(entry)), entry, reader.attributes) for entry in listed]


Shape: TypeAlias = str | dict[str, "Shape"] | tuple["Shape", ...] | None
"""How attributes make up a value: the rest of the name of one, or an object or a list of shapes."""

MAX_STEPS: Final = 64
"""A name with more steps keeps the rest as one: shapes must not run out of stack."""

REMEMBERED_SHAPES: Final = 256

_Tree: TypeAlias = dict[str, "str | _Tree"]


def _shape_of(rests: tuple[str | None, ...]) -> Shape:
    """The shape of an entry with names of these rests; entries of a list have few different ones."""
    is_remembered = sum(len(rest) for rest in rests if rest is not None) <= REMEMBERED_LENGTH
    return _remembered_shape(rests) if is_remembered else _made_shape(rests)


def _made_shape(rests: tuple[str | None, ...]) -> Shape:
    if rests[0] is None:
        return None  # the entry is a value; what else has its name as a prefix is not
    root: _Tree = {}
    for rest in rests:
        if rest is not None:
            *path, last = rest.split(".", MAX_STEPS)
            _put(root, path, last, rest)
    return _with_tuples(root)


_remembered_shape: Final = lru_cache(maxsize=REMEMBERED_SHAPES)(_made_shape)


def _put(tree: _Tree, path: list[str], last: str, rest: str) -> None:
    """Put a rest at a path. A name that is also a prefix of others stays what it was first."""
    for step in path:
        inner = tree.get(step)
        if inner is None:
            inner = tree[step] = {}
        elif isinstance(inner, str):
            return
        tree = inner
    if last not in tree:
        tree[last] = rest


def _with_tuples(tree: _Tree) -> Shape:
    """Turn every object of a tree whose keys are 0, 1, … into a list."""
    shapes: dict[str, Shape] = {
        step: inner if isinstance(inner, str) else _with_tuples(inner) for step, inner in tree.items()
    }
    if all(str(position) in shapes for position in range(len(shapes))):
        return tuple([shapes[str(position)] for position in range(len(shapes))])
    return shapes


def numbered(value: Value) -> list[tuple[int, Value]]:
    """The entries of a list below another, with their numbers; a list with holes in it stayed an object."""
    entries = values.items(value)
    if entries is not None:
        return list(enumerate(entries))
    fields = values.mapping(value) or {}
    return sorted(
        ((int(step), entry) for step, entry in fields.items() if step.isascii() and step.isdigit()), key=itemgetter(0)
    )


def _value_of(shape: Shape, names: Mapping[str | None, str], attributes: Attributes) -> Value:
    """Rebuild the value of a shape from the flattened attributes, whose names are known by their rests."""
    if isinstance(shape, dict):
        return {step: _value_of(inner, names, attributes) for step, inner in shape.items()}
    if isinstance(shape, tuple):
        return [_value_of(inner, names, attributes) for inner in shape]
    value = attributes[names[shape]]
    return _with_lists(value) if isinstance(value, dict) else value


def _with_lists(value: Value) -> Value:
    """Turn every object in a value whose keys are 0, 1, … into a list."""
    fields = values.mapping(value)
    if fields is None:
        return value
    lists = {name: _with_lists(inner) for name, inner in fields.items()}
    if all(str(position) in lists for position in range(len(lists))):
        return [lists[str(position)] for position in range(len(lists))]
    return lists
