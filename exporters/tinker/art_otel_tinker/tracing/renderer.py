"""WatchedRenderer: a renderer that remembers which messages its last prompts were made of.

Invariant: the messages are kept as they were when the prompt was rendered. It renders and parses as the renderer in it
does, and is pickled as that.
"""

from collections import deque
from typing import Any, Final

from art_otel_tinker.tracing.chat import JsonObject, chat_messages
from art_otel_tinker.tracing.internal_errors import handle_tinker_errors
from art_otel_tinker.tracing.proxy import Proxy

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
