"""Config: the options of the formats."""

from dataclasses import dataclass
from typing import Annotated, Literal, TypeAlias

from msgspec import Meta

Layout: TypeAlias = Literal["prompt_completion", "messages"]
ToolArguments: TypeAlias = Annotated[
    Literal["object", "text"],
    Meta(
        description="tool call arguments as an object, which templates write with tojson, or as the sampled text, which"
        " some templates then encode twice"
    ),
]


@dataclass(frozen=True, kw_only=True, slots=True)
class SftConfig:
    """`sft` has no options."""


@dataclass(frozen=True, kw_only=True, slots=True)
class GrpoConfig:
    """`grpo` has no options."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ChatConfig:
    """Options of `chat`."""

    layout: Annotated[
        Layout,
        Meta(
            description="prompt_completion: what stands before the first trained message is the prompt, so answers that"
            " several histories share are trained once; messages: one list, in which TRL trains every answer"
        ),
    ] = "prompt_completion"
    tool_arguments: ToolArguments = "object"


@dataclass(frozen=True, kw_only=True, slots=True)
class DpoConfig:
    """Options of `dpo`."""

    tool_arguments: ToolArguments = "object"
    later_messages: Annotated[
        Literal["keep", "truncate", "drop"],
        Meta(
            description="a side's messages behind its first: kept, cut, or the pair left out; TRL compares all that it"
            " gets, what tools said too"
        ),
    ] = "keep"
