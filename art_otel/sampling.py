"""Sampling: how a request asked a server to sample, in whatever words its API has for it.

Invariant: None is what the request does not say. The server's own default counts then, which nobody recorded: for vLLM
it is that of the model's `generation_config.json`.
"""

import math
from collections.abc import Callable, Mapping
from typing import Any, Final, Literal, TypeAlias, TypeGuard, cast

import msgspec

from art_otel.spans import Value

LogprobsMode: TypeAlias = Literal["raw", "tempered", "processed"]
"""Of which distribution a server's logprobs are.

- `raw`: the policy's own, before all that a request asks for (vLLM unless it is started otherwise, llama.cpp).
- `tempered`: behind temperature, penalties and biases, before top-k, top-p and min-p (SGLang).
- `processed`: that which was sampled from (vLLM with `--logprobs-mode processed_logprobs`).
"""


class Sampling(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What a request says of sampling. `logprobs_mode` says of which distribution the server's logprobs are.

    `logit_bias` maps tokens, as the request names them, to what is added to their logits.
    """

    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    repetition_penalty: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    logit_bias: dict[str, float] | None = None
    allowed_token_ids: tuple[int, ...] | None = None
    bad_words: tuple[str, ...] | None = None
    min_tokens: int | None = None
    logprobs_mode: LogprobsMode | None = None

    @property
    def forces_tokens(self) -> bool:
        """Whether the request forbids tokens, or moves them: by ids, biases, words or a smallest length."""
        return bool(self.logit_bias or self.bad_words or self.min_tokens) or self.allowed_token_ids is not None

    @property
    def is_greedy(self) -> bool:
        """Whether the likeliest token was taken each time."""
        return self.temperature == 0 or self.top_k == 1

    @property
    def is_altered(self) -> bool:
        """Whether tokens were sampled from another distribution than the policy's own, as far as the request says."""
        return (
            self.forces_tokens
            or self.temperature not in (None, 1)
            or self.repetition_penalty not in (None, 1)
            or bool(self.presence_penalty or self.frequency_penalty or self.min_p)
            or (self.top_p is not None and self.top_p < 1)
            or (self.top_k is not None and self.top_k > 0)  # servers write 0 or -1 for all tokens
        )


_NESTED: Final = frozenset({"extrabody", "generationconfig", "inferenceconfig", "samplingparams", "options"})
"""Objects that hold further parameters: those of openai's client, Gemini, Bedrock, vLLM and SGLang, Ollama."""


def read_sampling(parameters: Mapping[str, Value], logprobs_mode: LogprobsMode | None = None) -> Sampling:
    """Read what the parameters of a request say of sampling, whatever API they are of.

    A value that is none of its parameter is unknown.
    """
    fields: dict[str, Any] = {"logprobs_mode": logprobs_mode}
    _read(parameters, fields)
    return Sampling(**fields)


def _read(parameters: Mapping[str, Value], fields: dict[str, Any]) -> None:
    for name, value in parameters.items():
        field = _FIELDS.get(name) or _FIELDS.get(_plain(name))
        if field is not None:
            known = _READERS[field](value)
            if known is not None:
                fields[field] = known
        elif isinstance(value, dict) and _plain(name) in _NESTED:
            _read(cast("dict[str, Value]", value), fields)


def _plain(name: str) -> str:
    """The name without what APIs write it differently by: `top_p` and `topP` are one."""
    return name.replace("_", "").lower()


def _number(value: Value) -> float | None:
    """A finite number, which some recorders write as text."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


def _whole(value: Value) -> int | None:
    number = _number(value)
    return int(number) if number is not None and number.is_integer() else None


def _biases(value: Value) -> dict[str, float] | None:
    """Biases by token: of an object, or of llama.cpp's list of pairs, where `false` forbids a token."""
    if isinstance(value, dict):
        pairs = list(cast("dict[str, Value]", value).items())
    elif isinstance(value, list):
        pairs = [(str(pair[0]), pair[1]) for pair in cast("list[Value]", value) if _is_pair(pair)]
    else:
        return None
    return {token: -math.inf if bias is False else _number(bias) or 0.0 for token, bias in pairs}


def _is_pair(value: Value) -> TypeGuard[list[Value]]:
    return isinstance(value, list) and len(cast("list[Value]", value)) == 2


def _ids(value: Value) -> tuple[int, ...] | None:
    if not isinstance(value, list):
        return None
    return tuple(number for one in cast("list[Value]", value) if (number := _whole(one)) is not None)


def _words(value: Value) -> tuple[str, ...] | None:
    return tuple(map(str, cast("list[Value]", value))) if isinstance(value, list) else None


_READERS: Final[Mapping[str, Callable[[Value], object]]] = {
    **dict.fromkeys(("temperature", "top_p", "min_p"), _number),
    **dict.fromkeys(("repetition_penalty", "presence_penalty", "frequency_penalty"), _number),
    **dict.fromkeys(("top_k", "min_tokens"), _whole),
    "logit_bias": _biases,
    "allowed_token_ids": _ids,
    "bad_words": _words,
}
"""How the value of each parameter is read."""

_FIELDS: Final[Mapping[str, str]] = {
    **{name: name for name in _READERS},
    **{_plain(name): name for name in _READERS},
    "repeatpenalty": "repetition_penalty",  # llama.cpp, Ollama
    "minnewtokens": "min_tokens",  # SGLang
}
"""The parameters by their names in any API."""
