"""RecordScrubber: the texts of one record (a span, a log record, a resource) without secrets, whoever made the record.

Invariant: every text is read, in whatever it is nested, but for those that the attribute names say hold none. The
number of secrets found stands in the record's own attributes, and where one was in what a model read or wrote, that
stands there too and the tokens that spell it are gone: such a completion must not be trained. Tokens of a prompt that
nobody could read are gone as well.

A live span, a received record and the log of an agent come as the same parts; what their names mean is a
ContentNames, because nothing here knows attributes that are not ours.
"""

import re
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, Literal, NamedTuple, Protocol, TypeAlias, cast

from art_otel.attributes import SCRUBBED, SCRUBBED_CONTENT
from art_otel.scrubbing import SecretRules
from art_otel.scrubbing.patterns import may_name_secrets, secret_name
from art_otel.scrubbing.scrubber import PIECES, Hits, Scrubber, replacement

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

    def may_spell_prompt(self, text: str) -> bool:
        """Whether a name or a text may hold token ids of a prompt."""
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
        spelling = set(filter(self._names.may_spell_prompt, texts))
        if spelling and self._names.without_tokens(parts[0].attributes, in_content=False) is not parts[0].attributes:
            return False
        if self.scrubber.may_hold_secret(texts):
            return False
        # Whether a text that spells a prompt may stand in a record depends on what else does.
        self._remember([entry for entry in unread if len(entry[1]) <= _SHORT and entry[1] not in spelling])
        return True

    def _unread(self, parts: Sequence[ScrubbedPart], scanned: AbstractSet[str]) -> list[tuple[str, str]] | None:
        """List the texts that are not known to be clean, with their names; None if any needs a closer look."""
        unread = [("", text) for text in {part.text for part in parts} if ("", text) not in self._clean]
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
        if name == SCRUBBED_CONTENT or self._names.may_spell_prompt(name) or self.scrubber.holds_secret(name):
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
