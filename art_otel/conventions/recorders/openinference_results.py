"""Results of frameworks in OpenInference's `output.value`, which are no body of an API.

DSPy's list of outputs (texts, or objects with a text), AutoGen's CreateResult
(https://github.com/microsoft/autogen, `autogen_core/models/_types.py`) and LangChain's LLMResult. Invariant: AutoGen's
`thought` is the text beside tool calls, and reasoning beside a text.
"""

from typing import Final

from art_otel.calls import Choice, Message
from art_otel.conventions.attributes import values
from art_otel.conventions.bodies.finish import finish_reason
from art_otel.conventions.bodies.message import messages_of, tool_call
from art_otel.conventions.facts import CallFacts
from art_otel.errors import ParseError
from art_otel.spans import Value

_CREATE_RESULT: Final = frozenset({"finish_reason", "content", "usage", "cached"})


def read_result(value: Value) -> CallFacts | None:
    """Read the choices of a framework's result; None for anything else."""
    fields = values.mapping(value)
    if fields is not None:
        return CallFacts(choices=(_created(fields),)) if fields.keys() >= _CREATE_RESULT else None
    outputs = values.items(value)
    if not outputs or not all(isinstance(output, str) or _has_text(values.mapping(output) or {}) for output in outputs):
        return None
    try:
        return CallFacts(choices=tuple(_output(index, output) for index, output in enumerate(outputs)))
    except ParseError:
        return None


def _has_text(output: dict[str, Value]) -> bool:
    """Whether an output is DSPy's: a body of an API names its object, and may have a `text` that is none."""
    return "text" in output and "object" not in output


def langchain_response_id(result: dict[str, Value]) -> str | None:
    """The response id in an LLMResult. The result of several prompts has no single response."""
    prompts = values.items(result.get("generations")) or ()
    if len(prompts) != 1:
        return None
    sampled = [_object_in(_object_in(entry, "message"), "kwargs") for entry in values.items(prompts[0]) or ()]
    holders = (_object_in(result, "llm_output"), *(_object_in(message, "response_metadata") for message in sampled))
    return next(filter(None, (values.text(holder.get("id")) for holder in holders)), None)


def _created(result: dict[str, Value]) -> Choice:
    calls, thought = values.items(result["content"]), values.text(result.get("thought"))
    if calls is None:
        message = Message(role="assistant", content=values.text(result["content"]), reasoning=thought)
    else:
        asked = [tool_call(fields) for call in calls if (fields := values.mapping(call))]
        message = Message(role="assistant", content=thought, tool_calls=tuple(asked))
    return Choice(index=0, message=message, finish_reason=finish_reason(result["finish_reason"]))


def _output(index: int, output: Value) -> Choice:
    """Read an output of DSPy. Raises ParseError for one whose text or tool calls are none."""
    fields = values.mapping(output) or {"text": output}
    message = {**fields, "content": fields.get("text"), "role": "assistant"}
    return Choice(index=index, message=messages_of(message)[-1])


def _object_in(entry: Value, name: str) -> dict[str, Value]:
    return values.mapping((values.mapping(entry) or {}).get(name)) or {}
