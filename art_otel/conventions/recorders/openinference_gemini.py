"""What OpenInference's instrumentor of google-genai wrote at first: contents as Python prints them.

Source: version 0.1.8, recorded beside the model's server. Invariant: a printed content is not read, the flattened
prompt stands for it, and is doubted where it joins what was sent apart.
"""

import re
from typing import Final

from art_otel.conventions.attributes import values
from art_otel.spans import Value

_PRINTED: Final = re.compile(r"parts=\[.*\] role='\w+'", re.DOTALL)
_JOINED: Final = re.compile(r"\b(?:text|function_response)=")
"""Parts of which the flattened message has one text."""


def is_printed(request: dict[str, Value]) -> bool:
    """Whether the contents of a request are what Python prints of them."""
    contents = values.items(request.get("contents"))
    return bool(contents) and all(
        isinstance(content, str) and _PRINTED.fullmatch(content) for content in contents or ()
    )


def joins_parts(request: dict[str, Value]) -> bool:
    """Whether a printed content has several parts of which the flattened message is one text."""
    return any(len(_JOINED.findall(str(content))) > 1 for content in values.items(request["contents"]) or ())
