"""Lossy: recorders that are known to lose or rewrite content without a sign, by their scope.

Invariant: a recorder stands here only with what its source or a recording beside the model's server shows, and is
doubted only where a call has the shape that it spoils. The docs say which instrumentor to use instead.
"""

from collections.abc import Callable
from typing import Final

from art_otel.calls import CONTENT_LOST, CONTENT_REWRITTEN, Message, canonical_arguments
from art_otel.conventions.bodies.finish import is_responses_api_id
from art_otel.conventions.facts import CallFacts


def lossy_doubts(scope: str, facts: CallFacts) -> tuple[str, ...]:
    """The doubts about a call that its recorder's scope gives."""
    judge = _JUDGES.get(scope)
    return () if judge is None else judge(facts)


def is_error_unknown(scope: str, response_id: str | None) -> bool:
    """Whether a finish reason `error` says nothing: genai-langchain has none of the Responses API's."""
    return scope == "opentelemetry.instrumentation.genai.langchain" and is_responses_api_id(response_id)


def _loses_text_of_answers(facts: CallFacts) -> tuple[str, ...]:
    """Botocore writes the tool calls of an answer or its text, never both."""
    answers = [choice.message for choice in facts.choices or ()]
    return (CONTENT_LOST,) if any(map(_is_tool_calls_only, answers)) else ()


def _loses_text(facts: CallFacts) -> tuple[str, ...]:
    """Semantic Kernel does the same, in prompts too."""
    return (CONTENT_LOST,) if any(map(_is_tool_calls_only, _assistant_messages(facts))) else ()


def _loses_tool_calls(facts: CallFacts) -> tuple[str, ...]:
    """Instrumentors of frameworks may lose the tool calls of a prompt, of which the tools' answers are left."""
    if facts.previous_response_id is not None:
        return ()
    called = True
    for message in facts.input_messages or ():
        if message.role != "tool":
            called = message.role != "assistant" or bool(message.tool_calls)
        elif not called and message.tool_call_id is not None:
            return (CONTENT_LOST,)
    return ()


def _loses_arguments(facts: CallFacts) -> tuple[str, ...]:
    """OpenLLMetry's Bedrock gives `{}` for the arguments in a stream of InvokeModel, of which it records no tools.

    A whole answer of InvokeModel looks the same, so a tool that takes no arguments is doubted there, too.
    """
    calls = [call for choice in facts.choices or () for call in choice.message.tool_calls]
    is_lost = not facts.tools and any(canonical_arguments(call.arguments) == "{}" for call in calls)
    return (CONTENT_LOST,) if is_lost else ()


def _is_tool_calls_only(message: Message) -> bool:
    return bool(message.tool_calls) and not message.content


def _shows_thoughts_as_text(facts: CallFacts) -> tuple[str, ...]:
    """ADK writes thoughts as text parts before the text, and says only by the usage that there were any.

    Its own request and response, where they are recorded, tell them apart.
    """
    if "google_adk" in facts.conventions:
        return ()
    is_counted = facts.usage is not None and bool(facts.usage.reasoning_tokens)
    rewritten = any(message.reasoning is None and _has_texts(message) for message in _assistant_messages(facts)) or (
        is_counted
        and any(
            choice.message.tool_calls and choice.message.content and choice.message.reasoning is None
            for choice in facts.choices or ()
        )
    )
    return (CONTENT_REWRITTEN,) if rewritten else ()


def _has_texts(message: Message) -> bool:
    """Whether the message was recorded as several texts."""
    return message.parts is not None and message.parts.count('"type":"text"') > 1


def _assistant_messages(facts: CallFacts) -> list[Message]:
    prompt = [message for message in facts.input_messages or () if message.role == "assistant"]
    return [*prompt, *(choice.message for choice in facts.choices or ())]


_JUDGES: Final[dict[str, Callable[[CallFacts], tuple[str, ...]]]] = {
    "gcp.vertex.agent": _shows_thoughts_as_text,
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
    "opentelemetry.instrumentation.botocore.bedrock-runtime": _loses_text_of_answers,
    "semantic_kernel.utils.telemetry.model_diagnostics.decorators": _loses_text,
}
