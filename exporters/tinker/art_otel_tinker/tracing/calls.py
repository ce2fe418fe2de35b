"""Calls: what an environment asked its policy, and what the policy sampled, as a span.

Invariant: what is kept of messages and prompts is as it was when the environment asked, and shares nothing with what
the environment may change later. A span's times are those of sampling, also where its logprobs come later. Arguments of
tool calls stay the text they are.

Source: `Message`, `ToolCall` and `ContentPart` of `tinker_cookbook.renderers.base` 0.6.1. A renderer's own
`to_openai_message` is not used: it refuses images, and some parse arguments or put reasoning into the text.
"""

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from time import time_ns
from typing import Any, Final, cast

import msgspec
from opentelemetry import trace
from opentelemetry.semconv.attributes.error_attributes import ERROR_TYPE
from opentelemetry.trace import Span, SpanKind

from art_otel import attributes as names
from art_otel.calls import Logprobs, TokenIds
from art_otel.conventions import encode_ids, encode_logprobs
from art_otel.exporting import JsonObject
from art_otel_tinker.tracing.wrapping import Proxy, answer_of, handle_tinker_errors

_PLAIN: Final = ("tool_call_id", "name")


def chat_messages(messages: Sequence[Mapping[str, Any]]) -> list[JsonObject]:
    """Convert the messages of a conversation."""
    return [chat_message(message) for message in messages]


def chat_message(message: Mapping[str, Any]) -> JsonObject:
    """Convert one message. Tool calls that the renderer could not parse are left out."""
    converted: JsonObject = {"role": message["role"], "content": _content(message.get("content"))}
    converted |= {name: message[name] for name in _PLAIN if message.get(name) is not None}
    calls = [_tool_call(call) for call in message.get("tool_calls") or ()]
    return converted | ({"tool_calls": calls} if calls else {})


def unparsed_tool_calls(message: Mapping[str, Any]) -> list[JsonObject]:
    """The tool calls that the renderer could not parse: their text and what is wrong with it."""
    return [{"raw_text": call.raw_text, "error": call.error} for call in message.get("unparsed_tool_calls") or ()]


def chat_tools(owner: object) -> list[JsonObject] | None:
    """Return the tools of an environment, or of the message environment in it; None if neither lists any."""
    for holder in (owner, getattr(owner, "message_env", None)):
        tools: object = getattr(holder, "tools", None)
        if isinstance(tools, (list, tuple)):
            return [{"type": "function", "function": dict(tool.to_spec())} for tool in cast(list[Any], tools)]
    return None


def _content(content: Any) -> str | list[JsonObject] | None:  # noqa: ANN401 # text or parts
    return content if content is None or isinstance(content, str) else [_part(part) for part in content]


def _part(part: Mapping[str, Any]) -> JsonObject:
    kind = part["type"]
    if kind == "image":
        return {"type": "image_url", "image_url": {"url": _reference(part["image"])}}
    if kind == "audio":
        return {"type": "audio", "audio": _reference(part["audio"])}
    return {name: value for name, value in part.items() if isinstance(value, (str, int, float, bool))}


def _reference(media: object) -> str:
    """Where the picture or sound is; of one in memory only what it is."""
    return media if isinstance(media, str) else f"<{type(media).__name__}>"


def _tool_call(call: Any) -> JsonObject:  # noqa: ANN401 # ToolCall
    function = {"name": call.function.name, "arguments": call.function.arguments}
    return {"id": call.id, "type": "function", "function": function}


_REMEMBERED: Final = 8
"""Environments render a prompt, and perhaps some more to measure their length, between two calls."""

_NAMES: Final = ("renderer", "policy_renderer")
"""Where environments of tinker-cookbook keep theirs."""


class WatchedRenderer(Proxy):
    """Goes where the environment's renderer was."""

    def __init__(self, renderer: Any) -> None:  # noqa: ANN401 # Renderer
        super().__init__(renderer)
        self._self_rendered: deque[tuple[object, list[JsonObject]]] = deque(maxlen=_REMEMBERED)

    def build_generation_prompt(self, messages: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 # as Renderer
        """Build the prompt as the renderer does, and remember its messages."""
        prompt = self.__wrapped__.build_generation_prompt(messages, *args, **kwargs)
        with handle_tinker_errors:
            self._self_rendered.append((prompt, chat_messages(messages)))
        return prompt

    def messages_of(self, prompt: object) -> list[JsonObject] | None:
        """Return the messages that this prompt object was rendered from."""
        return next((messages for rendered, messages in list(self._self_rendered) if rendered is prompt), None)

    def __reduce_ex__(self, protocol: Any) -> Any:  # noqa: ANN401 # as object
        return self.__wrapped__.__reduce_ex__(protocol)


def watch_renderer(env: object) -> WatchedRenderer | None:
    """Watch the renderer of an environment; None if it has none under the usual names."""
    for name in _NAMES:
        renderer: Any = getattr(env, name, None)
        if isinstance(renderer, WatchedRenderer):
            return renderer
        if hasattr(renderer, "build_generation_prompt"):
            watched = WatchedRenderer(renderer)
            setattr(env, name, watched)
            return watched
    return None


@dataclass(frozen=True, kw_only=True, slots=True)
class PolicyPrompt:
    """`token_ids` are None where some of it is no token, as an image is. `messages` are JSON, None if unknown."""

    token_ids: TokenIds | None
    messages: str | None
    asked_ns: int = field(default_factory=time_ns)

    @staticmethod
    def of(observation: Any, renderer: WatchedRenderer | None) -> "PolicyPrompt":  # noqa: ANN401 # ModelInput
        """That of an observation."""
        messages = None if renderer is None else renderer.messages_of(observation)
        return PolicyPrompt(
            token_ids=_token_ids(observation),
            messages=None if messages is None else msgspec.json.encode(messages).decode(),
        )

    def attributes(self) -> dict[str, str | int]:
        """Give the prompt as attributes of the call's span."""
        asked: dict[str, str | int] = {}
        if self.token_ids is not None:
            asked[names.PROMPT_TOKENS] = encode_ids(self.token_ids)
            asked["gen_ai.usage.input_tokens"] = len(self.token_ids)
        if self.messages is not None:
            asked[names.REQUEST_MESSAGES] = self.messages
        return asked


def _token_ids(observation: Any) -> TokenIds | None:  # noqa: ANN401 # ModelInput
    try:
        return cast(TokenIds, TokenIds.of(observation.to_ints()))
    except ValueError:
        return None


SCOPE: Final = "art_otel_tinker"
MODEL: Final = "gen_ai.request.model"

_RESPONSE_ID: Final = "gen_ai.response.id"
_IDS: Final = f"{names.COMPLETION_TOKENS_PREFIX}0"
_LOGPROBS: Final = f"{names.COMPLETION_LOGPROBS_PREFIX}0"


class PolicyCall:
    """A call that has its tokens and waits for `end`. `answer` is the policy's answer, None until it is known."""

    def __init__(self, action: list[int], span: Span) -> None:
        self.action = action
        self.answer = answer_of(action)
        self._span = span
        self._ended_ns = time_ns()

    def end(self, error: BaseException | None = None) -> None:
        """End it. With an error its completion is no part of what the rollout became, and is not trained."""
        with handle_tinker_errors:
            logprobs = None if self.answer is None else self.answer.maybe_logprobs
            if logprobs is not None and len(logprobs) == len(self.action):
                self._span.set_attribute(_LOGPROBS, encode_logprobs(cast(Logprobs, Logprobs.of(logprobs))))
            sequence_id: object = getattr(self.answer, "sequence_id", None)
            if isinstance(sequence_id, str):
                self._span.set_attribute(_RESPONSE_ID, sequence_id)
            if error is not None:
                self._span.set_attribute(ERROR_TYPE, type(error).__name__)
        self._span.end(self._ended_ns)


def begin_call(
    prompt: PolicyPrompt,
    action: list[int],
    stop_reason: str | None,
    renderer: WatchedRenderer | None,
    about: Mapping[str, str],
) -> PolicyCall:
    """The call whose completion `action` is. `about` holds what all calls of the environment have on their spans."""
    model = about.get(MODEL)
    span_attributes = {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "tinker",
        **about,
        **prompt.attributes(),
        "gen_ai.usage.output_tokens": len(action),
        _IDS: encode_ids(cast(TokenIds, TokenIds.of(action))),
        **_message(action, stop_reason, renderer),
    }
    span = trace.get_tracer(SCOPE).start_span(
        "chat" if model is None else f"chat {model}",
        kind=SpanKind.CLIENT,
        start_time=prompt.asked_ns,
        attributes=span_attributes,
    )
    return PolicyCall(action, span)


def _message(action: list[int], stop_reason: str | None, renderer: WatchedRenderer | None) -> dict[str, str]:
    """What the tokens say, as the renderer parses them; parsing changes nothing."""
    # A message without `content` is unknown; `null` would say that nothing was sampled.
    choice: JsonObject = {"index": 0, "message": {"role": "assistant"}}
    if stop_reason is not None:  # null would say that the server broke off
        choice["finish_reason"] = stop_reason
    attributes: dict[str, str] = {}
    with handle_tinker_errors:
        if renderer is not None:
            message, termination = renderer.parse_response(list(action))
            choice["message"] = chat_message(message)
            attributes[f"{names.EXTRA}.termination"] = str(termination)
            if unparsed := unparsed_tool_calls(message):
                attributes[f"{names.EXTRA}.unparsed_tool_calls"] = msgspec.json.encode(unparsed).decode()
    return {**attributes, names.RESPONSE_CHOICES: msgspec.json.encode([choice]).decode()}
