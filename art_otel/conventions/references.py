"""References: content that a recorder wrote into separate files, which spans and log records refer to by URL.

    gen_ai.input.messages_ref = "file:///dump/7f3a.json"     ->     gen_ai.input.messages = the JSON of this file

OTel's own instrumentors write references with `OTEL_INSTRUMENTATION_GENAI_COMPLETION_HOOK=upload`.
`engines.referenced_content` reads the files.

Source of the format: `opentelemetry.util.genai._upload.completion_hook` (opentelemetry-util-genai 0.4b0 to 1.3b0).
"""

from collections.abc import Iterator, Mapping
from typing import Final

from art_otel.calls import Gap
from art_otel.conventions.attribute_names import NameFamilies
from art_otel.conventions.attributes import SpanRecording, field_of
from art_otel.conventions.facts import CallFacts
from art_otel.spans import Attributes, Value

_INPUT: Final = "gen_ai.input.messages"
_OUTPUT: Final = "gen_ai.output.messages"
_INSTRUCTIONS: Final = "gen_ai.system_instructions"
_TOOLS: Final = "gen_ai.tool.definitions"
REFERENCES: Final = {f"{name}_ref": name for name in (_INPUT, _OUTPUT, _INSTRUCTIONS, _TOOLS)}
"""The attributes with references, and for each the attribute that has the content itself."""


def references_of(attributes: Attributes) -> dict[str, str]:
    """The URLs of content that the attributes only refer to, by the attribute that would have the content."""
    if REFERENCES.keys().isdisjoint(attributes.keys()):  # fast path of nearly all records
        return {}
    return {
        name: url
        for reference, name in REFERENCES.items()
        if name not in attributes and isinstance(url := attributes.get(reference), str) and url
    }


def with_content(attributes: Attributes, contents: Mapping[str, str]) -> dict[str, Value]:
    """Replace references by the contents, which are given by attribute."""
    replaced = {name: value for name, value in attributes.items() if REFERENCES.get(name) not in contents}
    return {**replaced, **contents}


def refers_to_content(families: NameFamilies) -> bool:
    """Whether any of the attributes refers to content."""
    return bool(families.among(REFERENCES))


def find_unread(recording: SpanRecording, facts: CallFacts) -> Iterator[Gap]:
    """Gaps of content that was not read from its file, and that no other attribute has."""
    unread: dict[str, str] = {}
    for attributes in (recording.span.attributes, *[log.attributes for log in recording.logs]):
        unread |= references_of(attributes)
    known = {
        _INPUT: facts.input_messages is not None,
        _OUTPUT: facts.choices is not None,
        _INSTRUCTIONS: bool(facts.input_messages) and facts.input_messages[0].role in ("system", "developer"),
        _TOOLS: facts.tools is not None,
    }
    for name, url in unread.items():
        if not known[name]:
            yield Gap(kind="not read", field=field_of(name), evidence=url)
