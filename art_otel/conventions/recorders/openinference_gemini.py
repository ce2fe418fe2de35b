"""What OpenInference's instrumentor of google-genai wrote before 1.0: printed contents, streams as one part.

Source: version 0.1.8, recorded beside the model's server. Invariant: a printed content is not read, the flattened
prompt stands for it; a call is doubted where that joins what was sent apart, or where a stream's parts became one.
"""

import re
from typing import Final

import msgspec

from art_otel.calls import CONTENT_LOST, CONTENT_REWRITTEN
from art_otel.conventions.attributes import values
from art_otel.conventions.facts import CallFacts
from art_otel.spans import Value

_PRINTED: Final = re.compile(r"parts=\[.*\] role='\w+'", re.DOTALL)
_JOINED: Final = re.compile(r"\b(?:text|function_response)=")
"""Parts of which the flattened message has one text."""


def is_printed(request: dict[str, Value]) -> bool:
    """Whether the contents of a request are what Python prints of them."""
    contents = values.items(request.get("contents"))
    return bool(contents) and all(isinstance(one, str) and _PRINTED.fullmatch(one) for one in contents or ())


def doubt_printed(request: dict[str, Value], answered: CallFacts | None, *, stream: bool) -> CallFacts:
    """The facts of a call whose request is printed: those of its response, with the doubts about both."""
    facts = answered or CallFacts()
    sampled = [choice.message for choice in facts.choices or ()]
    doubts: tuple[str, ...] = ()
    if any(len(_JOINED.findall(str(one))) > 1 for one in values.items(request["contents"]) or ()):
        doubts += (CONTENT_REWRITTEN,)
    if stream and any(message.tool_calls or message.reasoning is not None for message in sampled):
        doubts += (CONTENT_LOST,)
    return msgspec.structs.replace(facts, doubts=facts.doubts + doubts)
