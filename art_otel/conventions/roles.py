"""Roles: what each span represents: a call (inference), an agent, a tool, …, or something else.

    gen_ai.operation.name = chat          inference        only these spans become calls
    fetch of a stored response            retrieval
    a server's span of usage, latency     other
    our span of a rollout or step         other            even if LiteLLM wrote a call onto it

Invariant: a span is "inference" only if it asked a model for a completion. An SDK at its attribute limit drops the
oldest attributes, which name the role; then the role is inferred from the remaining attributes.

Roles are computed from the families of a span's attribute names (`attribute_names`), once for all spans of an
instrumentor that have the same names.
"""

import re
from collections.abc import Iterable
from itertools import chain
from typing import Final

from art_otel.attributes import REWARD, REWARD_SPAN_PREFIX, ROLLOUT_NAME, STEP_INDEX, UNTRAINED
from art_otel.conventions import values
from art_otel.conventions.attribute_names import NameFamilies, families_of
from art_otel.conventions.attributes import AttributeReader
from art_otel.conventions.dialects import DIALECTS, genai, litellm, openinference, openllmetry, role_readers
from art_otel.conventions.dialects.art import ART_OTEL
from art_otel.conventions.dialects.dialect import Role
from art_otel.conventions.dialects.openinference import OUTPUT_VALUE
from art_otel.conventions.tool_spans import TOOL_NAME
from art_otel.conventions.vocabulary import LIVE_OPERATIONS, operation, operation_of_name
from art_otel.spans import Attributes, Span

ANTHROPIC_SDK: Final = "com.anthropic.sdk.python"
"""The scope of Anthropic's client, which traces itself."""

_AGENT_SPAN_PREFIX: Final = "invoke_agent "
_EVALUATION_PREFIX: Final = "gen_ai.evaluation."

_OPERATIONS: Final[dict[str, Role]] = {
    "chat": "inference",
    "text_completion": "inference",
    "generate_content": "inference",
    "embeddings": "embeddings",
    **dict.fromkeys(LIVE_OPERATIONS, "inference"),
    "fetch_response": "retrieval",
    "invoke_agent": "agent",
    "execute_tool": "tool",
    **dict.fromkeys(("create_agent", "invoke_workflow", "plan", "user_input", "user_speech"), "other"),
    **dict.fromkeys(("retrieval", "rerank", "agent_step"), "other"),
    **dict.fromkeys(("create_memory", "search_memory", "update_memory", "upsert_memory", "delete_memory"), "other"),
    **dict.fromkeys(("create_memory_store", "delete_memory_store"), "other"),
}
"""GenAI's operations (v0.1.0 and later drafts); `agent_step` is the AI SDK's span around a call. Calls of a workflow or
a plan have spans of their own, so these are `other`. For any other word the other attributes decide: OpenLLMetry's
LangChain 0.53 has the operation `llm_request` beside the type `chat`."""

_OPENINFERENCE_KINDS: Final[dict[str, Role]] = {
    "LLM": "inference",
    "EMBEDDING": "embeddings",
    "AGENT": "agent",
    "TOOL": "tool",
}
_UNKNOWN_KIND: Final = "UNKNOWN"
"""The kind that Phoenix writes on every span without a kind."""

_TRACELOOP_KINDS: Final[dict[str, Role]] = {"agent": "agent", "tool": "tool"}
_MERGED_TOOLS: Final = "(merged tools)"
"""The tool name of a span that Google's ADK makes beside the spans of several tools: it is no execution."""

_CONTENT_PREFIXES: Final = (
    genai.INPUT_MESSAGES,
    genai.OUTPUT_MESSAGES,
    "gen_ai.prompt.",
    "gen_ai.completion.",
    openinference.INPUT_VALUE,
    openinference.OUTPUT_VALUE,
    "llm.input_messages.",
    "llm.output_messages.",
)
_PROMPT: Final = (genai.INPUT_MESSAGES, "gen_ai.prompt.")
_ANSWER: Final = (genai.OUTPUT_MESSAGES, "gen_ai.completion.")
_COMPLETION_NAMES: Final = re.compile(
    r"gen_ai\.(prompt|completion)\.\d|gen_ai\.(input|output)\.messages$|llm\.(input|output)_messages\.\d"
    r"|(gen_ai|llm)\.usage\.|gen_ai\.response\.|llm\.token_count\."
)
"""Attributes of a completion: written last, so that they are still there when those that name the role were dropped."""

_INSTRUMENTORS: Final = re.compile(
    r"(opentelemetry|openinference)\.instrumentation\.(genai\.)?"
    r"(openai(?!_agents)|anthropic|bedrock|cohere|google_?gen|groq|litellm|mistralai|ollama|together|vertexai)"
)
"""Scopes whose spans are requests to a model."""

_SELF_TRACING: Final = frozenset({ANTHROPIC_SDK})
"""Scopes of clients that trace themselves if there is a tracer provider, by default without content. Such a call would
count twice if another instrumentor records it in a span that is not around the client's (LangChain's)."""

_MAY_BE_CLIENT: Final = ("client", "unspecified")
"""Span kinds of a call: SDKs set `client`, but some stores (Phoenix, MLflow) lose the kind."""

_ROLE_PREFIXES: Final = (
    "gen_ai.",
    "llm.",
    "openinference.",
    "traceloop.",
    *chain.from_iterable(dialect.prefixes for dialect in DIALECTS),
)
"""Prefixes of the attributes that name a role, or from which a role can be inferred."""

AGENT_NAME: Final = "gen_ai.agent.name"

_OURS: Final = frozenset({ROLLOUT_NAME, STEP_INDEX, UNTRAINED})
"""Attributes of our own spans that enclose calls: each has at least one of them."""


def role_of(span: Span, families: NameFamilies | None = None) -> Role:
    """The role of a span. `families` are those of its attribute names, if the caller has them already."""
    families = families_of(span.attributes) if families is None else families
    # Fast path: most spans of an app have no attribute that names a role. Calls mostly name their operation.
    if genai.OPERATION_NAME not in families and _is_unmarked(span, families):
        return "other"
    role = _named_role(span, families)
    if role == "tool" and span.attributes.get(TOOL_NAME) == _MERGED_TOOLS:
        return "other"
    if role != "inference":
        return role
    if _is_ours(span) or prepares(span.attributes, families) or span.name.endswith(_COUNT):
        return "other"
    if _is_fetch(span):
        return "retrieval"
    if span.scope.name in _SELF_TRACING and _is_uncaptured(span, families):
        return "uncaptured"
    if span.name == litellm.RAW_SPAN and not litellm.has_answer(span.attributes, families):
        return "inference" if families.starting(_CONTENT_PREFIXES) else "other"
    return "inference"


def has_call_attributes(span: Span) -> bool:
    """Whether an instrumentor wrote the attributes of a call onto our own span of a rollout or step."""
    if not _is_ours(span):
        return False
    families = families_of(span.attributes)
    return not _is_unmarked(span, families) and _named_role(span, families) == "inference"


def _is_ours(span: Span) -> bool:
    """Whether the span is ours and of a rollout, a step or an untrained part.

    Our hook writes spans of calls, too. Their kind is "client", and such a call may be marked untrained itself.
    """
    return span.scope.name == ART_OTEL and span.kind != "client" and not _OURS.isdisjoint(span.attributes)


def _is_unmarked(span: Span, families: NameFamilies) -> bool:
    """Whether nothing on the span can name a role. That is so for most spans of an application."""
    if span.dropped_attributes_count or span.name.startswith(_AGENT_SPAN_PREFIX):
        return False
    return not families.starting(_ROLE_PREFIXES)


def may_have_role(names: Iterable[str]) -> bool:
    """Whether a span with these attributes may have any role but `other`."""
    for name in names:  # noqa: SIM110 # any() costs twice as much, and this is asked of every span
        if name.startswith(_ROLE_PREFIXES):
            return True
    return False


def may_be_call(scope_name: str, span_name: str, attributes: Attributes) -> bool:
    """Whether a span that has just started will be a call: instrumentors name it before they set its role."""
    role = _operation_role(attributes)
    if role is None and _INSTRUMENTORS.match(scope_name):  # not for an app's own spans, whose kind may be around calls
        kind = values.text(attributes.get(openinference.SPAN_KIND)) or ""
        role = _OPENINFERENCE_KINDS.get(kind.upper()) or _OPERATIONS.get(operation_of_name(span_name) or "")
    return role == "inference" and not span_name.endswith(_COUNT)


def names_model(span: Span) -> bool:
    """Whether a span names a request's model. An app's own span may do so and still lack what makes it a call."""
    return genai.REQUEST_MODEL in span.attributes


def agent_name(span: Span) -> str | None:
    """The name of the agent on the span, or None."""
    attributes = span.attributes
    named = values.text(attributes.get(AGENT_NAME)) or values.text(attributes.get(openinference.AGENT_NAME))
    if named is None and span.name.startswith(_AGENT_SPAN_PREFIX):
        named = span.name.removeprefix(_AGENT_SPAN_PREFIX).strip()
    return named or None


def _named_role(span: Span, families: NameFamilies) -> Role:
    """The role that the span's conventions name, else the role that its other attributes show."""
    return _stated_role(span, families) or _inferred_role(span, families)


def _stated_role(span: Span, families: NameFamilies) -> Role | None:
    """The role that the span's conventions name; the first convention that names one decides."""
    for role in families.memo(role_readers):
        if (named_role := role(span)) is not None:
            return named_role
    if (named_role := _operation_role(span.attributes)) is not None:
        return named_role
    reader = AttributeReader(span.attributes)
    kind = (reader.text(openinference.SPAN_KIND) or _UNKNOWN_KIND).upper()
    if kind != _UNKNOWN_KIND:
        return _OPENINFERENCE_KINDS.get(kind, "other")
    if request_type := reader.text(openllmetry.REQUEST_TYPE, genai.REQUEST_TYPE):
        return _OPERATIONS.get(operation(request_type.lower()), "other")
    if kind := reader.text("traceloop.span.kind"):
        return _TRACELOOP_KINDS.get(kind.lower(), "other")
    return "agent" if span.name.startswith(_AGENT_SPAN_PREFIX) else None


def _operation_role(attributes: Attributes) -> Role | None:
    named = values.text(attributes.get(genai.OPERATION_NAME))
    return None if named is None else _OPERATIONS.get(operation(named.lower()))


def _inferred_role(span: Span, families: NameFamilies) -> Role:
    """The role of a span whose conventions name none, by its span name and its remaining attributes."""
    reader = AttributeReader(span.attributes)
    names_operation = genai.OPERATION_NAME in span.attributes
    if _shows_messages(span, families) and not (names_operation and span.kind not in _MAY_BE_CLIENT):
        return "inference"
    if names_operation:
        return "other"
    operation_name = operation_of_name(span.name)
    is_instrumentor = _INSTRUMENTORS.match(span.scope.name) is not None
    if span.kind not in _MAY_BE_CLIENT and not is_instrumentor and span.name != litellm.RAW_SPAN:
        return "other"
    if span.name == litellm.RAW_SPAN and litellm.has_answer(span.attributes, families):
        return "inference"
    has_request = reader.text(genai.REQUEST_MODEL, *genai.PROVIDERS) is not None
    names_agent = operation_name is None and reader.text(AGENT_NAME, openinference.AGENT_NAME) is not None
    has_answer = not names_agent and families.memo(_names_completion)
    lost_names = operation_name is not None and is_instrumentor and span.dropped_attributes_count > 0
    if not (has_request or has_answer or lost_names) or _is_evaluation(span, families):
        return "other"
    return "inference" if operation_name is None else _OPERATIONS.get(operation_name, "other")


def _names_completion(families: NameFamilies) -> bool:
    return any(map(_COMPLETION_NAMES.match, families.starting("")))


def _shows_messages(span: Span, families: NameFamilies) -> bool:
    """Whether a span has a model, a prompt and an answer (or an error), and is no agent's span."""
    if genai.REQUEST_MODEL not in families or families.among((AGENT_NAME, openinference.AGENT_NAME)):
        return False
    is_answered = span.status == "error" or bool(families.starting(_ANSWER))
    return bool(families.starting(_PROMPT)) and is_answered and not _is_evaluation(span, families)


def may_be_run(span: Span, families: NameFamilies) -> bool:
    """Whether an app's own span counts as a call only for its messages. If it encloses calls, it is their run."""
    if span.kind in _MAY_BE_CLIENT or _INSTRUMENTORS.match(span.scope.name):
        return False
    return _stated_role(span, families) is None and _shows_messages(span, families)


def _is_evaluation(span: Span, families: NameFamilies) -> bool:
    """Whether the span carries a score for a response: it names the response's id, but is not its request."""
    if span.name.startswith(REWARD_SPAN_PREFIX) and REWARD in span.attributes:
        return True
    return bool(families.starting(_EVALUATION_PREFIX))


def _is_uncaptured(span: Span, families: NameFamilies) -> bool:
    """Whether a self-tracing client made the span alone: in a trace of its own, and without content."""
    if span.parent_span_id is not None or span.events:
        return False
    return not families.starting((*_CONTENT_PREFIXES, "art."))


def _is_fetch(span: Span) -> bool:
    """Whether the span is a fetch of a stored response: instrumentors record it as a call without model or input."""
    if span.name.endswith(_INTERACTION_FETCH):
        return True
    attributes = span.attributes
    if genai.REQUEST_MODEL not in attributes and attributes.get(genai.INPUT_MESSAGES) in ("[]", [], ()):
        return True
    body = attributes.get(openinference.INPUT_VALUE)
    return isinstance(body, str) and body.strip() == "{}"


_COUNT: Final = "messages.count_tokens"
"""The end of span names of OpenInference for requests to Anthropic that only count a prompt's tokens."""

_INTERACTION_FETCH: Final = "InteractionsResource.get"
"""The end of span names of OpenInference for fetches of Gemini's interactions."""

_REQUEST: Final = '{"messages":'
"""The beginning of a request body. No response begins like this."""

_ANSWERED: Final = ("llm.output_messages.", "llm.token_count.")


def prepares(attributes: Attributes, families: NameFamilies) -> bool:
    """Whether a span only prepares a request, which is its output and which another span sends."""
    output = attributes.get(OUTPUT_VALUE)
    return isinstance(output, str) and output.startswith(_REQUEST) and not families.starting(_ANSWERED)
