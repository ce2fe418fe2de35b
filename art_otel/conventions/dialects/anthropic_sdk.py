"""Anthropic's SDK: what its own spans (scope `com.anthropic.sdk.python`) say beside GenAI's attributes.

Source of the format: `anthropic/lib/_tracing` of the Python SDK. Content beyond `max_content_bytes` loses whole parts,
the oldest first, and only `anthropic.content.truncated` tells. Invariant: a truncated prompt or answer is never whole.
"""

from typing import Final

from art_otel.calls import Choice
from art_otel.conventions.attributes.names import AttributeNames
from art_otel.conventions.bodies.finish import finish_reason
from art_otel.conventions.dialects.dialect import Dialect
from art_otel.conventions.facts import UNKNOWN_MESSAGE, CallFacts
from art_otel.conventions.recording import Recording

CONVENTION: Final = "anthropic_sdk"

_TRUNCATED: Final = "anthropic.content.truncated"
_STOP_REASON: Final = "anthropic.message.stop_reason"


def matches(names: AttributeNames) -> bool:
    """Whether a span with these attributes may be the SDK's."""
    return _TRUNCATED in names or _STOP_REASON in names


def read(recording: Recording, trusted_facts: CallFacts) -> CallFacts | None:
    """Read why the answer ended, and whether content was cut; None when neither is there."""
    reader = recording.reader()
    if reader.flag(_TRUNCATED):
        reader.mark_invalid(_TRUNCATED)
    reason = finish_reason(reader.text(_STOP_REASON))
    choices = None
    if reason is not None and trusted_facts.choices is not None and len(trusted_facts.choices) == 1:
        choices = (Choice(index=0, message=UNKNOWN_MESSAGE, finish_reason=reason),)
    if choices is None and not reader.cut:
        return None
    return CallFacts(conventions=(CONVENTION,), choices=choices, cut=reader.cut)


DIALECT: Final = Dialect(convention=CONVENTION, read=read, matches=matches)
