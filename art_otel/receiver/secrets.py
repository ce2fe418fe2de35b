"""Secrets: received records without them, by the rules of a live app (tracing/sdk/scrub_spans.py).

Invariant: every text of a record is read but the rollout's id and packed tokens. The number of secrets stands on the
span, and where one was in what a model read or wrote, that stands there too and its token ids are gone: such a
completion is not trained. Ids of a prompt whose text is not beside them are gone as well: nobody scanned it.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain
from typing import Final, Literal, cast

import msgspec

from art_otel.attributes import ROLLOUT_ID, SCRUBBED, SCRUBBED_CONTENT
from art_otel.conventions.content_names import MESSAGE_EVENT, SPOKEN, names_content
from art_otel.conventions.token_attributes import (
    TOKENS,
    may_hold_prompt_ids,
    spells_unread_prompt,
    without_prompt_ids,
    without_tokens,
)
from art_otel.scrubbing import Hits, Scrubber, Scrubbing, may_name_secrets, secret_name
from art_otel.spans import Attributes, Event, LogRecord, Resource, Span, Value

_LEFT_ALONE: Final = (ROLLOUT_ID, *TOKENS)
_ERROR: Final = "exception."


@dataclass(slots=True)
class _Findings(Hits):
    """What was found in one record. `content` says whether any was in what a model read or wrote."""

    content: bool = False


class RecordScrubber:
    """Gives records without secrets; the very same ones where they have none."""

    def __init__(self, scrubbing: Scrubbing) -> None:
        self._scrubber = None if scrubbing == "off" else Scrubber(scrubbing)

    def scrub(self, records: list[Span | LogRecord]) -> list[Span | LogRecord]:
        """The records of one export, without secrets."""
        scrubber = self._scrubber
        if scrubber is None or _are_clean(records, scrubber):
            return records
        return [
            _span(record, scrubber) if isinstance(record, Span) else _log_record(record, scrubber) for record in records
        ]


def _are_clean(records: Iterable[Span | LogRecord], scrubber: Scrubber) -> bool:
    """Whether a quick look at all texts together finds nothing, as in nearly all exports."""
    texts = _Texts()
    resources: dict[int, Resource] = {}
    for record in records:
        if isinstance(record, Span):
            resources[id(record.resource)] = record.resource
            texts.spoken += (record.name, record.status_message)
            texts.spoken += [event.name for event in record.events]
            for part in (*record.events, *record.links):
                texts.gather(part.attributes)
        else:
            texts.gather({"": record.body})
        texts.gather(record.attributes)
    for resource in resources.values():
        texts.gather(resource.attributes)
    if texts.have_secret_name() or scrubber.may_hold_secret(texts.spoken + texts.named):
        return False
    return not texts.have_prompt_ids() or not any(
        isinstance(record, Span) and spells_unread_prompt(record.attributes) for record in records
    )


class _Texts:
    """Texts of records. In those that are `named`, not `spoken`, JSON keys may be the name of a secret."""

    def __init__(self) -> None:
        self.spoken: list[str] = []
        self.named: list[str] = []
        self._names: set[str] = set()
        self._has_secret_name = False

    def gather(self, attributes: Attributes) -> None:
        """Add the texts of attributes."""
        self._names.update(attributes)
        for name, value in attributes.items():
            self._add(name, value)

    def have_secret_name(self) -> bool:
        """Whether any stands under a secret's name, or may have such a name in it."""
        return self._has_secret_name or may_name_secrets("\n".join(self.named))

    def have_prompt_ids(self) -> bool:
        """Whether any speaks of token ids of a prompt."""
        return any(may_hold_prompt_ids(text) for texts in (self._names, self.spoken, self.named) for text in texts)

    def _add(self, name: str, value: Value) -> None:
        if isinstance(value, (bool, int, float)) or value is None or (reading := _reading_of(name)) == "not":
            return
        if isinstance(value, str):
            (self.named if reading == "named" else self.spoken).append(value)
            self._has_secret_name = self._has_secret_name or reading == "secret"
        elif isinstance(value, bytes):
            self.spoken.append(value.decode("latin-1"))
        elif isinstance(value, Mapping):
            entries = cast("Mapping[str, Value]", value)
            self.spoken += entries
            for key, entry in entries.items():
                self._add(name if reading == "spoken" else key, entry)
        else:
            entries = cast("list[Value]", value)
            self.spoken.append("".join(entry for entry in entries if isinstance(entry, str)))
            for entry in entries:
                self._add(name, entry)


@lru_cache(maxsize=4096)
def _reading_of(name: str) -> Literal["not", "spoken", "secret", "named"]:
    """How the text of an attribute is read, by its name."""
    if name.startswith(_LEFT_ALONE):
        return "not"
    if name.startswith(SPOKEN):
        return "spoken"
    return "named" if secret_name(name) is None else "secret"


def _span(span: Span, scrubber: Scrubber) -> Span:
    findings = _Findings()
    name, message = scrubber.text(span.name, findings), scrubber.text(span.status_message, findings)
    events = tuple(_event(event, scrubber, findings) for event in span.events)
    links = tuple(
        msgspec.structs.replace(link, attributes=_attributes(link.attributes, scrubber, findings))
        for link in span.links
    )
    attributes = _attributes(span.attributes, scrubber, findings)
    resource = _resource(span.resource, scrubber)
    if scrubber.alters and (findings.content or span.attributes.get(SCRUBBED_CONTENT) is True):
        attributes = without_tokens(attributes)
    elif scrubber.alters and spells_unread_prompt(span.attributes):
        attributes = without_prompt_ids(attributes)
    elif not findings.count and resource is span.resource:
        return span
    if findings.content:
        attributes[SCRUBBED_CONTENT] = True
    if findings.count:
        earlier = span.attributes.get(SCRUBBED)
        attributes[SCRUBBED] = findings.count + (earlier if isinstance(earlier, int) else 0)
    return msgspec.structs.replace(
        span, name=name, status_message=message, events=events, links=links, attributes=attributes, resource=resource
    )


def _attributes(attributes: Attributes, scrubber: Scrubber, findings: _Findings) -> dict[str, Value]:
    return dict(chain.from_iterable(_attribute(name, value, scrubber, findings) for name, value in attributes.items()))


def _attribute(name: str, value: Value, scrubber: Scrubber, findings: _Findings) -> Iterable[tuple[str, Value]]:
    before = findings.count
    if not name.startswith(_LEFT_ALONE):
        value = scrubber.value(name, value, findings, by_name=not name.startswith(SPOKEN))
    if findings.count > before and names_content(name) and not name.startswith(_ERROR):
        findings.content = True
    yield scrubber.text(name, findings), value


def _event(event: Event, scrubber: Scrubber, findings: _Findings) -> Event:
    before = findings.count
    attributes = _attributes(event.attributes, scrubber, findings)
    findings.content = findings.content or (findings.count > before and event.name.startswith(MESSAGE_EVENT))
    return msgspec.structs.replace(event, name=scrubber.text(event.name, findings), attributes=attributes)


def _resource(resource: Resource, scrubber: Scrubber) -> Resource:
    findings = _Findings()
    attributes = _attributes(resource.attributes, scrubber, findings)
    return Resource(attributes={**attributes, SCRUBBED: findings.count}) if findings.count else resource


def _log_record(log: LogRecord, scrubber: Scrubber) -> LogRecord:
    """A log record without secrets. Its call has a part less: the mark on it keeps that from being trained."""
    findings = _Findings()
    body = scrubber.value("", log.body, findings, by_name=False)
    attributes = _attributes(log.attributes, scrubber, findings)
    if not findings.count:
        return log
    return msgspec.structs.replace(
        log, body=body, attributes={**attributes, SCRUBBED: findings.count, SCRUBBED_CONTENT: True}
    )
