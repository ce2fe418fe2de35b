"""Scrubber: texts in, the same texts without their secrets out.

Invariant: nothing but secrets changes, and JSON stays JSON of the same shape. Nothing raises for what a text holds. The
same is found whether texts are altered or, in the mode `mark`, only counted.

RecordScrubber: the texts of one record (a span, a log record, a resource) without secrets, whoever made the record.

Invariant: every text is read, in whatever it is nested, but for those that the attribute names say hold none. The
number of secrets found stands in the record's own attributes, and where one was in what a model read or wrote, that
stands there too and the tokens that spell it are gone: such a completion must not be trained. Tokens of a prompt that
nobody could read are gone as well.

A live span, a received record and the log of an agent come as the same parts; what their names mean is a
ContentNames, because nothing here knows attributes that are not ours. `scrub_span` and `scrub_records` are for records
of any source that are no live spans: those without secrets are the very same ones; ids, times and order stay.
"""

import json
import logging
import re
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import accumulate
from typing import Any, Final, Literal, NamedTuple, Protocol, TypeAlias, cast

import msgspec

from art_otel.attributes import REQUEST_BODY, SCRUBBED, SCRUBBED_CONTENT
from art_otel.scrubbing import Mode, SecretMatch, SecretRules
from art_otel.scrubbing.patterns import (
    CONTENT_PATTERNS,
    PATTERNS,
    SIGNS,
    SecretPattern,
    may_name_secrets,
    own_pattern,
    secret_name,
)
from art_otel.spans.span import LogRecord, Resource, Scope, Span

logger = logging.getLogger(__name__)

_LONG: Final = 4096
"""Characters from which on a text is remembered."""
_LONGEST_REMEMBERED: Final = 2 << 20
_MAX_REMEMBERED: Final = 1024
"""Texts that are remembered: more than the conversations that a process has at once."""
_MAX_REMEMBERED_LENGTH: Final = 64 << 20
_OVERLAP: Final = 4096
"""What is scanned again before the new part of a text: longer than a secret that the old part ended in."""
_CLOSING: Final = 2
"""Characters at the end of a JSON list that are gone when the list goes on."""

PIECES: Final = "pieces"
"""The kind of a secret that several texts hold together."""

_SHORTEST: Final = 5
"""No pattern of ours matches less; an e-mail address is the shortest."""
_REPLACED: Final = re.compile(r"\[scrubbed:[a-z0-9 ]+\]")


def replacement(kind: str) -> str:
    """What stands in a secret's place: a text without quotes and backslashes."""
    return f"[scrubbed:{kind}]"


@dataclass(slots=True)
class Hits:
    """How many secrets were found."""

    count: int = 0


class Scrubber:
    """Finds secrets. It may be used by several threads at once.

    `own` are further patterns of secrets. A match for which `keeps` says True is left as it is.
    """

    def __init__(
        self,
        mode: Mode = "on",
        own: Sequence[re.Pattern[str]] = (),
        keeps: Callable[[SecretMatch], bool] | None = None,
    ) -> None:
        self.alters = mode != "mark"
        owns = tuple(map(own_pattern, own))
        self.patterns = patterns = (*PATTERNS, *(CONTENT_PATTERNS if mode == "content" else ()), *owns)
        self._keeps = keeps
        self._shortest = 1 if owns else _SHORTEST
        self._unsigned = [pattern for pattern in patterns if pattern.sign is None]
        groups = {sign: [pattern for pattern in patterns if pattern.sign is sign] for sign in SIGNS}
        self._signed = [(sign, tuple(pattern.mark for pattern in group), group) for sign, group in groups.items()]
        self._clean: tuple[tuple[str, ...], int] = (), 0
        """Long texts without secrets, sorted, and the length of all. Replaced as a whole, so threads need no lock."""

    def text(self, text: str, hits: Hits) -> str:
        """A text without what has the form of a secret."""
        scrubbed = self._text(text, hits)
        return scrubbed if self.alters else text

    def split_secret(self, texts: Sequence[str]) -> bool:
        """Whether texts, as the chunks of a stream are, hold a secret together that no one of them holds whole."""
        joined, ends = "".join(texts), [*accumulate(map(len, texts))]
        return len(texts) > 1 and any(
            match.start() < end < match.end()
            for pattern in self._possible(joined)
            for match in pattern.regex.finditer(joined)
            if self._is_secret(pattern, match[0])
            for end in ends
        )

    def value(self, name: str, value: object, hits: Hits, *, by_name: bool) -> object:
        """A value, however nested, without secrets: what has their form and, if `by_name`, what has their name.

        `name` is the value's own: of an attribute. Names are also looked for inside of JSON texts.
        """
        before = hits.count
        scrubbed = self._value(name, value, hits, by_name=by_name)
        return scrubbed if self.alters and hits.count > before else value

    def holds_secret(self, text: str) -> bool:
        """Whether anything in a text has the form of a secret."""
        hits = Hits()
        self._text(text, hits)
        return hits.count > 0

    def may_hold_secret(self, texts: Sequence[str]) -> bool:
        """Whether any of the texts has to be read: a quick look at all together, by forms only."""
        short = "\n".join([text for text in texts if len(text) < _LONG])
        return bool(self._possible(short)) or any(self.holds_secret(text) for text in texts if len(text) >= _LONG)

    def _value(self, name: str, value: object, hits: Hits, *, by_name: bool) -> object:
        if isinstance(value, str):
            return self._named(name, value, hits) if by_name else self._text(value, hits)
        if isinstance(value, bytes):
            return self._text(value.decode("latin-1"), hits).encode("latin-1", "replace")
        if isinstance(value, Mapping):
            inner = cast(Mapping[object, object], value).items()
            return {
                self._text(str(key), hits): self._value(str(key), entry, hits, by_name=by_name) for key, entry in inner
            }
        if isinstance(value, Sequence):
            entries = [self._value(name, entry, hits, by_name=by_name) for entry in cast(Sequence[object], value)]
            texts = [entry for entry in entries if isinstance(entry, str)]
            if len(texts) < len(entries) or not self.split_secret(texts):
                return entries
            hits.count += 1
            return [replacement(PIECES)] * len(entries)
        return value

    def _named(self, name: str, text: str, hits: Hits) -> str:
        """A text under a name."""
        kind = secret_name(name)
        if kind is not None and text and _REPLACED.fullmatch(text) is None and not self._is_kept(kind, text):
            hits.count += 1
            return replacement(kind)
        return self._json(text, hits) if may_name_secrets(text) else self._text(text, hits)

    def _json(self, text: str, hits: Hits) -> str:
        """A JSON text by the names in it; by forms alone where it is none."""
        before = hits.count
        try:
            scrubbed = self._value("", json.loads(text), hits, by_name=True)
        except (ValueError, RecursionError):
            hits.count = before
            return self._text(text, hits)
        return text if hits.count == before else json.dumps(scrubbed, ensure_ascii=text.isascii())

    def _text(self, text: str, hits: Hits) -> str:
        if len(text) < self._shortest:
            return text
        clean_length = self._clean_length(text) if len(text) >= _LONG else 0
        before, scrubbed = hits.count, text
        for pattern in self._possible(text, max(0, clean_length - _OVERLAP)):
            scrubbed = pattern.regex.sub(partial(self._replaced, pattern, hits), scrubbed)
        if len(text) >= _LONG and hits.count == before:
            self._remember(text, clean_length)
        return scrubbed

    def _possible(self, text: str, start: int = 0) -> list[SecretPattern]:
        """List the patterns that may match in `text[start:]`."""
        possible: list[SecretPattern] = []
        for sign, marks, patterns in self._signed:
            if sign.search(text, start) is None:
                continue
            ends = [match.end() for match in sign.finditer(text, start) if text.endswith(marks, 0, match.end())]
            if ends:
                present_marks = {mark for mark in marks for end in ends if text.endswith(mark, 0, end)}
                possible += [pattern for pattern in patterns if pattern.mark in present_marks]
        for pattern in self._unsigned:
            if text.find(pattern.mark, start) >= 0 if pattern.mark else pattern.regex.search(text, start):
                possible.append(pattern)
        return possible

    def _clean_length(self, text: str) -> int:
        """Return the length of the prefix that was clean before: most of a prompt is the conversation so far.

        Of sorted texts, one of the two neighbors has the longest prefix in common with a text.
        """
        texts, _ = self._clean
        at = bisect_left(texts, text)
        return max((_common_length(text, clean) for clean in texts[max(0, at - 1) : at + 1]), default=0)

    def _remember(self, text: str, clean_length: int) -> None:
        """Remember a clean text instead of what it goes on from, and forget all others where they are too many."""
        if not clean_length < len(text) - _CLOSING <= _LONGEST_REMEMBERED:
            return
        texts, length = self._clean
        clean = text[:-_CLOSING]
        at = bisect_left(texts, clean)
        begin = at - 1 if at and clean.startswith(texts[at - 1]) else at
        length += len(clean) - sum(map(len, texts[begin:at]))
        if len(texts) >= _MAX_REMEMBERED or length > _MAX_REMEMBERED_LENGTH:
            self._clean = (clean,), len(clean)
        else:
            self._clean = (*texts[:begin], clean, *texts[at:]), length

    def _replaced(self, pattern: SecretPattern, hits: Hits, match: re.Match[str]) -> str:
        """The match with its secret replaced; as it is where it is none."""
        group = "secret" if "secret" in pattern.regex.groupindex else 0
        if not match[group] or not self._is_secret(pattern, match[group]):
            return match[0]
        hits.count += 1
        start, end = (position - match.start() for position in match.span(group))
        return f"{match[0][:start]}{replacement(pattern.kind)}{match[0][end:]}"

    def _is_secret(self, pattern: SecretPattern, text: str) -> bool:
        return pattern.is_secret(text) and not self._is_kept(pattern.kind, text)

    def _is_kept(self, kind: str, text: str) -> bool:
        """Whether the app's owner keeps this secret. Of a function that raises nothing is kept."""
        try:
            return self._keeps is not None and self._keeps(SecretMatch(kind, text)) is True
        except Exception as error:  # noqa: BLE001 # it is the app's; what it raised may quote the secret
            logger.warning("art-otel: scrub_keeps raised %s; the secret is replaced", type(error).__name__)
            return False


def _common_length(one: str, other: str) -> int:
    """Return the length of the longest prefix that two texts have in common."""
    if one.startswith(other):
        return len(other)
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        if one[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


AnyAttributes: TypeAlias = Mapping[str, Any]
NameReading: TypeAlias = Literal["not", "spoken", "named"]
"""How a text is read: not at all; by the form of secrets; or also by its name and those in it."""

_SHORT: Final = 256
"""Characters of a text that is remembered as clean, with the name of its attribute."""
_MAX_CLEAN: Final = 4096


class ScrubbedPart(NamedTuple):
    """A text with the attributes that stand under it: the name of a span or an event, the message of a status."""

    text: str
    attributes: AnyAttributes
    is_event: bool = False


class ContentNames(Protocol):
    """What the names of attributes and events say of the texts under them."""

    def reading(self, name: str) -> NameReading:
        """How the text of an attribute or of an event of this name is read."""
        ...

    def is_message(self, event: str) -> bool:
        """Whether what stands in an event of this name was said to a model or by it."""
        ...

    def is_content(self, name: str, value: Any, scrubber: Scrubber) -> bool:  # noqa: ANN401 # any value
        """Whether the secrets in an attribute are in what was said to a model or by it."""
        ...

    @property
    def prompt_ids(self) -> re.Pattern[str]:
        """What is found in each name and text that holds token ids of a prompt."""
        ...

    def without_tokens(self, attributes: AnyAttributes, *, in_content: bool) -> AnyAttributes:
        """Leave out tokens: all where a secret was in content, else those of a prompt whose text is not beside them.

        The very same attributes where there are none.
        """
        ...


@dataclass(slots=True)
class _RecordHits(Hits):
    """Counts the secrets in one record. `in_content` says whether any was in what a model read or wrote."""

    in_content: bool = False


class RecordScrubber:
    """Takes the secrets out of records. It may be used by several threads at once."""

    def __init__(self, scrubber: Scrubber, names: ContentNames) -> None:
        self.scrubber = scrubber
        self._names = names
        self._prompt_ids = names.prompt_ids
        self._reading = lru_cache(maxsize=4096)(self._judge_name)
        self._clean: set[tuple[str, str]] = set()

    @classmethod
    def of(cls, rules: SecretRules, names: ContentNames) -> "RecordScrubber | None":
        """What scrubs records by these rules; None where nothing is looked for. Raises re.error."""
        own = [re.compile(pattern) for pattern in rules.patterns]
        return None if rules.mode == "off" else cls(Scrubber(rules.mode, own), names)

    def scrub(
        self, parts: Sequence[ScrubbedPart], scanned: AbstractSet[str] = frozenset()
    ) -> list[ScrubbedPart] | None:
        """Return the parts without secrets, with the marks in the first; None where nothing has to change.

        `scanned` names attributes in which this scrubber's patterns have found nothing already.
        """
        return None if self._is_clean(parts, scanned) else self._scrubbed(parts)

    def _is_clean(self, parts: Sequence[ScrubbedPart], scanned: AbstractSet[str]) -> bool:
        """Whether a quick look at all texts together finds nothing, as in nearly all records."""
        unread = self._unread(parts, scanned)
        if not unread:
            return unread is not None
        named = [text for name, text in unread if self._reading(name) == "named"]
        if named and may_name_secrets("\n".join(named)):
            return False
        texts = [text for _, text in unread]
        spelling, own = set(filter(self._prompt_ids.search, texts)), parts[0].attributes
        # The body of a request has the prompt, which is read with it.
        if spelling and REQUEST_BODY not in own and self._names.without_tokens(own, in_content=False) is not own:
            return False
        if self.scrubber.may_hold_secret(texts):
            return False
        # Whether a text that spells a prompt may stand in a record depends on what else does.
        self._remember([entry for entry in unread if len(entry[1]) <= _SHORT and entry[1] not in spelling])
        return True

    def _unread(self, parts: Sequence[ScrubbedPart], scanned: AbstractSet[str]) -> list[tuple[str, str]] | None:
        """List the texts that are not known to be clean, with their names; None if any needs a closer look."""
        unread = [("", text) for text in {part.text for part in parts if part.text} if ("", text) not in self._clean]
        for part in parts:
            for name, value in part.attributes.items():
                if name in scanned or (
                    isinstance(value, str) and len(value) <= _SHORT and (name, value) in self._clean
                ):
                    continue
                reading = self._reading(name)
                if reading == "closer":
                    return None
                if reading == "not" or isinstance(value, (bool, int, float)):
                    continue
                if not _is_flat(value):
                    return None
                unread.append((name, value if isinstance(value, str) else "".join(cast(Sequence[str], value))))
        # An event that stands alone is read as it is. A stream has many without attributes.
        return unread + [("", "".join(texts)) for texts in _pieces(parts).values() if len(texts) > 1]

    def _remember(self, clean: list[tuple[str, str]]) -> None:
        """Remember short texts with their names: most stand in every record, as its model and its parameters do."""
        if len(self._clean) + len(clean) > _MAX_CLEAN:
            self._clean = set()
        self._clean.update(clean)

    def _judge_name(self, name: str) -> NameReading | Literal["closer"]:
        """How the quick look reads an attribute of this name; `closer`: not at all, for it cannot tell."""
        if name == SCRUBBED_CONTENT or self._prompt_ids.search(name) or self.scrubber.holds_secret(name):
            return "closer"
        reading = self._names.reading(name)
        return "closer" if reading != "not" and secret_name(name) is not None else reading

    def _scrubbed(self, parts: Sequence[ScrubbedPart]) -> list[ScrubbedPart] | None:
        findings, own = _RecordHits(), parts[0].attributes
        split = {key for key, texts in _pieces(parts).items() if self.scrubber.split_secret(texts)}
        findings.count, findings.in_content = len(split), bool(split)
        scrubbed = [self._part(part, split, findings) for part in parts]
        attributes = scrubbed[0].attributes
        in_content = findings.in_content or own.get(SCRUBBED_CONTENT) is True
        if self.scrubber.alters:
            attributes = self._names.without_tokens(attributes, in_content=in_content)
        if not findings.count and attributes == own:
            return None
        marks: dict[str, bool | int] = {SCRUBBED_CONTENT: True} if in_content else {}
        if findings.count:
            earlier = own.get(SCRUBBED)
            marks[SCRUBBED] = findings.count + (earlier if isinstance(earlier, int) else 0)
        return [scrubbed[0]._replace(attributes={**attributes, **marks}), *scrubbed[1:]]

    def _part(self, part: ScrubbedPart, split: AbstractSet[tuple[str, str]], findings: _RecordHits) -> ScrubbedPart:
        before, is_spoken = findings.count, part.is_event and self._names.reading(part.text) == "spoken"
        attributes = dict(part.attributes)
        if part.is_event and self.scrubber.alters:
            attributes |= {name: replacement(PIECES) for name in attributes if (part.text, name) in split}
        scrubbed = ScrubbedPart(
            self.scrubber.text(part.text, findings),
            dict(self._attribute(*entry, is_spoken, findings) for entry in attributes.items()),
            part.is_event,
        )
        if findings.count > before and part.is_event and self._names.is_message(part.text):
            findings.in_content = True
        return scrubbed

    def _attribute(self, name: str, value: Any, is_spoken: bool, findings: _RecordHits) -> tuple[str, Any]:  # noqa: ANN401, FBT001 # any value; one of an event is told how its event is read
        before, reading = findings.count, self._names.reading(name)
        if reading == "not":
            return name, value
        scrubbed = self.scrubber.value(name, value, findings, by_name=reading == "named" and not is_spoken)
        if findings.count > before and self._names.is_content(name, value, self.scrubber):
            findings.in_content = True
        return self.scrubber.text(name, findings), scrubbed


def _pieces(parts: Sequence[ScrubbedPart]) -> dict[tuple[str, str], list[str]]:
    """The texts of events by the names of event and attribute: chunks of a stream may hold a secret only together."""
    pieces: dict[tuple[str, str], list[str]] = {}
    for part in parts:
        if part.is_event:
            for name, value in part.attributes.items():
                if isinstance(value, str):
                    pieces.setdefault((part.text, name), []).append(value)
    return pieces


def _is_flat(value: object) -> bool:
    """Whether a value is a text or a list of texts."""
    return isinstance(value, str) or (
        isinstance(value, (list, tuple)) and all(isinstance(entry, str) for entry in cast(list[object], value))
    )


_BODY: Final = "art.body"
"""The name under which a body is read: what it says was said, so no name in it makes it a secret."""


def scrub_records(records: Iterable[Span | LogRecord], scrubber: RecordScrubber) -> Iterator[Span | LogRecord]:
    """Give the records without secrets."""
    shared: dict[tuple[int, Scope], tuple[Resource, Scope]] = {}  # the spans of a request share a few
    for record in records:
        if isinstance(record, LogRecord):
            yield _scrub_log_record(record, scrubber)
            continue
        key = (id(record.resource), record.scope)
        if key not in shared:
            shared[key] = (_scrub_resource(record.resource, scrubber), _scrub_scope(record.scope, scrubber))
        resource, scope = shared[key]
        if resource is not record.resource or scope is not record.scope:
            record = msgspec.structs.replace(record, resource=resource, scope=scope)  # noqa: PLW2901 # the same span
        yield scrub_span(record, scrubber)


def scrub_span(span: Span, scrubber: RecordScrubber) -> Span:
    """Give a span without secrets, but for what it shares with others: its resource and its scope."""
    parts = [
        ScrubbedPart(span.name, span.attributes),
        ScrubbedPart(span.status_message, {}),
        *(ScrubbedPart(event.name, event.attributes, is_event=True) for event in span.events),
        *(ScrubbedPart("", link.attributes) for link in span.links),
    ]
    scrubbed = scrubber.scrub(parts)
    if scrubbed is None:
        return span
    own, message, *rest = scrubbed
    events, links = rest[: len(span.events)], rest[len(span.events) :]
    return msgspec.structs.replace(
        span,
        name=own.text,
        attributes=own.attributes,
        status_message=message.text,
        events=tuple(
            msgspec.structs.replace(event, name=part.text, attributes=part.attributes)
            for event, part in zip(span.events, events, strict=True)
        ),
        links=tuple(
            msgspec.structs.replace(link, attributes=part.attributes)
            for link, part in zip(span.links, links, strict=True)
        ),
    )


def _scrub_resource(resource: Resource, scrubber: RecordScrubber) -> Resource:
    scrubbed = scrubber.scrub([ScrubbedPart("", resource.attributes)])
    return resource if scrubbed is None else Resource(attributes=dict(scrubbed[0].attributes))


def _scrub_scope(scope: Scope, scrubber: RecordScrubber) -> Scope:
    scrubbed = scrubber.scrub([ScrubbedPart(scope.name, {}), ScrubbedPart(scope.version, {})])
    return scope if scrubbed is None else Scope(name=scrubbed[0].text, version=scrubbed[1].text)


def _scrub_log_record(log: LogRecord, scrubber: RecordScrubber) -> LogRecord:
    """Scrub a log record. Its body is content of the call it belongs to, which the mark keeps from being trained."""
    scrubbed = scrubber.scrub([ScrubbedPart(log.event_name, log.attributes), ScrubbedPart("", {_BODY: log.body})])
    if scrubbed is None:
        return log
    own, body = scrubbed
    attributes = {**own.attributes, SCRUBBED_CONTENT: True}
    return msgspec.structs.replace(log, event_name=own.text, body=body.attributes[_BODY], attributes=attributes)
