"""Config: the options of the format."""

from dataclasses import dataclass
from typing import Annotated

from msgspec import Meta


@dataclass(frozen=True, kw_only=True, slots=True)
class SamplesConfig:
    """Options of `samples`."""

    env_name: Annotated[
        Annotated[str, Meta(min_length=1)] | None,
        Meta(description="the environment of every sample (without: the rollout's name, else art-otel)"),
    ] = None
    temperature: Annotated[
        float, Meta(gt=0, description="that of calls whose request told none, by which prime-rl divides the logits")
    ] = 1.0
