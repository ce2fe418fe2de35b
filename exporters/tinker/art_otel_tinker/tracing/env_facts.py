"""Facts that an environment tells of itself, as attributes and rewards.

Invariant: what an environment does not tell, or raises when it is asked for, is absent.
"""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from art_otel import attributes as names
from art_otel_tinker.tracing.about import About
from art_otel_tinker.tracing.call import MODEL
from art_otel_tinker.tracing.chat import chat_tools
from art_otel_tinker.tracing.internal_errors import handle_tinker_errors

_COMPONENTS: Final = ("correct", "format", "win_minus_loss")
"""The metrics of `ProblemEnv` (tinker_cookbook.rl.problem_env) and of `PairwisePreferenceGroupBuilder`
(tinker_cookbook.rl.preference_envs) that are parts of a reward, 0.6.1."""


def call_facts(env: object, about: About) -> dict[str, str]:
    """What stands on the span of every call: the model, and the tools that it was told of."""
    facts: dict[str, str] = {} if about.model is None else {MODEL: about.model}
    with handle_tinker_errors:
        tools = chat_tools(env)
        if tools is not None:
            facts[names.REQUEST_PARAMETERS] = json_text({"tools": tools})
    return facts


def state_facts(env: Any) -> dict[str, object]:  # noqa: ANN401 # any Env
    """What stands in the state of the environment at every step: the answer that a problem has."""
    with handle_tinker_errors:
        if callable(getattr(env, "get_reference_answer", None)):
            return {"reference_answer": env.get_reference_answer()}
    return {}


def reward_components(metrics: Mapping[str, Any]) -> dict[str, float]:
    """What the reward was made of, of the metrics of a step or a group."""
    return {name: float(metrics[name]) for name in _COMPONENTS if name in metrics}


def attribute(value: object) -> str | bool | int | float:
    """A value as an attribute: as it is where one can hold it, else as JSON."""
    plain: object = msgspec.to_builtins(value, enc_hook=_plain)
    return plain if isinstance(plain, (str, bool, int, float)) else json_text(plain)


def json_text(value: object) -> str:
    """A value as JSON; a tensor of one element is its number, and what JSON has no word for its text."""
    return msgspec.json.encode(value, enc_hook=_plain).decode()


def _plain(value: object) -> object:
    item: Any = getattr(value, "item", None)
    return item() if callable(item) else str(value)
