"""Recorder losses: recorders that are known to lose or rewrite content, and the calls in which they do.

    recorder                       sent                                recorded                     spoiled field
    OpenLLMetry, CrewAI            assistant calls look, tool: 3       tool: 3                      prompt
    Strands                        assistant: "[blank text]"           assistant: ""                prompt

Invariant: a recorder is doubted only for a loss that its source code or a comparison with the model server's log shows,
only in calls of the shape in which it loses content, and only in versions that do. docs/spec/recorders.md names the
instrumentor to use instead.

How to add one: a function that returns the spoiled field of a call, and a line in `_JUDGES`, or in `_VERSIONS` if a
later version is repaired.
"""

import json
from collections.abc import Callable, Iterable, Iterator
from typing import Final, TypeAlias

from art_otel.calls import Gap, Message, canonical_arguments
from art_otel.conventions import values
from art_otel.conventions.attribute_names import NameFamilies
from art_otel.conventions.dialects import nemo_relay
from art_otel.conventions.facts import CallFacts
from art_otel.conventions.vocabulary import is_responses_api_id
from art_otel.spans import Scope, Span, Value

_JSON: Final = json.JSONDecoder()

_FindLoss: TypeAlias = Callable[[CallFacts], str | None]
"""Returns the field of a call (see `calls.Gap`) that its recorder lost or rewrote; None if it did not."""


def find_losses(span: Span, families: NameFamilies, facts: CallFacts) -> tuple[Gap, ...]:
    """Find the gaps of a call by its recorder, which the span's scope or its attributes' names show."""
    if span.scope.name not in _JUDGED_SCOPES and not families.memo(_has_nemo_relay_names):
        return ()
    judges = list(_judges(span.scope, families))
    evidence = f"{span.scope.name} {span.scope.version}".strip()
    if families.memo(_has_nemo_relay_names) or (span.scope.name == _NEMO_RELAY_SCOPE and _is_of_rust(span)):
        judges, evidence = [_keeps_last_turn], "NeMo Relay"
    if not judges:
        return ()
    fields = [judge(facts) for judge in judges]
    return tuple(Gap(kind="lossy recorder", field=field, evidence=evidence) for field in fields if field)


def _judges(scope: Scope, families: NameFamilies) -> Iterator[_FindLoss]:
    if scope.name in _JUDGES:
        yield _JUDGES[scope.name]
    for first, mended, judge in _VERSIONS.get(scope.name, ()):
        if first <= values.version_numbers(scope.version) < mended:
            yield judge
    if scope.name in _BEFORE:
        later, judge = _BEFORE[scope.name]
        if later not in families:
            yield judge


_NEMO_RELAY_SCOPE: Final = "opentelemetry"
"""The default scope of NeMo Relay's spans. Its export of GenAI's attributes has no other sign."""


def _has_nemo_relay_names(families: NameFamilies) -> bool:
    return bool(families.starting(nemo_relay.PREFIX))


def _is_of_rust(span: Span) -> bool:
    return span.resource.attributes.get("telemetry.sdk.language") == "rust"


def _keeps_last_turn(facts: CallFacts) -> str | None:
    """NeMo Relay keeps only the system messages of a prompt and its end from the last user message on."""
    # A prompt with one user message may have lost its beginning or not: nothing shows which, so all are doubted.
    asked = [message.role for message in facts.input_messages or ()].count("user")
    return "prompt" if facts.input_messages is not None and asked <= 1 else None


def is_error_unknown(scope: str, response_id: str | None) -> bool:
    """Whether a finish reason `error` is no error: genai-langchain writes it for all answers of the Responses API."""
    return scope == "opentelemetry.instrumentation.genai.langchain" and is_responses_api_id(response_id)


def _loses_text_of_answers(facts: CallFacts) -> str | None:
    """Botocore, and genai-langchain before 1.3, write the tool calls of an answer or its text, never both."""
    answers = [choice.message for choice in facts.choices or ()]
    return "answer" if any(map(_is_tool_calls_only, answers)) else None


def _loses_text(facts: CallFacts) -> str | None:
    """Semantic Kernel writes tool calls or text, never both, in answers and in prompts."""
    return "call" if any(map(_is_tool_calls_only, _assistant_messages(facts))) else None


def _loses_text_of_prompts(facts: CallFacts) -> str | None:
    """OpenLLMetry's LangChain left the text beside tool calls out of prompts before 0.46."""
    prompt = [one for one in facts.input_messages or () if one.role == "assistant"]
    return "prompt" if any(map(_is_tool_calls_only, prompt)) else None


def _loses_tool_calls(facts: CallFacts) -> str | None:
    """Some instrumentors of frameworks lose the tool calls of a prompt; only the tools' results are left."""
    if facts.previous_response_id is not None:
        return None  # the tool calls are in the earlier response, which is on the server
    called = True
    for message in facts.input_messages or ():
        if message.role != "tool":
            called = message.role != "assistant" or bool(message.tool_calls)
        elif not called and message.tool_call_id is not None:
            return "prompt"
    return None


def _loses_answers_of_tools(facts: CallFacts) -> str | None:
    """OpenInference's Bedrock keeps only the last of several tool results; the server demands one for each call."""
    unanswered = 0
    for message in facts.input_messages or ():
        if message.role == "assistant":
            unanswered = len(message.tool_calls)
        elif unanswered > 0 and message.tool_call_id is None:
            return "prompt"
        else:
            unanswered -= 1
    return "prompt" if unanswered > 0 else None


def _loses_arguments(facts: CallFacts) -> str | None:
    """OpenLLMetry's Bedrock writes `{}` for tool arguments in a stream of InvokeModel, and no tool definitions."""
    # An answer of InvokeModel that was not streamed looks the same, so real calls without arguments are doubted, too.
    calls = [call for choice in facts.choices or () for call in choice.message.tool_calls]
    is_lost = not facts.tools and any(canonical_arguments(call.arguments) == "{}" for call in calls)
    return "answer" if is_lost else None


def _is_tool_calls_only(message: Message) -> bool:
    return bool(message.tool_calls) and not message.content


def _shows_thoughts_as_text(facts: CallFacts) -> str | None:
    """ADK writes thoughts as text parts before the text; only the usage shows that there were thoughts."""
    if "google_adk" in facts.conventions:
        return None  # ADK's own request and response were recorded, which mark thoughts
    if facts.stream and facts.usage is not None and facts.usage.reasoning_tokens:
        return "answer"  # its chunks are thoughts first, then text
    answers = [choice.message for choice in facts.choices or () if choice.message.reasoning is None]
    return _has_thoughts_in_texts(facts, answers)


def _has_thoughts_in_texts(facts: CallFacts, answers: Iterable[Message]) -> str | None:
    """`call` if a message has several texts, or if one of `answers` has text beside tool calls and counted thoughts."""
    is_counted = facts.usage is not None and bool(facts.usage.reasoning_tokens)
    rewritten = any(
        message.reasoning is None and message.parts is not None and message.parts.count('"type":"text"') > 1
        for message in _assistant_messages(facts)
    ) or (is_counted and any(answer.tool_calls and answer.content for answer in answers))
    return "call" if rewritten else None


def _shows_texts(facts: CallFacts) -> str | None:
    """OTel's google-genai before 1.3 writes thoughts as texts without a mark.

    Beside a tool call a single text may be only the thought, if tokens of thoughts were counted.
    """
    if facts.operation_name != "generate_content":
        return None
    return _has_thoughts_in_texts(facts, [choice.message for choice in facts.choices or ()])


def _shows_unfinished(facts: CallFacts) -> str | None:
    """OTel's google-genai writes an empty answer with `stop` for an interaction that still runs in the background."""
    messages = [choice.message for choice in facts.choices or ()]
    is_empty = not any(one.content or one.tool_calls or one.reasoning or one.parts for one in messages)
    return "answer" if messages and is_empty and facts.usage is None else None


def _joins_streams(facts: CallFacts) -> str | None:
    """OpenInference's google-genai before 1.4 joins all parts of a stream to one: one tool call, texts as thoughts."""
    answers = [choice.message for choice in facts.choices or ()] if facts.stream else []
    return "answer" if any(one.tool_calls or one.reasoning is not None for one in answers) else None


def _loses_further_tool_calls(facts: CallFacts) -> str | None:
    """The openlit SDK before 1.45 keeps only the first tool call of Anthropic's answers."""
    return "answer" if any(choice.message.tool_calls for choice in facts.choices or ()) else None


def _loses_items(facts: CallFacts) -> str | None:
    """OpenLLMetry before 0.55 leaves function calls and their results out of the Responses API's prompts."""
    return "prompt" if facts.tools and is_responses_api_id(facts.response_id) else None


def _loses_items_of_input(facts: CallFacts) -> str | None:
    """LiteLLM's callback writes all items of the Responses API's prompts as messages.

    Reasoning, function calls and their outputs, which have no role or content, become empty user messages.
    """
    is_lost = any(one.role == "user" and one.content == "" for one in facts.input_messages or ())
    return "prompt" if is_lost and is_responses_api_id(facts.response_id) else None


def _loses_response_instructions(facts: CallFacts) -> str | None:
    """LiteLLM's newer OTel leaves the instructions out of the Responses API's prompts."""
    prompt = facts.input_messages
    has_instructions = prompt is not None and any(one.role in ("system", "developer") for one in prompt[:1])
    return None if has_instructions or not is_responses_api_id(facts.response_id) else "prompt"


def _loses_items_of_history(facts: CallFacts) -> str | None:
    """OTel's genai-openai before 1.2 leaves function calls and their outputs out of the Responses API's prompts.

    Only these versions have this scope (its version is that of another package).
    """
    # A prompt without an assistant message may be the first one of a conversation, which lost nothing.
    has_history = any(one.role == "assistant" for one in facts.input_messages or ())
    return "prompt" if has_history and is_responses_api_id(facts.response_id) else None


def _flattens_without_items(facts: CallFacts) -> str | None:
    """Laminar leaves function calls out of flattened prompts; other prompts have all items as they were sent."""
    return _loses_items_of_history(facts) if facts.prompt_known == "flattened attributes" else None


def _loses_parameters(facts: CallFacts) -> str | None:
    """LiveKit writes tool definitions without parameters, which GenAI's conventions allow."""
    return "tools" if facts.tools and not any(map(_has_parameters, facts.tools)) else None


def _loses_definitions(facts: CallFacts) -> str | None:
    """Anthropic's client writes no tool definitions; they are missing if the prompt or the answer has tool calls."""
    messages = [*(facts.input_messages or ()), *(choice.message for choice in facts.choices or ())]
    has_tools = any(message.tool_calls or message.role == "tool" for message in messages)
    return "tools" if has_tools and facts.tools is None else None


def _has_parameters(tool: Value) -> bool:
    fields = values.mapping(tool) or {}
    return fields.get("type") != "function" or "parameters" in (values.mapping(fields.get("function")) or {})


def _loses_responses(facts: CallFacts) -> str | None:
    """OpenLLMetry's JavaScript writes the Responses API's input as one JSON text, without instructions and calls."""
    return "call" if is_responses_api_id(facts.response_id) else None


def _joins_tool_calls(facts: CallFacts) -> str | None:
    """OpenInference's JavaScript joins the tool calls of a stream: `look` and `now` are `looknow` with `{"x": 1}{}`."""
    calls = [call for choice in facts.choices or () for call in choice.message.tool_calls]
    return "answer" if any(_is_joined(call.arguments) for call in calls) else None


def _is_joined(arguments: str) -> bool:
    """Whether arguments have a second JSON object after the first."""
    try:
        _, end = _JSON.raw_decode(arguments.lstrip())
    except ValueError:
        return False
    return arguments.lstrip()[end:].lstrip().startswith("{")


def _keeps_unsent_text(facts: CallFacts) -> str | None:
    """With the Responses API (call ids begin with `fc_`), agno records text beside tool calls, but does not send it."""
    prompt = facts.input_messages or ()
    is_of_responses = any((message.tool_call_id or "").startswith("fc_") for message in prompt)
    rewritten = any(message.role == "assistant" and message.tool_calls and message.content for message in prompt)
    return "prompt" if is_of_responses and rewritten else None


def _loses_functions(facts: CallFacts) -> str | None:
    """OpenLLMetry loses the calls and results of the older `functions`, and refusals in prompts.

    What is left is an empty assistant message.
    """
    says_nothing = any(one.role == "assistant" and one.is_unknown for one in facts.input_messages or ())
    # Where art-otel is set up in the app, its hook has recorded the request itself.
    return "prompt" if says_nothing and "art" not in facts.conventions else None


def _keeps_reasoning_apart(facts: CallFacts) -> str | None:
    """pydantic-ai sends the reasoning of earlier answers as `<think>` in the text, but records it beside the text.

    From 1.60 on it sends the reasoning in a field of Chat Completions, if it came in such a field. The Responses API
    has no field for models other than OpenAI's.
    """
    prompt = facts.input_messages or ()
    is_there = any(message.role == "assistant" and message.reasoning is not None for message in prompt)
    return "prompt" if is_there else None


def _may_keep_tags_apart(facts: CallFacts) -> str | None:
    """pydantic-ai from 1.60 on still sends `<think>` in the Responses API, and in Chat if it came as `<think>`.

    In Chat such reasoning is known by its place after a text (a field has no place), or by newlines beside the tags.
    """
    if is_responses_api_id(facts.response_id):
        return _keeps_reasoning_apart(facts)
    if any(choice.message.reasoning is not None and choice.message.parts is not None for choice in facts.choices or ()):
        return "call"  # it is lost which of the texts came before the reasoning
    prompt = [one for one in facts.input_messages or () if one.role == "assistant" and one.reasoning is not None]
    return "prompt" if any(map(_may_have_been_tagged, prompt)) else None


def _may_have_been_tagged(message: Message) -> bool:
    reasoning, text = message.reasoning or "", message.content or ""
    return message.parts is not None or reasoning != reasoning.strip("\n") or text.startswith("\n")


def _sends_blank_text(facts: CallFacts) -> str | None:
    """Strands sends an empty answer as the text `[blank text]`, but records it as empty."""
    prompt = facts.input_messages or ()
    return "prompt" if any(one.role == "assistant" and one.says_nothing for one in prompt) else None


def _assistant_messages(facts: CallFacts) -> list[Message]:
    prompt = [message for message in facts.input_messages or () if message.role == "assistant"]
    return [*prompt, *(choice.message for choice in facts.choices or ())]


_JUDGES: Final[dict[str, _FindLoss]] = {
    "@arizeai/openinference-instrumentation-openai": _joins_tool_calls,
    "@traceloop/instrumentation-openai": _loses_responses,
    "com.anthropic.sdk.python": _loses_definitions,
    "gcp.vertex.agent": _shows_thoughts_as_text,
    "litellm": _loses_items_of_input,
    "livekit-agents": _loses_parameters,
    "lmnr.tracer": _flattens_without_items,
    "openinference.instrumentation.agno": _keeps_unsent_text,
    "openinference.instrumentation.bedrock": _loses_answers_of_tools,
    "openinference.instrumentation.crewai": _loses_tool_calls,
    "openinference.instrumentation.haystack": _loses_tool_calls,
    "openinference.instrumentation.langchain": _loses_tool_calls,
    "openinference.instrumentation.llama_index": _loses_tool_calls,
    "openlit.instrumentation.openai": _loses_tool_calls,
    "opentelemetry.instrumentation.bedrock": _loses_arguments,
    "opentelemetry.instrumentation.crewai": _loses_tool_calls,
    "opentelemetry.instrumentation.haystack": _loses_tool_calls,
    "opentelemetry.instrumentation.langchain": _loses_tool_calls,
    "opentelemetry.instrumentation.llamaindex": _loses_tool_calls,
    "opentelemetry.instrumentation.openai.v1": _loses_functions,
    "opentelemetry.instrumentation.botocore.bedrock-runtime": _loses_text_of_answers,
    "opentelemetry.util.genai.handler": _loses_items_of_history,
    "semantic_kernel.utils.telemetry.model_diagnostics.decorators": _loses_text,
    "strands.telemetry.tracer": _sends_blank_text,
}

_VersionNumbers: TypeAlias = tuple[int, ...]

_VERSIONS: Final[dict[str, tuple[tuple[_VersionNumbers, _VersionNumbers, _FindLoss], ...]]] = {
    "litellm": (((0,), values.LATEST, _loses_response_instructions),),  # its callback, which has them, names no version
    "openinference.instrumentation.google_genai": (((0,), (1, 4), _joins_streams),),
    "opentelemetry.instrumentation.genai.langchain": (((0,), (1, 3), _loses_text_of_answers),),
    "opentelemetry.instrumentation.google_genai": (
        ((0,), (1, 3), _shows_texts),
        ((1, 3), values.LATEST, _shows_unfinished),
    ),
    "opentelemetry.instrumentation.langchain": (((0,), (0, 46), _loses_text_of_prompts),),
    "opentelemetry.instrumentation.openai.v1": (((0,), (0, 55), _loses_items),),
    "opentelemetry.util.genai.handler": (((0,), (1, 3), _shows_texts),),
    "pydantic-ai": (
        ((0, 8), (1, 60), _keeps_reasoning_apart),
        ((1, 60), values.LATEST, _may_keep_tags_apart),
    ),
}
"""Recorders with doubted versions: the first doubted one, the first repaired one, and the function for these."""

_BEFORE: Final[dict[str, tuple[str, _FindLoss]]] = {
    "openlit.instrumentation.anthropic": ("gen_ai.tool.call.arguments", _loses_further_tool_calls),
}
"""Recorders that write no version: an attribute that only repaired versions write, and the function for the others."""

_JUDGED_SCOPES: Final = frozenset((*_JUDGES, *_VERSIONS, *_BEFORE, _NEMO_RELAY_SCOPE))
