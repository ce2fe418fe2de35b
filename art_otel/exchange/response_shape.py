"""Response shape: writes answers as the Responses API: output items, and the events that build them.

Invariant: that of `answer_shapes`. One item (reasoning, a message or a tool call) is open at a time; it is done before
the next one is added, and the last event has all items.

Sources: events of vLLM 0.32 and 0.33; https://platform.openai.com/docs/api-reference/responses-streaming
"""

import json
from collections.abc import Mapping
from typing import Final
from uuid import uuid4

from art_otel.conventions import values
from art_otel.exchange.answer_shapes import AnswerFields, RequestFacts, event
from art_otel.exchange.responses import responses_functions
from art_otel.spans import Value

_DEFAULTS: Final[Mapping[str, Value]] = {
    "instructions": None,
    "metadata": None,
    "parallel_tool_calls": True,
    "background": False,
    "max_tool_calls": None,
    "previous_response_id": None,
    "prompt": None,
    "reasoning": None,
    "service_tier": "auto",
    "text": None,
    "truncation": "disabled",
    "user": None,
}
"""The fields of a request that its response repeats, with their defaults."""

_TOOL: Final = ("allowed_callers", "async", "defer_loading", "description")
_SINCE_0_33: Final = ("prompt_cache_key", "prompt_cache_options", "prompt_cache_retention", "safety_identifier")
"""Further repeated fields since vLLM 0.33."""

_NULLS: Final[Mapping[Value, tuple[str, ...]]] = {
    "function": (*_TOOL, "strict", "output_schema"),
    "custom": (*_TOOL, "format"),
    "web_search": ("external_web_access", "filters", "search_context_size", "user_location"),
    "tool_search": ("description", "execution", "parameters"),
    "json_schema": ("description", "strict"),
    "reasoning": ("context", "effort", "generate_summary", "mode", "summary"),
    "text": ("format", "verbosity"),
}
"""By the type of a repeated object (a tool, a format): the fields that the response has as null if the request lacks
them."""

_NOTHING: Final[Mapping[str, Value]] = {
    "kv_transfer_params": None,
    "ec_transfer_params": None,
    "input_messages": None,
    "output_messages": None,
}
_WHOLE: Final = (None, "stop", "tool_calls")
_CUT: Final[Mapping[Value, str]] = {"length": "max_output_tokens"}
"""The reason of an incomplete response, by the finish reason; other reasons, as vLLM's `abort`, are repeated as is."""
_ADDED: Final = "response.output_item.added"
_DONE: Final = "response.output_item.done"


class ResponseShape:
    """Writes answers as the Responses API."""

    def __init__(self, facts: RequestFacts) -> None:
        self._facts = facts
        self._functions = responses_functions(facts.request)
        self._sequence = 0
        self._items: list[AnswerFields] = []
        self._open: _OpenItem | None = None
        self._held: list[tuple[str, str]] = []
        """Texts that came while a tool call was open, with their kinds: they become items after the call."""
        self._finish: Value = None

    def whole(self, completion: AnswerFields) -> AnswerFields:
        """The response for the first choice."""
        choice = completion["choices"][0]
        message: AnswerFields = choice["message"]
        output: list[AnswerFields] = []
        if message.get("reasoning"):
            # vLLM gives reasoning no status in whole answers.
            output.append(_OpenItem("reasoning", text=message["reasoning"]).done(status=None))
        self._finish = choice.get("finish_reason")
        items = [_OpenItem("message", text=message["content"])] if message.get("content") else []
        for call in message.get("tool_calls") or ():
            function = call["function"]
            items.append(self._call(function["name"], call["id"]))
            items[-1].text = function["arguments"]
        output += [item.done(self._status(is_last=item is items[-1])) for item in items]
        return self._response(output, completion.get("usage"), is_over=True)

    def begin(self) -> bytes:
        """The events `response.created` and `response.in_progress`, with a response without output."""
        response = self._response([], None, is_over=False)
        return self._event("response.created", response=response) + self._event(
            "response.in_progress", response=response
        )

    def piece(self, choice: AnswerFields) -> bytes:
        """The events for a delta."""
        self._finish = choice.get("finish_reason") or self._finish
        delta = values.mapping(choice.get("delta")) or {}
        events = b""
        for kind, text in (("reasoning", delta.get("reasoning")), ("message", delta.get("content"))):
            if text and self._open is not None and self._open.is_call:
                # One item is open at a time, and the arguments of a call must not be interrupted.
                self._held.append((kind, text))
            elif text:
                events += self._say(kind, text)
        for call in delta.get("tool_calls") or ():
            function = values.mapping(call.get("function")) or {}
            if call.get("id") is not None and function.get("name") is not None:
                events += self._begin(self._call(function["name"], call["id"]))
            if function.get("arguments") and self._open is not None and self._open.is_call:
                events += self._add(function["arguments"])
        return events

    def end(self, usage: AnswerFields) -> bytes:
        """The last events, with the whole response."""
        events = b"".join(self._say(kind, text) for kind, text in self._held) + self._close(is_last=True)
        response = self._response(self._items, usage, is_over=True)
        # Before 0.33 vLLM ends a cut answer by `response.completed`, too.
        is_cut = self._facts.since_0_33 and response["status"] == "incomplete"
        return events + self._event(f"response.{'incomplete' if is_cut else 'completed'}", response=response)

    def failed(self, error: AnswerFields) -> bytes:
        """The event `response.failed`, with the items so far. OpenAI sends this; vLLM 0.32 breaks the connection."""
        response = self._response(self._items, None, is_over=True)
        said = {"code": "server_error", "message": error["message"]}
        return self._event("response.failed", response={**response, "status": "failed", "error": said})

    def _call(self, name: str, call_id: str) -> "_OpenItem":
        """The item of a tool call; the model's name for the tool includes the namespace."""
        function = self._functions.get(name)
        own, namespace = (name, None) if function is None else (function.name, function.namespace)
        kind = "custom_tool_call" if function is not None and function.is_custom else "function_call"
        return _OpenItem(kind, name=own, namespace=namespace, call_id=call_id)

    def _say(self, kind: str, text: str) -> bytes:
        is_open = self._open is not None and self._open.kind == kind
        return (b"" if is_open else self._begin(_OpenItem(kind))) + self._add(text)

    def _begin(self, item: "_OpenItem") -> bytes:
        events = self._close()
        self._open = item
        events += self._event(_ADDED, item=item.added(), output_index=len(self._items))
        if item.part is not None:
            events += self._item_event("response.content_part.added", part=item.part_with("", logprobs=[]))
        return events

    def _add(self, text: str) -> bytes:
        item = self._open
        if item is None:
            return b""
        item.text += text
        if item.kind == "custom_tool_call":  # its input is inside of JSON arguments, which are not whole yet
            return b""
        return self._item_event(f"response.{item.events}.delta", delta=text, **item.logprobs)

    def _status(self, *, is_last: bool) -> str:
        """The status of an item that is done: since vLLM 0.33 the last item of a cut answer is incomplete."""
        is_cut = is_last and self._finish == "length" and self._facts.since_0_33
        return "incomplete" if is_cut else "completed"

    def _close(self, *, is_last: bool = False) -> bytes:
        item = self._open
        if item is None:
            return b""
        if item.kind == "custom_tool_call":
            said = _custom_input(item.text)
            events = self._item_event(f"response.{item.events}.delta", delta=said) if said else b""
            events += self._item_event(f"response.{item.events}.done", input=said)
        elif item.part is None:
            events = self._item_event(f"response.{item.events}.done", arguments=item.text, name=item.name)
        else:
            events = self._item_event(f"response.{item.events}.done", text=item.text, **item.logprobs)
            events += self._item_event("response.content_part.done", part=item.part_with(item.text))
        done = item.done(self._status(is_last=is_last))
        events += self._event(_DONE, item=done, output_index=len(self._items))
        self._items.append(done)
        self._open = None
        return events

    def _item_event(self, kind: str, **fields: Value) -> bytes:
        item = self._open
        if item is not None and item.part is not None:
            fields["content_index"] = 0
        return self._event(kind, item_id=None if item is None else item.id, output_index=len(self._items), **fields)

    def _event(self, kind: str, **fields: Value) -> bytes:
        self._sequence += 1
        return event({"type": kind, "sequence_number": self._sequence - 1, **fields})

    def _response(self, output: list[AnswerFields], usage: AnswerFields | None, *, is_over: bool) -> AnswerFields:
        facts, request, sampling = self._facts, self._facts.request, self._facts.sampling
        cut = _CUT.get(self._finish, self._finish) if is_over and self._finish not in _WHOLE else None
        tools = [values.mapping(tool) or {} for tool in values.items(request.get("tools")) or ()]
        repeated = {**_DEFAULTS, **dict.fromkeys(_SINCE_0_33 if facts.since_0_33 else ())}
        said = {name: _filled(name, request[name]) for name in repeated if request.get(name) is not None}
        return {
            **repeated,
            "top_logprobs": None,
            "tool_choice": request.get("tool_choice") or ("auto" if tools else "none"),
            **said,
            **_NOTHING,
            "id": facts.answer_id,
            "object": "response",
            "created_at": facts.created,
            "model": facts.model,
            "incomplete_details": None if cut is None else {"reason": cut},
            "status": ("completed" if cut is None else "incomplete") if is_over else "in_progress",
            "output": output,
            "tools": [_filled(tool.get("type"), tool) for tool in tools],
            "temperature": sampling.get("temperature", 1.0),
            "top_p": sampling.get("top_p", 1.0),
            "presence_penalty": sampling.get("presence_penalty", 0.0),
            "frequency_penalty": sampling.get("frequency_penalty", 0.0),
            "max_output_tokens": sampling.get("max_tokens"),
            "usage": None if usage is None else _usage(usage),
        }


def _filled(kind: Value, said: Value) -> Value:
    """A value of the request, as its response repeats it: with null for absent fields."""
    fields = values.mapping(said)
    if fields is None:
        return said
    made: AnswerFields = {**dict.fromkeys(_NULLS.get(kind, ())), **fields}
    if kind == "namespace":
        tools = [values.mapping(tool) or {} for tool in values.items(fields.get("tools")) or ()]
        made["tools"] = [_filled(tool.get("type"), tool) for tool in tools]
    if kind == "text" and (form := values.mapping(fields.get("format"))) is not None:
        made["format"] = _filled(form.get("type"), form)
    return made


def _custom_input(arguments: str) -> str:
    """The text for a custom tool: `input` of the model's arguments; the arguments themselves if they have none."""
    try:
        said = (values.mapping(json.loads(arguments)) or {}).get("input")
    except ValueError:
        return arguments
    return said if isinstance(said, str) else arguments


_PARTS: Final = {"reasoning": "reasoning_text", "message": "output_text"}
_CALLS: Final = {"function_call": "function_call_arguments", "custom_tool_call": "custom_tool_call_input"}
_PREFIXES: Final = {"reasoning": "rs_", "message": "msg_", "function_call": "fc_", "custom_tool_call": "ctc_"}


class _OpenItem:
    """An output item that is being built."""

    def __init__(
        self, kind: str, *, text: str = "", name: str = "", namespace: str | None = None, call_id: str = ""
    ) -> None:
        self.kind = kind
        self.text = text
        self.name = name
        self.part = _PARTS.get(kind)
        self.events = self.part or _CALLS[kind]
        self.is_call = kind in _CALLS
        self.id = f"{_PREFIXES[kind]}{uuid4().hex[:16]}"
        self._namespace = namespace
        self._call_id = call_id

    @property
    def logprobs(self) -> AnswerFields:
        """The field `logprobs` that events of a message have, and others do not."""
        return {"logprobs": []} if self.kind == "message" else {}

    def part_with(self, text: str, logprobs: Value = None) -> AnswerFields:
        """The content part of the item, with this text."""
        if self.kind == "reasoning":
            return {"text": text, "type": self.part}
        return {"annotations": [], "text": text, "type": self.part, "logprobs": logprobs}

    def added(self) -> AnswerFields:
        """The item when it is added: without content."""
        return self._item(None if self.kind == "reasoning" else [], "in_progress", "")

    def done(self, status: str | None) -> AnswerFields:
        """The item when it is done: with its content."""
        return self._item([self.part_with(self.text)], status, self.text)

    def _item(self, content: Value, status: str | None, arguments: str) -> AnswerFields:
        item: AnswerFields = {"id": self.id, "type": self.kind, "status": status}
        if self.kind == "reasoning":
            return {**item, "summary": [], "content": content, "encrypted_content": None}
        if self.kind == "message":
            return {**item, "content": content, "role": "assistant", "phase": None}
        called: AnswerFields = {"call_id": self._call_id, "name": self.name, "namespace": self._namespace}
        called |= {"async": None, "caller": None}
        if self.kind == "custom_tool_call":
            return {"id": self.id, "type": self.kind, **called, "input": _custom_input(arguments)}
        return {**item, **called, "arguments": arguments}


def _usage(usage: AnswerFields) -> AnswerFields:
    prompt, completion = usage.get("prompt_tokens") or 0, usage.get("completion_tokens") or 0
    cached = (values.mapping(usage.get("prompt_tokens_details")) or {}).get("cached_tokens") or 0
    reasoning = (values.mapping(usage.get("completion_tokens_details")) or {}).get("reasoning_tokens") or 0
    turns: AnswerFields = {"input_tokens_per_turn": [], "cached_tokens_per_turn": []}
    out_turns: AnswerFields = {"output_tokens_per_turn": [], "tool_output_tokens_per_turn": []}
    return {
        "input_tokens": prompt,
        "input_tokens_details": {"cached_tokens": cached, "cache_write_tokens": 0, **turns},
        "output_tokens": completion,
        "output_tokens_details": {"reasoning_tokens": reasoning, "tool_output_tokens": 0, **out_turns},
        "total_tokens": prompt + completion,
    }
