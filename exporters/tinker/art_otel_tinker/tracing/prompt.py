"""Prompt: what the policy is asked, as it was when the environment asked.

Invariant: it is text and bytes, so nothing that the environment does to its messages later changes it.
"""

from dataclasses import dataclass, field
from time import time_ns
from typing import Any, cast

import msgspec

from art_otel import attributes as names
from art_otel.calls import TokenIds
from art_otel.conventions import encode_ids
from art_otel_tinker.tracing.renderer import WatchedRenderer


@dataclass(frozen=True, kw_only=True, slots=True)
class Prompt:
    """`token_ids` are None where some of it is no token, as an image is. `messages` are JSON, None if unknown."""

    token_ids: TokenIds | None
    messages: str | None
    asked_ns: int = field(default_factory=time_ns)

    @staticmethod
    def of(observation: Any, renderer: WatchedRenderer | None) -> "Prompt":  # noqa: ANN401 # ModelInput
        """That of an observation."""
        messages = None if renderer is None else renderer.messages_of(observation)
        return Prompt(
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
