"""Parsing requests: what the server's parsers are told of a request, as Chat Completions has it.

Invariant: they get its tools and settings in every dialect as vLLM makes them itself, and no messages.
"""

from collections.abc import Mapping

from art_otel.exchange import messages, responses
from art_otel.exchange.answer_shapes import AnswerFields
from art_otel.exchange.assembly import WireDialect
from art_otel.spans import Value


def parsing_request(request: Mapping[str, Value], dialect: WireDialect) -> AnswerFields:
    """The chat request that tells the server's parsers what they need: tools and settings, but no messages."""
    if dialect == "chat":
        left = {"messages", "stream", "stream_options", "n", "prompt_logprobs", "stop"}
        made = {name: value for name, value in request.items() if name not in left}
    else:
        made = messages.chat_settings(request) if dialect == "messages" else responses.chat_settings(request)
        made |= {
            name: request[name]
            for name in ("model", "chat_template_kwargs", "include_reasoning")
            if request.get(name) is not None
        }
    return {**made, "messages": [{"role": "user", "content": ""}]}
