"""Recorder losses: which recorders are known to lose or rewrite content, and in which shape of a call they do.

Invariant: a recorder is judged only with what its source or a recording beside the model's server shows, and where a
call has the shape that it spoils. A version that is mended is not judged. The docs say which instrumentor to use
instead (docs/spec/recorders.md).

To add one: a function that says which field of a call is spoiled, and its line in `_JUDGES`, or in `_VERSIONS` if a
later version is mended.
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
"""Says which field of a call (see `calls.Gap`) its recorder lost or rewrote; None where it did not."""


def find_losses(span: Span, families: NameFamilies, facts: CallFacts) -> tuple[Gap, ...]:
    """The gaps of a call that its recorder's scope shows, and the names of the attributes that it wrote."""
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
"""The scope of its spans, unless it is configured. Its export of GenAI's attributes has no other sign."""


def _has_nemo_relay_names(families: NameFamilies) -> bool:
    return bool(families.starting(nemo_relay.PREFIX))


def _is_of_rust(span: Span) -> bool:
    return span.resource.attributes.get("telemetry.sdk.language") == "rust"


def _keeps_last_turn(facts: CallFacts) -> str | None:
    """NeMo Relay keeps of a prompt its system messages and what begins with the last message of the user.

    No sign tells a prompt that lost its beginning from one that has no more.
    """
    asked = [message.role for message in facts.input_messages or ()].count("user")
    return "prompt" if facts.input_messages is not None and asked <= 1 else None


def is_error_unknown(scope: str, response_id: str | None) -> bool:
    """Whether a finish reason `error` means nothing: genai-langchain writes it for all answers of the Responses API."""
    return scope == "opentelemetry.instrumentation.genai.langchain" and is_responses_api_id(response_id)


def _loses_text_of_answers(facts: CallFacts) -> str | None:
    """Botocore writes the tool calls of an answer or its text, never both; genai-langchain before 1.3 does so, too."""
    answers = [choice.message for choice in facts.choices or ()]
    return "answer" if any(map(_is_tool_calls_only, answers)) else None


def _loses_text(facts: CallFacts) -> str | None:
    """Semantic Kernel does the same, in prompts too."""
    return "call" if any(map(_is_tool_calls_only, _assistant_messages(facts))) else None


def _loses_text_of_prompts(facts: CallFacts) -> str | None:
    """OpenLLMetry's LangChain left the text beside tool calls out of prompts before 0.46."""
    prompt = [one for one in facts.input_messages or () if one.role == "assistant"]
    return "prompt" if any(map(_is_tool_calls_only, prompt)) else None


def _loses_tool_calls(facts: CallFacts) -> str | None:
    """Instrumentors of frameworks may lose the tool calls of a prompt, of which the tools' answers are left."""
    if facts.previous_response_id is not None:
        return None
    called = True
    for message in facts.input_messages or ():
        if message.role != "tool":
            called = message.role != "assistant" or bool(message.tool_calls)
        elif not called and message.tool_call_id is not None:
            return "prompt"
    return None


def _loses_answers_of_tools(facts: CallFacts) -> str | None:
    """OpenInference's Bedrock kept the last of several answers of tools; the server asks for all."""
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
    """OpenLLMetry's Bedrock gives `{}` for the arguments in a stream of InvokeModel, of which it records no tools.

    A whole answer of InvokeModel looks the same, so a tool that takes no arguments is doubted there, too.
    """
    calls = [call for choice in facts.choices or () for call in choice.message.tool_calls]
    is_lost = not facts.tools and any(canonical_arguments(call.arguments) == "{}" for call in calls)
    return "answer" if is_lost else None


def _is_tool_calls_only(message: Message) -> bool:
    return bool(message.tool_calls) and not message.content


def _shows_thoughts_as_text(facts: CallFacts) -> str | None:
    """ADK writes thoughts as text parts before the text, and says only by the usage that there were any.

    Its own request and response, where they are recorded, tell them apart.
    """
    if "google_adk" in facts.conventions:
        return None
    if facts.stream and facts.usage is not None and facts.usage.reasoning_tokens:
        return "answer"  # whose chunks are thoughts, then text
    answers = [choice.message for choice in facts.choices or () if choice.message.reasoning is None]
    return _has_thoughts_in_texts(facts, answers)


def _has_thoughts_in_texts(facts: CallFacts, answers: Iterable[Message]) -> str | None:
    """Whether a message was recorded as several texts, or a text of these answers may be thoughts that were counted."""
    is_counted = facts.usage is not None and bool(facts.usage.reasoning_tokens)
    rewritten = any(
        message.reasoning is None and message.parts is not None and message.parts.count('"type":"text"') > 1
        for message in _assistant_messages(facts)
    ) or (is_counted and any(answer.tool_calls and answer.content for answer in answers))
    return "call" if rewritten else None


def _shows_texts(facts: CallFacts) -> str | None:
    """OTel's google-genai wrote thoughts as texts before 1.3, and says of none that it is one.

    Beside a tool call one text may be the thought alone, where tokens of thoughts were counted.
    """
    if facts.operation_name != "generate_content":
        return None
    return _has_thoughts_in_texts(facts, [choice.message for choice in facts.choices or ()])


def _shows_unfinished(facts: CallFacts) -> str | None:
    """OTel's google-genai writes an empty answer with `stop` for an interaction that goes on in the background."""
    messages = [choice.message for choice in facts.choices or ()]
    is_empty = not any(one.content or one.tool_calls or one.reasoning or one.parts for one in messages)
    return "answer" if messages and is_empty and facts.usage is None else None


def _joins_streams(facts: CallFacts) -> str | None:
    """OpenInference's google-genai made one part of all parts of a stream: with one tool call, texts as thoughts."""
    answers = [choice.message for choice in facts.choices or ()] if facts.stream else []
    return "answer" if any(one.tool_calls or one.reasoning is not None for one in answers) else None


def _loses_further_tool_calls(facts: CallFacts) -> str | None:
    """The openlit SDK kept the first tool call of Anthropic's answers before 1.45."""
    return "answer" if any(choice.message.tool_calls for choice in facts.choices or ()) else None


def _loses_items(facts: CallFacts) -> str | None:
    """OpenLLMetry left function calls and their answers out of the Responses API's prompts before 0.55."""
    return "prompt" if facts.tools and is_responses_api_id(facts.response_id) else None


def _loses_items_of_input(facts: CallFacts) -> str | None:
    """LiteLLM's callback writes all items of the Responses API's prompts as messages.

    One without a role or content (reasoning, a function call, its output) is a user's empty message.
    """
    is_lost = any(one.role == "user" and one.content == "" for one in facts.input_messages or ())
    return "prompt" if is_lost and is_responses_api_id(facts.response_id) else None


def _loses_response_instructions(facts: CallFacts) -> str | None:
    """LiteLLM's newer OTel leaves the instructions out of the Responses API's prompts."""
    prompt = facts.input_messages
    has_instructions = prompt is not None and any(one.role in ("system", "developer") for one in prompt[:1])
    return None if has_instructions or not is_responses_api_id(facts.response_id) else "prompt"


def _loses_items_of_history(facts: CallFacts) -> str | None:
    """OTel's genai-openai left function calls and their outputs out of the Responses API's prompts before 1.2.

    Only then is this its scope, whose version is another package's. A prompt without an answer may be a first one.
    """
    has_history = any(one.role == "assistant" for one in facts.input_messages or ())
    return "prompt" if has_history and is_responses_api_id(facts.response_id) else None


def _flattens_without_items(facts: CallFacts) -> str | None:
    """Laminar leaves the same out where it flattens a prompt; beside that it writes the items as they were sent."""
    return _loses_items_of_history(facts) if facts.prompt_known == "flattened attributes" else None


def _loses_parameters(facts: CallFacts) -> str | None:
    """LiveKit writes the definitions of functions without their parameters, which GenAI's conventions leave open."""
    return "tools" if facts.tools and not any(map(_has_parameters, facts.tools)) else None


def _loses_definitions(facts: CallFacts) -> str | None:
    """Anthropic's client writes no definitions of tools. They are missing where the model calls tools, or did so."""
    messages = [*(facts.input_messages or ()), *(choice.message for choice in facts.choices or ())]
    has_tools = any(message.tool_calls or message.role == "tool" for message in messages)
    return "tools" if has_tools and facts.tools is None else None


def _has_parameters(tool: Value) -> bool:
    fields = values.mapping(tool) or {}
    return fields.get("type") != "function" or "parameters" in (values.mapping(fields.get("function")) or {})


def _loses_responses(facts: CallFacts) -> str | None:
    """OpenLLMetry's JavaScript writes the Responses API's input as one text of JSON, no instructions and no calls."""
    return "call" if is_responses_api_id(facts.response_id) else None


def _joins_tool_calls(facts: CallFacts) -> str | None:
    """OpenInference's JavaScript joins the tool calls of a stream: `look` and `now` are `looknow` with `{"x": 1}{}`."""
    calls = [call for choice in facts.choices or () for call in choice.message.tool_calls]
    return "answer" if any(_is_joined(call.arguments) for call in calls) else None


def _is_joined(arguments: str) -> bool:
    """Whether arguments are more than one JSON object."""
    try:
        _, end = _JSON.raw_decode(arguments.lstrip())
    except ValueError:
        return False
    return arguments.lstrip()[end:].lstrip().startswith("{")


def _keeps_unsent_text(facts: CallFacts) -> str | None:
    """In the Responses API (there, calls are `fc_…`), agno does not send the text beside calls, but records it."""
    prompt = facts.input_messages or ()
    is_of_responses = any((message.tool_call_id or "").startswith("fc_") for message in prompt)
    rewritten = any(message.role == "assistant" and message.tool_calls and message.content for message in prompt)
    return "prompt" if is_of_responses and rewritten else None


def _loses_functions(facts: CallFacts) -> str | None:
    """OpenLLMetry writes neither the calls nor the results of the older `functions`, nor a refusal in a prompt.

    What is left is an assistant's message that says nothing. In a traced app, the request itself tells what it said.
    """
    says_nothing = any(one.role == "assistant" and one.is_unknown for one in facts.input_messages or ())
    return "prompt" if says_nothing and "art" not in facts.conventions else None


def _keeps_reasoning_apart(facts: CallFacts) -> str | None:
    """pydantic-ai sends the reasoning of earlier answers as `<think>` in the text, and records it beside the text.

    Chat Completions have a field for it from 1.60 on, in which it goes back where it came in one; the Responses API has
    none where the model is not OpenAI's.
    """
    prompt = facts.input_messages or ()
    is_there = any(message.role == "assistant" and message.reasoning is not None for message in prompt)
    return "prompt" if is_there else None


def _may_keep_tags_apart(facts: CallFacts) -> str | None:
    """From 1.60 on it does so in the Responses API, and in Chat with reasoning that it found as `<think>` in the text.

    That is reasoning behind a text, where Chat's field cannot be, or has the newlines that models write at tags.
    """
    if is_responses_api_id(facts.response_id):
        return _keeps_reasoning_apart(facts)
    if any(choice.message.reasoning is not None and choice.message.parts is not None for choice in facts.choices or ()):
        return "call"  # which text was said before the reasoning is lost
    prompt = [one for one in facts.input_messages or () if one.role == "assistant" and one.reasoning is not None]
    return "prompt" if any(map(_may_have_been_tagged, prompt)) else None


def _may_have_been_tagged(message: Message) -> bool:
    reasoning, text = message.reasoning or "", message.content or ""
    return message.parts is not None or reasoning != reasoning.strip("\n") or text.startswith("\n")


def _sends_blank_text(facts: CallFacts) -> str | None:
    """Strands sends an answer that said nothing as the text `[blank text]`, and records it as it was."""
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
"""Recorders of which some versions are doubted: the first, the first that is mended, and how they are judged."""

_BEFORE: Final[dict[str, tuple[str, _FindLoss]]] = {
    "openlit.instrumentation.anthropic": ("gen_ai.tool.call.arguments", _loses_further_tool_calls),
}
"""Recorders that name no version: an attribute that came with the mended one, and how those without it are judged."""

_JUDGED_SCOPES: Final = frozenset((*_JUDGES, *_VERSIONS, *_BEFORE, _NEMO_RELAY_SCOPE))
