"""Operations: what a request was for, in GenAI's words.

Sources: `{operation} {model}` of GenAI, `{vendor}.{operation}` of OpenLLMetry and AgentOps, the methods after which
OpenInference names its spans. Invariant: words that nobody defined stay as they were.
"""

from typing import Final

TEXT_COMPLETION: Final = "text_completion"

_WORDS: Final = {
    "completion": TEXT_COMPLETION,
    "embedding": "embeddings",
    "acompletion": "chat",
    "atext_completion": TEXT_COMPLETION,
    "aembedding": "embeddings",
    "responses": "chat",
    "aresponses": "chat",
    "anthropic_messages": "chat",
    "agenerate_content": "generate_content",
}
"""Those of OpenLLMetry, then the methods of LiteLLM, of which the async ones begin with an `a`."""

_NAMES: Final = {
    "chat": "chat",
    "chatcompletion": "chat",
    "chat.completion": "chat",
    "response": "chat",
    "messages": "chat",
    "generate_content": "generate_content",
    "completion": TEXT_COMPLETION,
    "text_completion": TEXT_COMPLETION,
    "embedding": "embeddings",
    "embeddings": "embeddings",
    "createembeddings": "embeddings",
    "rerank": "rerank",
    "invoke_agent": "invoke_agent",
    "execute_tool": "execute_tool",
}


def operation(word: str) -> str:
    """Translate the operation that an attribute names to GenAI's word."""
    return _WORDS.get(word.lower(), word)


def operation_of_name(span_name: str) -> str | None:
    """The operation in a span's name; None for a name that no instrumentor gives."""
    first, _, _ = span_name.partition(" ")
    *_, last_but_one, last = ("", *first.lower().split("."))
    return _NAMES.get(f"{last_but_one}.{last}") or _NAMES.get(last)
