"""GenAI's numbers: the parameters of a request, whether it streamed, and how many tokens it took.

Invariant: a parameter has OpenAI's name; a value that is not what its name promises is left out.
"""

from collections.abc import Callable
from typing import Final

import msgspec

from art_otel.calls import Usage
from art_otel.conventions.attributes import values
from art_otel.conventions.attributes.names import AttributeNames
from art_otel.conventions.attributes.reader import AttributeReader
from art_otel.spans import Value

REQUEST_MODEL: Final = "gen_ai.request.model"
REQUEST_TYPE: Final = "gen_ai.request.type"
"""Where AgentOps writes the operation."""
FUNCTIONS: Final = "gen_ai.request.functions."
"""The prefix of the attributes to which AgentOps flattens the tools."""

_REQUEST: Final = "gen_ai.request."
_STREAM: Final = (
    "gen_ai.is_streaming",
    "gen_ai.request.is_stream",
    "gen_ai.request.stream",
    "gen_ai.request.streaming",
    "llm.is_streaming",
)
_NO_PARAMETERS: Final = frozenset({REQUEST_MODEL, REQUEST_TYPE, "gen_ai.request.headers", *_STREAM})
_INTEGERS: Final = frozenset({"max_tokens", "seed", "top_k", "n"})
_NUMBERS: Final = frozenset({"temperature", "top_p", "frequency_penalty", "presence_penalty"})
_OPENAI_NAMES: Final = {"stop_sequences": "stop", "choice.count": "n"}
_USAGE: Final = {
    "input_tokens": ("gen_ai.usage.input_tokens", "gen_ai.usage.prompt_tokens"),
    "output_tokens": ("gen_ai.usage.output_tokens", "gen_ai.usage.completion_tokens"),
    "total_tokens": ("gen_ai.usage.total_tokens", "llm.usage.total_tokens"),
    "cached_tokens": ("gen_ai.usage.cache_read.input_tokens", "gen_ai.usage.cache_read_input_tokens"),
    "reasoning_tokens": ("gen_ai.usage.reasoning.output_tokens", "gen_ai.usage.reasoning_tokens"),
}
"""The attributes of each count of `Usage`."""


class Parameter(msgspec.Struct, frozen=True):
    """The attribute of a request parameter, OpenAI's name for it, and how its value is checked (None: any JSON)."""

    attribute: str
    name: str
    check: Callable[[Value], Value] | None


class Layout(msgspec.Struct, frozen=True):
    """What follows from attribute names alone; it is computed once per set of attribute names."""

    parameters: tuple[Parameter, ...]
    usage: tuple[tuple[str, str], ...]
    """Fields of `Usage` and their attributes; the first attribute of a field wins."""
    stream: tuple[str, ...]


def layout_of(names: AttributeNames) -> Layout:
    """Find the attributes by their names."""
    return Layout(
        parameters=tuple(
            _parameter(name)
            for name in names.starting(_REQUEST)
            if name not in _NO_PARAMETERS and not name.startswith(FUNCTIONS)
        ),
        usage=tuple((count, name) for count, candidates in _USAGE.items() for name in names.among(candidates)),
        stream=names.among(_STREAM),
    )


def _parameter(attribute: str) -> Parameter:
    suffix = attribute.removeprefix(_REQUEST)
    name = _OPENAI_NAMES.get(suffix, suffix)
    check = values.integer if name in _INTEGERS else values.number if name in _NUMBERS else None
    return Parameter(attribute=attribute, name=name, check=check)


def read_parameters(reader: AttributeReader, layout: tuple[Parameter, ...]) -> dict[str, Value]:
    """Read the request parameters, under OpenAI's names."""
    parameters: dict[str, Value] = {}
    for parameter in layout:
        attribute, check = parameter.attribute, parameter.check
        value = reader.json_safe(attribute) if check is None else check(reader.attributes[attribute])
        parameters[parameter.name] = value
    if user := values.text(reader.attributes.get("gen_ai.user")):
        parameters["user"] = user
    schema = parameters.pop("structured_output_schema", None)
    if schema is not None:
        parameters["response_format"] = {"type": "json_schema", "json_schema": {"schema": schema}}
    if None in parameters.values():
        return {name: value for name, value in parameters.items() if value is not None}
    return parameters


def read_usage(reader: AttributeReader, layout: tuple[tuple[str, str], ...]) -> Usage | None:
    """Read the counts of tokens; None when there is none."""
    counts: dict[str, int] = {}
    for count, name in layout:
        if count not in counts and (number := values.integer(reader.attributes[name])) is not None:
            counts[count] = number
    return Usage(**counts) if counts else None
