"""Claude Code's own telemetry with raw bodies (`OTEL_LOG_RAW_API_BODIES=1`): `claude_code.llm_request` spans.

The bodies are log records of the span above the call's: `claude_code.api_request_body` and `…response_body`, each the
JSON text `body`, with one `request_body_id`; 2.1.197 has no such id. Invariant: thinking, which it redacts, is unknown;
a body that was cut to 60 KB is named in `cut`.

Source: recordings of Claude Code 2.1.330 and 2.1.197; https://code.claude.com/docs/en/monitoring-usage.
"""

from typing import Final

import msgspec

from art_otel.conventions import values
from art_otel.conventions.attributes import AttributeReader, SpanRecording
from art_otel.conventions.bodies.openai_body import read_request, read_response
from art_otel.conventions.dialects.dialect import Dialect, Role
from art_otel.conventions.facts import CallFacts, merge_facts
from art_otel.spans import LogRecord, Span, Value

CONVENTION: Final = "claude_code"

_SPAN: Final = "claude_code.llm_request"
_SAID_OF_REQUESTS: Final = "llm_request.context"

_REQUEST: Final = "claude_code.api_request_body"
_RESPONSE: Final = "claude_code.api_response_body"
_BODY: Final = "body"
_REDACTED: Final = "<REDACTED>"
_ASKED_BY: Final = ("query_source", "agent_id")


def exchange_of(log: LogRecord) -> str | None:
    """What the request and the response of one call share; None for any other log record.

    It is their id. Where they have none it is the part of the agent that asked, which mostly waits for the answer
    before it asks again.
    """
    if log.body not in (_REQUEST, _RESPONSE):
        return None
    identifier = values.text(log.attributes.get("request_body_id"))
    if identifier is not None:
        return identifier
    return "/".join((log.span_id or "", *(str(log.attributes.get(name)) for name in _ASKED_BY)))


def begins_exchange(log: LogRecord) -> bool:
    """Whether a log record of an exchange is the request, which comes before the response."""
    return log.body == _REQUEST


def read(recording: SpanRecording, _trusted_facts: CallFacts) -> CallFacts | None:
    """Read the bodies of the last exchange: earlier ones were tries that failed. None when there are none."""
    facts = CallFacts()
    for log in recording.logs:
        reader = AttributeReader(log.attributes)
        if log.body not in (_REQUEST, _RESPONSE):
            continue
        body = values.mapping(reader.structured(_BODY)) or {}
        if log.body == _REQUEST:
            request = {
                **body,
                "messages": [_without_thinking(message) for message in values.items(body.get("messages")) or ()],
            }
            read_facts = read_request(reader, _BODY, request) if "messages" in body else None
            facts = read_facts or CallFacts()
        else:
            read_facts = read_response(reader, _BODY, _without_thinking(body))
            facts = merge_facts(facts, read_facts or CallFacts())
        facts = msgspec.structs.replace(facts, gaps=(*facts.gaps, *reader.gaps))
    return None if facts == CallFacts() else msgspec.structs.replace(facts, conventions=(CONVENTION,))


def _role(span: Span) -> Role | None:
    return "inference" if span.name == _SPAN else None


def _without_thinking(message: Value) -> dict[str, Value]:
    """A message without thinking that was redacted."""
    fields = values.mapping(message) or {}
    blocks = values.items(fields.get("content"))
    if blocks is None:
        return fields
    return {
        **fields,
        "content": [block for block in blocks if (values.mapping(block) or {}).get("thinking") != _REDACTED],
    }


DIALECT: Final = Dialect(
    convention=CONVENTION, known="verbatim body", read=read, shown_by=(_SAID_OF_REQUESTS,), role=_role
)
