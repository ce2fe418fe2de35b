"""Chat request: builds a request to Chat Completions from a request of any dialect.

Invariant: messages keep their order. One turn of the model becomes one message, however many items it has:

    assistant: reasoning, text, call A      items or blocks in a row
    tool: result of A
    user: text
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from art_otel.conventions import values
from art_otel.exchange.answer_shapes import AnswerFields
from art_otel.spans import Value

_DATA: Final = "data:"


class UntranslatableError(Exception):
    """Raised for a request that Chat Completions cannot express. `field` is the path to the reason: `tools[2].type`."""

    def __init__(self, field: str, why: str) -> None:
        super().__init__(f"{field}: {why}")
        self.field = field


class ChatRequest(NamedTuple):
    """The body of a request to Chat Completions, and the fields of the agent's request that are not in it."""

    body: AnswerFields
    left_out: Sequence[str]


def as_it_is(request: Mapping[str, Value]) -> ChatRequest:
    """The request of an agent that speaks Chat Completions itself."""
    return ChatRequest({**request}, [])


class ChatMessages:
    """Builds the messages of a request."""

    def __init__(self) -> None:
        self.messages: list[AnswerFields] = []

    def add_system(self, text: str) -> None:
        """Add instructions. Those in a row become one message: many templates accept only one, at the beginning."""
        if self.messages and self.messages[-1]["role"] == "system":
            self.messages[-1]["content"] += f"\n\n{text}"
        else:
            self.messages.append({"role": "system", "content": text})

    def add_user(self, parts: Sequence[AnswerFields]) -> None:
        """Add a message of the user, made of texts and images; nothing without parts."""
        if parts:
            self.messages.append({"role": "user", "content": _content(parts)})

    def add_sampled(self, *, text: str = "", reasoning: str = "", calls: Sequence[AnswerFields] = ()) -> None:
        """Add what the model said; it joins the message before, if that is the model's, too."""
        if not (text or reasoning or calls):
            return
        if not self.messages or self.messages[-1]["role"] != "assistant":
            self.messages.append({"role": "assistant", "content": ""})
        message = self.messages[-1]
        message["content"] += text
        if reasoning:  # vLLM reads `reasoning`, SGLang, llama.cpp and older servers `reasoning_content`
            message["reasoning"] = message["reasoning_content"] = message.get("reasoning", "") + reasoning
        if calls:
            message["tool_calls"] = [*message.get("tool_calls", ()), *calls]

    def continuation(self, template_kwargs: Value = None) -> AnswerFields:
        """The settings by which the model continues the last message, if that is the model's own; else {}.

        vLLM and SGLang need them, else the model begins a new turn; llama.cpp continues without them. Thinking is
        turned off, because a model that has begun its answer does not think any more, and the server's parser would
        take the rest of the answer for thoughts.
        """
        # After a tool call there is nothing to continue: its result comes next.
        last = self.messages[-1] if self.messages else {}
        if last.get("role") != "assistant" or last.get("tool_calls"):
            return {}
        kwargs = {"enable_thinking": False, **mapping_of(template_kwargs)}
        return {"continue_final_message": True, "add_generation_prompt": False, "chat_template_kwargs": kwargs}

    def add_result(self, call_id: str, parts: Sequence[AnswerFields]) -> Sequence[AnswerFields]:
        """Add the result of a tool call.

        Returns its images, for the next message of the user: a tool's message cannot have images.
        """
        text = "\n".join(part["text"] for part in parts if part["type"] == "text")
        self.messages.append({"role": "tool", "tool_call_id": call_id, "content": text})
        return [part for part in parts if part["type"] != "text"]


def _content(parts: Sequence[AnswerFields]) -> Value:
    """A single text as text, anything else as parts: not every server and template accepts parts."""
    return parts[0]["text"] if len(parts) == 1 and parts[0]["type"] == "text" else [*parts]


def text_part(text: Value) -> AnswerFields:
    """A part of text."""
    return {"type": "text", "text": str(text)}


def image_part(url: Value, detail: Value = None) -> AnswerFields:
    """An image at a URL, which may be a data URL."""
    return {"type": "image_url", "image_url": {"url": url, **({} if detail is None else {"detail": detail})}}


def data_url(media_type: Value, data: Value) -> str:
    """Base64 data as a URL."""
    return f"{_DATA}{media_type};base64,{data}"


def tool_call(call_id: Value, name: Value, arguments: str) -> AnswerFields:
    """A call of a function by the model."""
    return {"id": str(call_id), "type": "function", "function": {"name": name, "arguments": arguments}}


def tool_settings(functions: Sequence[AnswerFields], choice: Value, name: Value) -> AnswerFields:
    """The settings for tools. `name` is the function that the model must call, if any; else `choice` says it."""
    if not functions:
        return {}
    chosen = choice if name is None else {"type": "function", "function": {"name": name}}
    return {"tools": [{"type": "function", "function": function} for function in functions], "tool_choice": chosen}


def without_nulls(settings: AnswerFields) -> AnswerFields:
    """The settings without null fields in functions, which some servers refuse."""
    tools = [
        {**tool, "function": {name: value for name, value in tool["function"].items() if value is not None}}
        for tool in settings.get("tools", ())
    ]
    return {**settings, "tools": tools} if tools else settings


def json_format(schema: Value, name: Value = None, *, strict: Value = None) -> AnswerFields:
    """The response format for a JSON schema; for any JSON object where `schema` is None."""
    if schema is None:
        return {"type": "json_object"}
    described = {"name": name or "answer", "schema": schema, **({} if strict is None else {"strict": strict})}
    return {"type": "json_schema", "json_schema": described}


def mapping_of(value: Value) -> Mapping[str, Value]:
    """The fields of an object; {} for anything else."""
    return values.mapping(value) or {}


def entries_of(value: Value, path: str) -> Iterator[tuple[str, Mapping[str, Value]]]:
    """Iterate over the objects of a list, each with its path: `("tools[0]", {…})`."""
    for index, entry in enumerate(values.items(value) or ()):
        yield f"{path}[{index}]", mapping_of(entry)


def named(request: Mapping[str, Value], fields: Mapping[str, str]) -> AnswerFields:
    """The fields that a request has, renamed: `fields` maps the dialect's names to those of Chat Completions."""
    return {ours: request[theirs] for theirs, ours in fields.items() if request.get(theirs) is not None}


def left_out(request: Mapping[str, Value], known: Iterable[str]) -> list[str]:
    """The names of the fields of a request that are not known, sorted."""
    return sorted(name for name, value in request.items() if value is not None and name not in {*known})


def left_out_within(request: Mapping[str, Value], field: str, known: Iterable[str]) -> list[str]:
    """The names of unknown fields of the object in a field, with the path: `thinking.budget_tokens`."""
    return [f"{field}.{name}" for name in left_out(mapping_of(request.get(field)), known)]


STREAMED: Final[AnswerFields] = {"stream": True, "stream_options": {"include_usage": True}}
"""The fields for a stream with its usage at the end: in all other dialects streams always have it."""
