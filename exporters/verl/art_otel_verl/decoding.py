"""Decoding: a message of an `sft` row as a chat template takes it, with only what it has."""

from collections.abc import Mapping
from typing import Any, cast

import msgspec


def template_message(message: Mapping[str, Any], *, as_text: bool) -> dict[str, Any]:
    """The message without the nulls of its columns; arguments that are a JSON object parsed unless `as_text`.

    What half a character, NaN and the like make invalid is no JSON and stays text.
    """
    fields = {name: value for name, value in message.items() if value is not None}
    if "tool_calls" in fields:
        fields["tool_calls"] = [_call(call, as_text=as_text) for call in fields["tool_calls"]]
    return fields


def _call(call: Mapping[str, Any], *, as_text: bool) -> dict[str, Any]:
    function = call["function"]
    arguments = function["arguments"] if as_text else _parsed(function["arguments"])
    call_fields = {name: value for name, value in call.items() if value is not None}
    return {**call_fields, "function": {**function, "arguments": arguments}}


def _parsed(arguments: str) -> object:
    try:
        value: object = msgspec.json.decode(arguments or "{}")
    except (msgspec.DecodeError, RecursionError):
        return arguments
    return cast(object, value) if isinstance(value, dict) else arguments
