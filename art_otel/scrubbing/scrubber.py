"""Scrubber: takes the secrets out of texts. RecordScrubber: takes them out of whole records.

    {"content": "my key is sk-ant-…"}   ─►   {"content": "my key is [scrubbed:anthropic key]"}

Invariant of Scrubber: only secrets change, and JSON stays JSON of the same shape. No text raises. The mode `mark` finds
the same secrets, and only counts them.

Invariant of RecordScrubber (a span, a log record, a resource): every text is read, however deep it is nested, except
where the attribute's name says that it cannot hold a secret. The record says how many secrets were found. If a secret
was in content (what a model read or wrote), the record says that, too, and loses the token ids that spell the secret:
such a completion must not be trained. Ids of a prompt whose text is not in the record go as well, since they were not
searched.

`ContentNames` says what attribute names mean, because this package knows only our own. `scrub_span` and `scrub_records`
are for records that are no live spans; a record without secrets is returned as the same object.
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
    RARE,
    SIGNS,
    SecretPattern,
    may_name_secrets,
    own_pattern,
    secret_name,
)
from art_otel.spans.span import LogRecord, Resource, Scope, Span

logger = logging.getLogger(__name__)

_LONG: Final = 4096
"""Texts with so many characters or more are remembered if they are clean: the next prompt begins with them."""
_LONGEST_REMEMBERED: Final = 2 << 20
_MAX_REMEMBERED: Final = 1024
"""How many clean texts are remembered: more than the conversations that a process has at once."""
_MAX_REMEMBERED_LENGTH: Final = 64 << 20
_OVERLAP: Final = 4096
"""So many characters before the new part of a text are searched again: a secret may cross the border."""
_CLOSING: Final = 2
"""The last characters of a JSON list of messages (`}]`), which are gone when the list goes on."""

PIECES: Final = "pieces"
"""The kind of a secret that is spread over several texts, as over the chunks of a stream."""

_SHORTEST: Final = 5
"""No pattern of ours matches a shorter text; the shortest match is an e-mail address."""
_REPLACED: Final = re.compile(r"\[scrubbed:[a-z0-9 ]+\]")


def replacement(kind: str) -> str:
    """The text that replaces a secret: `[scrubbed:openai key]`. It has no quotes and backslashes, for use in JSON."""
    return f"[scrubbed:{kind}]"


@dataclass(slots=True)
class Hits:
    """Counts the secrets that were found."""

    count: int = 0


class Scrubber:
    """Finds and replaces secrets in texts. Several threads may use it at once.

    `own` are further patterns. A match for which the function `keeps` returns True is no secret. `alters` is False in
    the mode `mark`.
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
        unsigned = [pattern for pattern in patterns if pattern.sign is None]
        self._unsigned = [(next((rare for rare in RARE if rare in each.mark), ""), each) for each in unsigned]
        groups = {sign: [pattern for pattern in patterns if pattern.sign is sign] for sign in SIGNS}
        self._signed = [
            (SIGNS[sign], sign, tuple(pattern.mark for pattern in group), group) for sign, group in groups.items()
        ]
        self._rare = {rare for rare, *_ in (*self._signed, *self._unsigned) if rare}
        self._clean: tuple[tuple[str, ...], int] = (), 0
        """Long clean texts, sorted, and their total length. Replaced as a whole, so threads need no lock."""

    def text(self, text: str, hits: Hits) -> str:
        """The text with everything replaced that has the form of a secret; counted in `hits`."""
        scrubbed = self._text(text, hits)
        return scrubbed if self.alters else text

    def split_secret(self, texts: Sequence[str]) -> bool:
        """Whether a secret crosses the border of two texts, as of two chunks of a stream."""
        joined, ends = "".join(texts), [*accumulate(map(len, texts))]
        return len(texts) > 1 and any(
            match.start() < end < match.end()
            for pattern in self._possible(joined)
            for match in pattern.regex.finditer(joined)
            if self._is_secret(pattern, match[0])
            for end in ends
        )

    def value(self, name: str, value: object, hits: Hits, *, by_name: bool) -> object:
        """A value, however nested, without secrets, which are counted in `hits`.

        With `by_name`, a text under a secret name is a secret, too. `name` is the name of the value itself (of an
        attribute); further names are found in mappings and inside of JSON texts.
        """
        before = hits.count
        scrubbed = self._value(name, value, hits, by_name=by_name)
        return scrubbed if self.alters and hits.count > before else value

    def holds_secret(self, text: str) -> bool:
        """Whether a text has a part with the form of a secret."""
        hits = Hits()
        self._text(text, hits)
        return hits.count > 0

    def may_hold_secret(self, texts: Sequence[str]) -> bool:
        """Whether any of the texts may hold a secret by its form: a quick search over all of them together."""
        long = [text for text in texts if len(text) >= _LONG]
        short = "\n".join([text for text in texts if len(text) < _LONG])
        return bool(self._possible(short)) or any(map(self.holds_secret, long))

    def _value(self, name: str, value: object, hits: Hits, *, by_name: bool) -> object:
        if isinstance(value, str):
            return self._named(name, value, hits) if by_name else self._text(value, hits)
        if isinstance(value, bytes):
            # latin-1 has a character for each byte, so that any binary data comes back unchanged.
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
        """A text under a name, which may make it a secret."""
        kind = secret_name(name)
        if kind is not None and text and _REPLACED.fullmatch(text) is None and not self._is_kept(kind, text):
            hits.count += 1
            return replacement(kind)
        return self._json(text, hits) if may_name_secrets(text) else self._text(text, hits)

    def _json(self, text: str, hits: Hits) -> str:
        """A JSON text, searched by the names in it; a text that is no JSON by forms alone."""
        before = hits.count
        try:
            scrubbed = self._value("", json.loads(text), hits, by_name=True)
        except (ValueError, RecursionError):
            hits.count = before
            return self._text(text, hits)
        # A text that was ASCII only, with escapes, stays so.
        return text if hits.count == before else json.dumps(scrubbed, ensure_ascii=text.isascii())

    def _text(self, text: str, hits: Hits) -> str:
        if len(text) < self._shortest:
            return text
        clean_length = self._clean_length(text) if len(text) >= _LONG else 0
        before, scrubbed = hits.count, text
        # Only the new part of a known text decides which patterns are tried; nearly always none is.
        for pattern in self._possible(text, max(0, clean_length - _OVERLAP)):
            scrubbed = pattern.regex.sub(partial(self._replaced, pattern, hits), scrubbed)
        if len(text) >= _LONG and hits.count == before:
            self._remember(text, clean_length)
        return scrubbed

    def _possible(self, text: str, start: int = 0) -> list[SecretPattern]:
        """The patterns that may match in `text[start:]`, found by their signs and marks."""
        possible: list[SecretPattern] = []
        absent = {character for character in self._rare if text.find(character, start) < 0}
        for rare, sign, marks, patterns in self._signed:
            if rare in absent or sign.search(text, start) is None:
                continue
            ends = [match.end() for match in sign.finditer(text, start) if text.endswith(marks, 0, match.end())]
            if ends:
                present_marks = {mark for mark in marks for end in ends if text.endswith(mark, 0, end)}
                possible += [pattern for pattern in patterns if pattern.mark in present_marks]
        for rare, pattern in self._unsigned:
            if rare in absent:
                continue
            if text.find(pattern.mark, start) >= 0 if pattern.mark else pattern.regex.search(text, start):
                possible.append(pattern)
        return possible

    def _clean_length(self, text: str) -> int:
        """The length of the prefix that was clean before: most of a prompt is the conversation so far."""
        texts, _ = self._clean
        # The texts are sorted, so one of the two neighbors has the longest common prefix.
        at = bisect_left(texts, text)
        return max((_common_length(text, clean) for clean in texts[max(0, at - 1) : at + 1]), default=0)

    def _remember(self, text: str, clean_length: int) -> None:
        """Remember a clean text in the place of the one that it continues. With too many texts, forget all others."""
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
        """The match with its secret replaced; unchanged if it is no secret."""
        group = "secret" if "secret" in pattern.regex.groupindex else 0
        if not match[group] or not self._is_secret(pattern, match[group]):
            return match[0]
        hits.count += 1
        start, end = (position - match.start() for position in match.span(group))
        return f"{match[0][:start]}{replacement(pattern.kind)}{match[0][end:]}"

    def _is_secret(self, pattern: SecretPattern, text: str) -> bool:
        return pattern.is_secret(text) and not self._is_kept(pattern.kind, text)

    def _is_kept(self, kind: str, text: str) -> bool:
        """Whether the owner's function `keeps` says that this is no secret. If it raises, the match is a secret."""
        try:
            return self._keeps is not None and self._keeps(SecretMatch(kind, text)) is True
        except Exception as error:  # noqa: BLE001 # it is the app's; what it raised may quote the secret
            logger.warning("art-otel: scrub_keeps raised %s; the secret is replaced", type(error).__name__)
            return False


def _common_length(one: str, other: str) -> int:
    """The length of the longest common prefix of two texts."""
    if one.startswith(other):
        return len(other)
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        if one.startswith(other[low:middle], low):
            low = middle
        else:
            high = middle - 1
    return low


AnyAttributes: TypeAlias = Mapping[str, Any]
NameReading: TypeAlias = Literal["not", "spoken", "named"]
"""How a text is searched: not at all ("not"), by the form of secrets ("spoken"), or also by names ("named")."""

_SHORT: Final = 256
"""Texts of at most so many characters are remembered as clean, with the name of their attribute."""
_MAX_CLEAN: Final = 4096


class ScrubbedPart(NamedTuple):
    """A part of a record: a text (the name of a span or event, the message of a status) with its attributes."""

    text: str
    attributes: AnyAttributes
    is_event: bool = False


class ContentNames(Protocol):
    """What the names of attributes and events say about the texts under them."""

    def reading(self, name: str) -> NameReading:
        """How the texts of an attribute or an event with this name are searched."""
        ...

    def is_message(self, event: str) -> bool:
        """Whether an event with this name holds content: what was said to a model or by it."""
        ...

    def is_content(self, name: str, value: Any, scrubber: Scrubber) -> bool:  # noqa: ANN401 # any value
        """Whether the secrets in an attribute are in content: in what was said to a model or by it."""
        ...

    @property
    def prompt_ids(self) -> re.Pattern[str]:
        """A pattern that matches in every name and text with token ids of a prompt."""
        ...

    def without_tokens(self, attributes: AnyAttributes, *, in_content: bool) -> AnyAttributes:
        """The attributes without token ids that must go; the same object where there are none.

        With `in_content` all ids go; else only those of a prompt whose text is not in the attributes.
        """
        ...


@dataclass(slots=True)
class _RecordHits(Hits):
    """Counts the secrets in one record. `in_content` says whether a secret was in what a model read or wrote."""

    in_content: bool = False


class RecordScrubber:
    """Takes the secrets out of records. Several threads may use it at once."""

    def __init__(self, scrubber: Scrubber, names: ContentNames) -> None:
        self.scrubber = scrubber
        self._names = names
        self._prompt_ids = names.prompt_ids
        self._reading = lru_cache(maxsize=4096)(self._judge_name)
        self._clean: set[tuple[str, str]] = set()

    @classmethod
    def of(cls, rules: SecretRules, names: ContentNames) -> "RecordScrubber | None":
        """The scrubber for these rules; None for the mode `off`. Raises re.error for an invalid pattern."""
        own = [re.compile(pattern) for pattern in rules.patterns]
        return None if rules.mode == "off" else cls(Scrubber(rules.mode, own), names)

    def scrub(
        self, parts: Sequence[ScrubbedPart], scanned: AbstractSet[str] = frozenset()
    ) -> list[ScrubbedPart] | None:
        """The parts without secrets; None where nothing must change.

        The attributes of the first part then say how many secrets were found, and whether one was in content. `scanned`
        names attributes in which the patterns have been searched for already, without a match.
        """
        return None if self._is_clean(parts, scanned) else self._scrubbed(parts)

    def _is_clean(self, parts: Sequence[ScrubbedPart], scanned: AbstractSet[str]) -> bool:
        """Whether a quick search over all texts together finds nothing, as in nearly all records."""
        unread = self._unread(parts, scanned)
        if not unread:
            return unread is not None
        named = [text for name, text in unread if self._reading(name) == "named"]
        if named and may_name_secrets("\n".join(named)):
            return False
        texts, own = [text for _, text in unread], parts[0].attributes
        # The body of a request holds the prompt's text, which is searched with it: its ids may stay.
        may_spell = REQUEST_BODY not in own and any(map(self._prompt_ids.search, texts))
        if may_spell and self._names.without_tokens(own, in_content=False) is not own:
            return False
        if self.scrubber.may_hold_secret(texts):
            return False
        # Whether a text that spells a prompt may stand in a record depends on what else does.
        short = [entry for entry in unread if len(entry[1]) <= _SHORT]
        self._remember([entry for entry in short if self._prompt_ids.search(entry[1]) is None])
        return True

    def _unread(self, parts: Sequence[ScrubbedPart], scanned: AbstractSet[str]) -> list[tuple[str, str]] | None:
        """The texts that are not known to be clean, with their names; None if any of them needs the full search."""
        unread: list[tuple[str, str]] = []
        clean, has_events = self._clean, False
        for text, attributes, is_event in parts:
            has_events = has_events or is_event
            if text and ("", text) not in clean:
                unread.append(("", text))
            for name, value in attributes.items():
                is_text = isinstance(value, str)
                if name in scanned or (is_text and len(value) <= _SHORT and (name, value) in clean):
                    continue
                reading = self._reading(name)
                if reading == "closer":
                    return None
                # Numbers cannot hold a secret.
                if reading == "not" or isinstance(value, (bool, int, float)):
                    continue
                if not is_text and not _is_flat(value):
                    return None
                unread.append((name, value if is_text else "".join(cast(Sequence[str], value))))
        if has_events:  # their pieces are also searched together: a secret may cross their borders
            unread += [("", "".join(texts)) for texts in _pieces(parts).values() if len(texts) > 1]
        return unread

    def _remember(self, clean: list[tuple[str, str]]) -> None:
        """Remember short clean texts with their names: most are in every record, as model and parameters are."""
        if len(self._clean) + len(clean) > _MAX_CLEAN:
            self._clean = set()
        self._clean.update(clean)

    def _judge_name(self, name: str) -> NameReading | Literal["closer"]:
        """How the quick search reads an attribute with this name; "closer" where only the full search can tell."""
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
            # A record may have been scrubbed before, in the app: the counts add up.
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
    """The texts of events, by the names of event and attribute: chunks of a stream may hold a secret together."""
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
"""The name under which the body of a log record is searched: as content, in which no name makes a text a secret."""


def scrub_records(records: Iterable[Span | LogRecord], scrubber: RecordScrubber) -> Iterator[Span | LogRecord]:
    """Iterate over the records without secrets, in their order."""
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
    """A span without secrets; its resource and its scope, which spans share, are not searched here."""
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
    """Scrub a log record. Its body is content of its call, and the mark on the record keeps that call untrained."""
    scrubbed = scrubber.scrub([ScrubbedPart(log.event_name, log.attributes), ScrubbedPart("", {_BODY: log.body})])
    if scrubbed is None:
        return log
    own, body = scrubbed
    attributes = {**own.attributes, SCRUBBED_CONTENT: True}
    return msgspec.structs.replace(log, event_name=own.text, body=body.attributes[_BODY], attributes=attributes)


_ESCAPED: Final = re.compile(rb"\\[/u]")


def plainly_escaped(body: bytes) -> str | None:
    r"""JSON text without escapes that JSON does not need, so that secrets in it are recognized.

    None for broken JSON with such escapes: nobody could find the secrets in it.

    .NET writes "a\u002Bb" for a+b, PHP "a\/b" for a/b, Python "\u9879" for a letter that an own pattern may contain.
    """
    text = body.decode(errors="replace")
    if b"\\" not in body or _ESCAPED.search(body) is None:
        return text
    try:
        return msgspec.json.encode(msgspec.json.decode(body)).decode()
    except (msgspec.MsgspecError, UnicodeError, OverflowError, RecursionError):
        pass
    try:  # NaN, and numbers beyond 64 bits
        plain = json.dumps(json.loads(text), ensure_ascii=False)
    except (ValueError, RecursionError):
        return None
    return plain.encode("utf-16", "surrogatepass").decode("utf-16", "replace")  # half an emoji is no text
