"""Bypass: requests that an instrumentor would break go around it, and their calls get spans of art-otel.

Invariant: only an instrumentor that art-otel has chosen is gone around. One that the app has started or named records
every request.

OpenLLMetry (0.62.4) breaks requests of two kinds. Without art-otel's bypass:

- **Streams.** Of Chat Completions and Responses, the app gets an object that is an iterator and an async iterator in
  one. Libraries ask `isinstance(stream, AsyncIterator)`: instructor's `create_partial` and `create_iterable` then raise
  TypeError, and so does Starlette's `StreamingResponse(stream)`. Of Completions, the app gets a generator, which has no
  `close`, no `response` and no `with`; and an empty one of `with_raw_response`.
- **Generators** as messages, tools or input. OpenLLMetry reads them first, and the model is asked with an empty list.
"""

import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, cast

from wrapt import FunctionWrapper

from art_otel.tracing.openai.client import Patches

_RESOURCES: Final = {
    "openai.resources.chat.completions": ("Completions", "AsyncCompletions"),
    "openai.resources.beta.chat.completions": ("Completions", "AsyncCompletions"),
    "openai.resources.completions": ("Completions", "AsyncCompletions"),
    "openai.resources.responses": ("Responses", "AsyncResponses"),
}
_METHODS: Final = ("create", "parse")


def place_bypass() -> Patches:
    """Put the bypass around the methods that an instrumentor has just wrapped."""
    patches = Patches()
    for owner, method in _methods():
        instrumented: Any = vars(owner).get(method)
        if isinstance(instrumented, FunctionWrapper):
            patches.set(owner, method, FunctionWrapper(cast(Any, instrumented), _ask))
    return patches


def _methods() -> Iterator[tuple[type, str]]:
    """The methods by which requests are made, of the classes that this version of openai has."""
    for module, classes in _RESOURCES.items():
        for name in classes:
            owner: object = getattr(sys.modules.get(module), name, None)
            if isinstance(owner, type):
                yield from ((owner, method) for method in _METHODS)


def _ask(instrumented: Any, _client: object, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:  # noqa: ANN401 # as openai
    would_break = kwargs.get("stream") or any(isinstance(value, Iterator) for value in kwargs.values())
    ask: Callable[..., Any] = instrumented.__wrapped__ if would_break else instrumented
    return ask(*args, **kwargs)
