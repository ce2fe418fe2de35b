"""Usage as a witness: find calls for which the server counted more tokens than the recorded text can have.

No tokenizer makes more tokens of a text than the text has UTF-8 bytes. So a call with a higher count has a prompt or
an answer that was not recorded whole, whatever the recorder and the API:

    input_tokens = 1,843, recorded: "and now?"          the history is on the server, or was lost
    input_tokens = 57, 149, 180 for equal prompts       the recorder lost the messages that came between
    output_tokens = 9, recorded: nothing                a refusal was lost

A prompt is compared with its own bytes, and more precisely with the count of an earlier prompt that begins alike: only
the bytes that are new in it can be new tokens.

Invariant: no false alarm. Templates, messages and tools get an allowance, so a small loss is not noticed. No call is
doubted if something else may explain the count: content other than text, tools of the server, unrecorded definitions
or reasoning, or a gap that is known already. Calls with token ids are checked by `conventions.gaps`, more exactly.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import takewhile
from typing import Final, NamedTuple, cast

import msgspec

from art_otel.calls import Choice, Gap, InferenceCall, Message, Usage, holds_text_only
from art_otel.conventions import NOTHING_OF_CLAUDE
from art_otel.spans import Value

_TEMPLATE: Final = 1024
"""Tokens that a chat template may add by itself: Llama's date, gpt-oss's channels, the default system prompts of
SmolLM3, Command A and Devstral, the hidden system prompt of Grok's API."""

_WITH_TOOLS: Final = 512
"""Tokens that a template may add if there are tools: Anthropic's, DeepSeek's and Hermes' explain how to call tools."""

_TOOL: Final = 128
"""Tokens that a template may write around the JSON of a tool definition."""

_MESSAGE: Final = 16
"""Tokens around a message: its role, its begin and its end."""

_TOOL_CALL: Final = 64
"""Tokens around a tool call, as XML or JSON. The bytes of its arguments count twice: the model may have sampled spaces,
escapes or a tag per parameter, which a recorder that parses the arguments loses."""

_SCHEMA: Final = 4096
"""Tokens of an unrecorded response schema. An answer in JSON may have had one."""

_ANSWER: Final = 64
"""Tokens around an answer: its channel and its end."""

_NOTHING: Final = 2
"""Tokens of an empty answer: its begin and its end."""

_SLACK: Final = 32
"""Tokens by which the templates of two calls may differ: another date, another begin of the answer."""

_LONGEST: Final = 12
"""The most bytes per token in ordinary texts (Thai). With more bytes per token, the count is without cached tokens."""

_INSTRUCTING: Final = ("system", "developer")

_RECENT: Final = 8
"""How many earlier prompts a new prompt is compared with: some, because sub-agents and parallel calls alternate."""

_THINKING_MODELS: Final = re.compile(
    r"(?<![a-z0-9])(?:o[1-9]|r1)(?![a-z0-9])|gpt-?(?:[5-9]|oss)|claude|gemini|deepseek|qwq|qwen-?3|think|reason|glm"
    r"|kimi|minimax|magistral|grok|nemotron|sonar|mimo|seed|hunyuan|ernie|smollm3|olmo-?3|granite|exaone|phi-?4|nova"
)
"""Models that may reason although neither reasoning nor a count of its tokens was recorded."""

_THINKING: Final = re.compile(rb"think|reason")
"""A word in the names or values of request parameters that switch reasoning on."""

_COUNTS_CACHED_APART: Final = re.compile(r"anthropic|claude|bedrock")
"""Providers and models whose recorders may count only the tokens of a prompt that were not in a cache."""

_CACHES_CONTENT: Final = re.compile(r"gemini|google|gcp|vertex")
"""Providers (Gemini) with a cache for uploaded content, which is in no request but is counted as cached tokens."""

_SERVED: Final = (
    *("web_search_options", "mcp_servers", "plugins", "cached_content", "cachedContent", "container", "data_sources"),
    *("documents", "files", "search_parameters", "conversation", "context"),
)
"""Parameters with which a server adds text to a prompt that is not in the messages."""

_SAMPLES_MORE: Final = ("best_of", "use_beam_search", "prediction", "modalities", "audio")
"""Parameters with which a server counts output tokens that are in no answer or are no text."""


def find_more_counted(calls: Sequence[InferenceCall]) -> Iterator[tuple[int, Gap]]:
    """Find gaps in the calls of a rollout, given by start: a position and a gap for each count that is too high."""
    if len(calls) == 1 and _is_within_its_texts(calls[0]):  # fast path: there is no other call to compare with
        return
    rollout = _WitnessedRollout(calls)
    for index, call in enumerate(calls):
        if call.usage is not None and not call.failed:
            if (evidence := rollout.doubt_prompt(call, call.usage)) is not None:
                yield index, Gap(kind="more counted than recorded", field="prompt", evidence=evidence)
            if (evidence := rollout.doubt_answer(call, call.usage)) is not None:
                field = f"answer[{call.choices[0].index}]" if call.choices and len(call.choices) == 1 else "answer"
                yield index, Gap(kind="more counted than recorded", field=field, evidence=evidence)
        rollout.add(call)


def _is_within_its_texts(call: InferenceCall) -> bool:
    """Whether the counts are at most the numbers of characters of the prompt and of the first answer."""
    usage = call.usage
    if usage is None or call.failed:
        return True
    # Characters are fewer than bytes, so this test is stricter than it must be, but needs no encoding.
    asked = sum([len(message.content or "") for message in call.input_messages or ()])
    answered = len(call.choices[0].message.content or "") if call.choices else 0
    return (_input_tokens(call, usage) or 0) <= asked and (usage.output_tokens or 0) <= answered


class _Size(NamedTuple):
    """The UTF-8 bytes of messages (`text`), and the tokens that a template may add to the messages (`template`)."""

    text: int = 0
    template: int = 0

    def plus(self, messages: Iterable[Message]) -> "_Size":
        """The size with more messages."""
        text, template = self
        for message in messages:
            text += _bytes(message.content) + _bytes(message.refusal) + _bytes(message.reasoning) + _bytes(message.name)
            template += _MESSAGE + _bytes(message.tool_call_id)
            for call in message.tool_calls:
                arguments = _bytes(call.arguments)
                text += _bytes(call.name) + arguments
                template += _TOOL_CALL + _bytes(call.id) + arguments
        return _Size(text, template)


class _Earlier(NamedTuple):
    """An earlier call with a token count, which later prompts are compared with."""

    call: InferenceCall
    size: _Size
    tokens: int


class _WitnessedRollout:
    """The calls of a rollout up to the present one: they show which counts of the present call are plausible."""

    def __init__(self, calls: Sequence[InferenceCall]) -> None:
        self._write_tools = {call.conventions for call in calls if call.tools}
        self._are_tools_called = any(map(_calls_tools, calls))
        self._sizes: list[tuple[tuple[Message, ...], _Size]] = []
        self._earlier: dict[object, Sequence[_Earlier]] = {}
        self._reasoned = 0  # tokens of reasoning, where they are counted
        self._sampled = 0  # tokens of answers of which nobody says how many were reasoning
        self._thinks = False

    def add(self, call: InferenceCall) -> None:
        """Add a call after it was checked, so that it counts as an earlier call."""
        usage = call.usage or Usage()
        self._reasoned += usage.reasoning_tokens or 0
        self._sampled += usage.output_tokens or 0 if usage.reasoning_tokens is None else 0
        self._thinks = self._thinks or bool(usage.reasoning_tokens) or _shows_reasoning(call.choices or ())

    def doubt_prompt(self, call: InferenceCall, usage: Usage) -> str | None:
        """The evidence that the server counted more than the recorded prompt, as a text; None if there is none."""
        messages, tokens = call.input_messages, _input_tokens(call, usage)
        if not messages or not tokens or call.prompt_token_ids is not None:
            return None
        size = self._size_of(messages)
        found: list[str] = []
        if tokens > size.text + size.template + _TEMPLATE:
            found += self._beyond_its_bytes(call, tokens, size)
        if size.text <= _LONGEST * tokens and (key := _alike(call)) is not None:
            earlier = self._earlier.get(key, ())
            found += self._beyond_earlier(call, tokens, size, earlier)
            # Kept for the next calls: the latest prompts, and first the prompt of the fewest tokens, because it alone
            # is compared with prompts that begin otherwise.
            latest = _Earlier(call, size, tokens)
            fewest = min((*earlier[:1], latest), key=lambda one: one.tokens)
            others = [one for one in (*earlier, latest) if one is not fewest]
            self._earlier[key] = [fewest, *others[1 - _RECENT :]]
        return found[0] if found and not self._is_explained(call) else None

    def _beyond_its_bytes(self, call: InferenceCall, tokens: int, size: _Size) -> Iterator[str]:
        """Yield evidence if the count is higher than all recorded bytes plus what a template may add."""
        tools = self._tools_of(call)
        if tools is None:
            return
        text = size.text + sum(len(msgspec.json.encode(tool)) for tool in tools)
        share = size.template + _TEMPLATE + (_WITH_TOOLS + _TOOL * len(tools) if tools else 0)
        share += len(msgspec.json.encode(call.parameters)) + (_SCHEMA if _says_json(call) else 0)
        if tokens > (text + share) * _samples(call) + self._hidden_reasoning(call):
            yield f"{tokens:,} input tokens, but at most {text:,} bytes"

    def _beyond_earlier(
        self, call: InferenceCall, tokens: int, size: _Size, earlier: Sequence[_Earlier]
    ) -> Iterator[str]:
        """Yield evidence if the count is higher than an earlier prompt's count plus the bytes that are new.

            before   "hello"                           57 tokens
            now      "hello" "and now?"               149 tokens, but only 8 bytes are new

        Where the earlier prompt has messages that this one lacks, the least that they can count for is subtracted.
        """
        messages = call.input_messages or ()
        is_beyond_bytes = tokens > size.text + size.template + _SLACK
        for one in earlier:
            if tokens <= one.tokens:  # no growth, so nothing to explain
                continue
            before = one.call.input_messages or ()
            came = size.text - one.size.text + size.template - one.size.template
            if tokens > one.tokens + max(0, came) + _SLACK and messages[: len(before)] == before:
                shared = len(before)
            elif is_beyond_bytes and one is earlier[0]:
                shared = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(messages, before, strict=False)))
            else:
                continue
            if _says_json(call) and not _says_json(one.call):
                continue  # this call may have had a response schema that was not recorded
            text, template = _Size().plus(messages[shared:])
            # A word is at least one token, but some tokens reach over a space: so at least half a token per word.
            gone = sum(len(message.content.split()) // 2 for message in before[shared:] if message.content)
            limit = one.tokens - gone + (text + template) * _samples(call) + _SLACK + self._hidden_reasoning(call)
            if _instructions(one.call) and not _instructions(call):
                limit += _TEMPLATE  # a template writes default instructions if there are none
            if one.tokens >= gone and tokens > limit:
                if self._has_tools_of(call, one.call, goes_on=shared == len(before)):
                    yield (
                        f"{tokens:,} input tokens, but only {text:,} bytes that an earlier prompt of {one.tokens:,} "
                        "tokens did not have"
                    )
                return

    def _has_tools_of(self, call: InferenceCall, earlier: InferenceCall, *, goes_on: bool) -> bool:
        """Whether a call certainly had no tool definitions that an earlier call did not have.

        Unrecorded definitions are taken as equal only if the call continues the earlier one, which called tools.
        """
        tools, others = self._tools_of(call), self._tools_of(earlier)
        if tools is None or others is None:
            return goes_on and tools is others and _calls_tools(earlier)
        if call.tools is None and call.conventions not in self._write_tools and not goes_on:
            return call.agent == earlier.agent and _instructions(call) == _instructions(earlier)
        return not tools or tools == others

    def doubt_answer(self, call: InferenceCall, usage: Usage) -> str | None:
        """The evidence that the server counted more than the recorded answers, as a text; None if there is none."""
        choices, counted = call.choices, usage.output_tokens
        if not choices or counted is None or counted <= len(choices[0].message.content or ""):
            return None
        if call.answer_known == "verbatim body" or call.closed_by_app is not None:
            return None  # a server's own parser may leave out sampled text, and the app may have left the stream
        if all(choice.token_ids for choice in choices):
            return None
        size = _Size().plus(choice.message for choice in choices)
        spoken, limit = counted - (usage.reasoning_tokens or 0), size.text + size.template + _ANSWER * len(choices)
        if all(choice.message.says_nothing for choice in choices):
            limit = len(choices) * (NOTHING_OF_CLAUDE if _is_named(_COUNTS_CACHED_APART, call) else _NOTHING)
        elif usage.reasoning_tokens is None and spoken > limit and self._may_think(call):
            return None
        if spoken <= limit or _samples(call) > len(choices) or any(name in call.parameters for name in _SAMPLES_MORE):
            return None
        if _has_gap(call, "answer") or _has_server_tools(call) or any(_is_more(choice.message) for choice in choices):
            return None
        return f"{spoken:,} output tokens, but at most {size.text:,} bytes"

    def _is_explained(self, call: InferenceCall) -> bool:
        """Whether something other than lost text may explain the count of a prompt."""
        return (
            _has_gap(call, "prompt", "tools")
            or bool(call.media)
            or _has_server_tools(call)
            or any(name in call.parameters for name in _SERVED)
            or any(map(_is_more, (*(call.input_messages or ()), *(choice.message for choice in call.choices or ()))))
        )

    def _tools_of(self, call: InferenceCall) -> Sequence[Value] | None:
        """The tool definitions of a call, () if it had none; None if its recorder does not record definitions.

        A recorder that wrote no definitions in the whole rollout, although tools are called, does not record them.
        """
        if call.tools is not None or call.conventions in self._write_tools:
            return call.tools or ()
        asked = call.input_messages or ()
        is_hidden = self._are_tools_called or any(one.tool_calls or one.role == "tool" for one in asked)
        return None if is_hidden else ()

    def _hidden_reasoning(self, call: InferenceCall) -> int:
        """The most tokens of earlier reasoning that a prompt may contain although recorders leave reasoning out."""
        return self._reasoned + (self._sampled if self._may_think(call) else 0)

    def _may_think(self, call: InferenceCall) -> bool:
        """Whether the model may have reasoned although the call has no count of reasoning tokens."""
        return (
            self._thinks
            or _shows_reasoning(call.choices or ())
            or _is_named(_THINKING_MODELS, call)
            or _THINKING.search(msgspec.json.encode(call.parameters)) is not None
        )

    def _size_of(self, messages: tuple[Message, ...]) -> _Size:
        """The size of a prompt."""
        # Only the messages behind the longest known beginning are counted, else long rollouts would be quadratic.
        shared: tuple[Message, ...] = ()
        size = _Size()
        for earlier, its_size in self._sizes:
            if len(shared) < len(earlier) <= len(messages) and messages[: len(earlier)] == earlier:
                shared, size = earlier, its_size
        size = size.plus(messages[len(shared) :])
        self._sizes = [(messages, size), *self._sizes[: _RECENT - 1]]
        return size


def _alike(call: InferenceCall) -> object | None:
    """A key that calls share whose prompts are counted in the same way; None if cached tokens may not be counted."""
    if _is_named(_COUNTS_CACHED_APART, call):
        return None
    asked = {
        name: value
        for name, value in call.parameters.items()
        if name == "n" or isinstance(value, bool) or not isinstance(value, (int, float))
    }
    kept = msgspec.json.encode(asked, order="deterministic") if asked else b""
    return call.request_model, call.response_model, call.conventions, call.stream, kept


def _input_tokens(call: InferenceCall, usage: Usage) -> int | None:
    """The tokens of a prompt, without the tokens of content that was uploaded to a cache before."""
    tokens, cached = usage.input_tokens, usage.cached_tokens or 0
    if tokens is None:
        return None
    if cached > tokens:  # this provider does not include cached tokens in the input tokens
        return tokens + cached
    return tokens - cached if cached and _is_named(_CACHES_CONTENT, call) else tokens


def _is_named(names: re.Pattern[str], call: InferenceCall) -> bool:
    return _finds(names, call.provider, call.request_model, call.response_model)


@lru_cache(maxsize=256)
def _finds(names: re.Pattern[str], *where: str | None) -> bool:
    return any(text is not None and names.search(text.lower()) for text in where)


def _samples(call: InferenceCall) -> int:
    """How many choices the request asked for: some servers count the prompt once for each choice."""
    asked = call.parameters.get("n")
    return max(1, len(call.choices or ()), asked if isinstance(asked, int) else 1)


def _has_gap(call: InferenceCall, *fields: str) -> bool:
    """Whether the call has a gap in one of these fields, or in the whole call."""
    return any(gap.field.partition("[")[0] in (*fields, "call", "messages") for gap in call.gaps)


def _has_server_tools(call: InferenceCall) -> bool:
    """Whether a tool runs on the server: the server adds the tool's results to the prompt."""
    definitions = (cast("dict[str, Value]", tool) for tool in call.tools or () if isinstance(tool, dict))
    return any(definition.get("type") not in (None, "function") for definition in definitions)


def _instructions(call: InferenceCall) -> tuple[Message, ...]:
    """The first message of a prompt, if it is a system or developer message."""
    return tuple(message for message in (call.input_messages or ())[:1] if message.role in _INSTRUCTING)


def _is_more(message: Message) -> bool:
    """Whether a message has parts other than text."""
    return message.parts is not None and not holds_text_only(message.parts)


def _says_json(call: InferenceCall) -> bool:
    return any((choice.message.content or "").lstrip()[:1] in ("{", "[") for choice in call.choices or ())


def _calls_tools(call: InferenceCall) -> bool:
    return any(choice.message.tool_calls for choice in call.choices or ())


def _shows_reasoning(choices: Iterable[Choice]) -> bool:
    return any(choice.message.reasoning for choice in choices)


def _bytes(text: str | None) -> int:
    """How many bytes a text has in UTF-8; a lone surrogate counts 3 bytes, as its replacement character does."""
    if not text:
        return 0
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))
