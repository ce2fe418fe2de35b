"""LlamaIndex under OpenInference, which leaves thinking blocks out of the lists of a message's contents.

Source: `llama_index.core.base.llms.types` (`ChatMessage`, `ChatResponse.__str__`). Invariant: a hole in a list is taken
for a thinking block only where what LlamaIndex prints of the message shows that nothing else is missing.
"""

import re
from typing import Final

from art_otel.conventions.attributes import values
from art_otel.conventions.attributes.reader import AttributeReader
from art_otel.conventions.attributes.unflatten import numbered, unflatten
from art_otel.conventions.recorders.openinference_messages import object_in
from art_otel.spans import Value

_SCOPE: Final = "openinference.instrumentation.llama_index"
_BLOCK: Final = re.compile(r"\b[A-Z]\w*Block\(block_type='(\w+)'")
_NO_CONTENT: Final = ("thinking", "tool_call")


def lacks_thoughts_only(scope: str, reader: AttributeReader, prefix: str) -> bool:
    """Whether nothing but thoughts is missing in the lists of the messages below a prefix."""
    if scope != _SCOPE:
        return False
    messages = [object_in(entry, "message") for entry in unflatten(reader, prefix) or ()]
    if any([at for at, _ in numbered(one.get("tool_calls"))] != list(range(_count(one))) for one in messages):
        return False
    if "output" in prefix:
        return len(messages) == 1 and _is_printed_whole(reader, messages[0])
    printed = values.items((values.mapping(reader.structured("input.value")) or {}).get("messages")) or []
    return len(printed) == len(messages) and all(map(_shows_its_blocks, messages, printed))


def _count(message: dict[str, Value]) -> int:
    return len(numbered(message.get("tool_calls")))


def _is_printed_whole(reader: AttributeReader, answer: dict[str, Value]) -> bool:
    """Whether the printed answer has no more text, and the answer asks for tools if it ended with calls of them."""
    asks_for_tools = reader.text("llm.finish_reason") == "tool_calls"
    texts = [str(object_in(entry, "message_content").get("text")) for _, entry in numbered(answer.get("contents"))]
    is_same = reader.text("output.value") == f"{answer.get('role')}: {''.join(texts)}"
    return is_same and asks_for_tools == (_count(answer) > 0)


def _shows_its_blocks(message: dict[str, Value], printed: Value) -> bool:
    kinds = _BLOCK.findall(str(printed))
    contents = [at for at, _ in numbered(message.get("contents"))]
    return not contents or contents == [at for at, kind in enumerate(kinds) if kind not in _NO_CONTENT]
