"""What a writer of another format takes from OTLP requests: plain values, and each span with its resource and scope."""

import base64
import datetime as dt
import json
from collections.abc import Iterator
from dataclasses import dataclass

KINDS = ("UNSPECIFIED", "INTERNAL", "SERVER", "CLIENT", "PRODUCER", "CONSUMER")
STATUSES = ("UNSET", "OK", "ERROR")
DROPPED = {"droppedAttributesCount": "attributes", "droppedEventsCount": "events", "droppedLinksCount": "links"}


@dataclass(frozen=True)
class Written:
    """One span to write."""

    span: dict
    resource: dict
    scope: dict

    @property
    def attributes(self):
        return plain(self.span.get("attributes"))

    @property
    def kind(self):
        return KINDS[self.span.get("kind", 0)]

    @property
    def status(self):
        return STATUSES[self.span.get("status", {}).get("code", 0)]

    @property
    def message(self):
        return self.span.get("status", {}).get("message", "")

    @property
    def start(self):
        return int(self.span["startTimeUnixNano"])

    @property
    def end(self):
        return int(self.span["endTimeUnixNano"])

    def dropped_tags(self):
        """The counts of what an SDK dropped, as OTel's mapping to other formats has them."""
        counts = {f"otel.dropped_{part}_count": self.span.get(name) for name, part in DROPPED.items()}
        return {name: count for name, count in counts.items() if count}


def spans_of(requests: list[dict]) -> Iterator[Written]:
    """Every span of the requests."""
    for request in requests:
        for batch in request.get("resourceSpans", ()):
            resource = plain(batch.get("resource", {}).get("attributes"))
            for scoped in batch["scopeSpans"]:
                for span in scoped["spans"]:
                    yield Written(span, resource, scoped.get("scope", {}))


def by_trace(requests: list[dict]) -> dict[str, list[Written]]:
    """The spans of each trace."""
    found: dict[str, list[Written]] = {}
    for written in spans_of(requests):
        found.setdefault(written.span["traceId"], []).append(written)
    return found


def plain(attributes) -> dict:
    """Attributes as plain values by name."""
    return {pair["key"]: value_of(pair["value"]) for pair in attributes or ()}


def value_of(value):
    """One plain value of an AnyValue."""
    if not value:
        return None
    ((kind, raw),) = value.items()
    if kind == "intValue":
        return int(raw)
    if kind == "arrayValue":
        return [value_of(item) for item in raw.get("values", ())]
    if kind == "kvlistValue":
        return plain(raw.get("values"))
    return raw


def text_of(value) -> str:
    """A value as the exporters of stores that know only text write it."""
    if isinstance(value, str):
        return value
    return json.dumps(value)


def iso(nanoseconds: int) -> str:
    """A time in ISO format, to the microsecond."""
    moment = dt.datetime(1970, 1, 1, tzinfo=dt.UTC) + dt.timedelta(microseconds=nanoseconds // 1000)
    return moment.isoformat(timespec="microseconds")


def base64_id(hexadecimal: str) -> str:
    """An id as protobuf's JSON mapping writes it."""
    return base64.b64encode(bytes.fromhex(hexadecimal)).decode()
