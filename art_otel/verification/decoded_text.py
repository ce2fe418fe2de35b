r"""Decoded text: whether the ids of a completion say what its recorded message says.

Invariant: special tokens, the marks of tool calls and of reasoning are the template's and are no difference; each field
of the recorded message has to be in the decoded ids as it is. So ids of another call, another tokenizer or a message
that a recorder changed are found.

    ids      <think>\nTwo days.\n</think>\n\nIt rains.<tool_call>{"name": "umbrella", …}</tool_call><|im_end|>
    message  reasoning "Two days.", content "It rains.", tool call umbrella(…)
"""

import json
from collections import Counter
from collections.abc import Iterable
from typing import Any, Literal, Protocol, TypeAlias, cast

import msgspec

from art_otel.calls import Message
from art_otel.trajectories import Trajectory

Difference: TypeAlias = Literal["content", "reasoning", "tool calls", "more than recorded"]


class Decoder(Protocol):
    """A Hugging Face tokenizer (`transformers.PreTrainedTokenizerBase`)."""

    def decode(self, token_ids: Any, **options: Any) -> str:  # noqa: ANN401 # as transformers has it
        """The text of ids."""
        ...


class DecodedDifference(msgspec.Struct, frozen=True, kw_only=True):
    """A completion whose ids decode to something else: the field, the recorded text and the decoded text."""

    rollout_id: str
    turn: int
    field: Difference
    recorded: str
    decoded: str


class TextComparison(msgspec.Struct, frozen=True, kw_only=True):
    """How many completions were decoded, how many agree with the recorded message, and the first that do not.

    `differences` counts completions by the first field that differs. `meaning` explains many differences, if any.
    """

    completions: int
    equal: int
    differences: dict[str, int]
    examples: tuple[DecodedDifference, ...]
    meaning: str | None = None


_MOST_EXAMPLES = 5
_SPARE = 2
"""Words that a template's marks may add to the recorded ones, such as `assistant` or `json`."""


def compare_decoded(trajectories: Iterable[Trajectory], tokenizer: Decoder) -> TextComparison:
    """Decode each trained completion that has ids and a message, and compare."""
    completions = equal = 0
    differences: Counter[str] = Counter()
    examples: list[DecodedDifference] = []
    for trajectory in trajectories:
        for position, turn in enumerate(trajectory.turns):
            if turn.tokens_untrained or turn.token_ids is None or turn.message is None or turn.message.is_unknown:
                continue
            completions += 1
            ids = turn.token_ids.tolist()
            decoded = tokenizer.decode(ids, skip_special_tokens=False)
            difference = _difference(turn.message, decoded)
            # A special token may be in the middle of a text; servers leave it out of the message.
            if difference is None or _difference(turn.message, tokenizer.decode(ids, skip_special_tokens=True)) is None:
                equal += 1
                continue
            field, recorded = difference
            differences[field] += 1
            if len(examples) < _MOST_EXAMPLES:
                examples.append(
                    DecodedDifference(
                        rollout_id=trajectory.rollout_id,
                        turn=position,
                        field=field,
                        recorded=recorded[:200],
                        decoded=decoded[:200],
                    )
                )
    return TextComparison(
        completions=completions,
        equal=equal,
        differences=dict(differences),
        examples=tuple(examples),
        meaning=_meaning(completions, equal),
    )


def _meaning(completions: int, equal: int) -> str | None:
    if equal == completions:
        return None
    if equal * 10 <= completions:
        return "almost nothing agrees: this is not the server's tokenizer, or the messages belong to other calls"
    return "some completions have the ids of another call, or their recorder changes texts"


def _difference(message: Message, decoded: str) -> tuple[Difference, str] | None:
    """The first recorded field that the decoded ids lack something of, and its recorded text; None if none does."""
    rest = decoded
    reasoning = (message.reasoning or "").strip()
    if reasoning:
        if reasoning not in rest:
            return "reasoning", reasoning
        rest = rest.replace(reasoning, " ", 1)
    content = (message.content or message.refusal or "").strip()
    if content:
        # A character that was cut at the end of an answer is written in different ways.
        if content.rstrip("\ufffd") not in rest:
            return "content", content
        rest = rest.replace(content, " ", 1)
    for call in message.tool_calls:
        if call.name not in rest or not _has_arguments(call.arguments, rest):
            return "tool calls", f"{call.name}({call.arguments})"
    if not message.tool_calls and not reasoning and _spare_words(rest) > _SPARE + len(content.split()):
        return "more than recorded", content
    return None


def _has_arguments(arguments: str | None, text: str) -> bool:
    """Whether the text has each plain value of the arguments, however the model spelled their JSON."""
    try:
        value: Any = json.loads(arguments or "{}")
    except ValueError:
        return (arguments or "").strip() in text
    leaves = list(cast("dict[str, Any]", value).values()) if isinstance(value, dict) else [value]
    return all(
        leaf in text or json.dumps(leaf)[1:-1] in text or json.dumps(leaf, ensure_ascii=False)[1:-1] in text
        for leaf in leaves
        if isinstance(leaf, str)
    )


def _spare_words(text: str) -> int:
    return len([word for word in text.split() if not (word.startswith("<") and word.endswith(">"))])
