"""Config: the options of the formats."""

from dataclasses import dataclass
from typing import Annotated, Literal, TypeAlias

from msgspec import Meta

ParallelToolCalls: TypeAlias = Annotated[
    bool | None, Meta(description="written beside the tools where given: may the model call several at once")
]


@dataclass(frozen=True, kw_only=True, slots=True)
class SftConfig:
    """Options of `sft`."""

    parallel_tool_calls: ParallelToolCalls = None


@dataclass(frozen=True, kw_only=True, slots=True)
class PreferenceConfig:
    """Options of `preference`."""

    parallel_tool_calls: ParallelToolCalls = None
    later_messages: Annotated[
        Literal["truncate", "keep", "drop"],
        Meta(
            description="a side's messages behind its first: OpenAI takes one answer a side, so they are cut, or the"
            " pair is left out; Azure takes them (keep)"
        ),
    ] = "truncate"
