"""Splice: puts the sampled ids of earlier turns into a prompt, in the place of the ids that the chat template makes.

    rendered   by the template   [system, user][ids that the template makes of the answer][tail, user …]
    prompt     sampled from      [system, user][ids that were sampled                    ][tail, user …]

Invariant: the text decides. Ids replace others only if both decode to the same text. So the model reads what the
template says, in the tokens that it wrote itself. Only the server decodes (`decode`). Each different way in which a
template spells a turn is decoded once and then remembered as a `form` of that turn.

Sources: verl 6719, verifiers 626, NeMo-RL 3581 (stop tokens, tails of templates, templates that remove reasoning).
"""

import re
from array import array
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias

IdArray: TypeAlias = "array[int]"
DecodeIds: TypeAlias = Callable[[Sequence[int]], Awaitable[str]]
SpliceOutcome: TypeAlias = Literal["spliced", "not_needed", "differing"]

_JOINT: Final = 4
"""So many ids at the end of a prompt are compared together with the completion: the template's tokenization may join
the completion's first characters with them."""

_EXCERPT: Final = 40
_UNFINISHED: Final = "\ufffd"
_MARKS: Final = re.compile(r"<[^<>]*>|\s+")
_MARK: Final = re.compile(r"\s*<[^<>]*>\s*")


def as_ids(numbers: Sequence[int]) -> IdArray:
    """Token ids as an array of 4-byte integers, which takes a ninth of a list's memory."""
    return array("i", numbers)


@dataclass(eq=False, kw_only=True)
class GatewayTurn:
    """A sampled completion, as a node below the turn (`parent`) that its prompt continues.

        prompt      … parent's ids | head            | 4 ids
        joint                                        | 4 ids  completion      the first `context` ids are the prompt's

    `is_stopped` says that the completion ends with a stop token. `forms` are the ids that templates were found to make
    of the text of `joint`.
    """

    parent: "GatewayTurn | None"
    head: IdArray
    joint: IdArray
    context: int
    is_stopped: bool
    reasoning: str = ""
    forms: list[IdArray] = field(default_factory=list[IdArray])
    kept: list[IdArray] = field(default_factory=list[IdArray])
    """Forms in which the template has removed the reasoning."""
    children: "list[GatewayTurn]" = field(default_factory=lambda: list[GatewayTurn]())  # noqa: PLW0108 # the class is not there yet
    text: str | None = None
    shown: str = ""
    """The text without an unfinished character at its end, which no client gets to see (and so never sends back)."""

    def path(self) -> IdArray:
        """The ids of the whole prompt and the completion, as they were sampled."""
        turns: list[GatewayTurn] = [self]
        while (parent := turns[-1].parent) is not None:
            turns.append(parent)
        ids = as_ids(())
        for turn in reversed(turns):
            ids += turn.head + turn.joint
        return ids


@dataclass(frozen=True, kw_only=True, slots=True)
class Splice:
    """The result: the ids to sample from (`prompt`).

    `turn` is the last turn that the prompt continues (None: it continues none), `tail` the ids behind that turn.
    `outcome`: "spliced", "not_needed" (the template makes the sampled ids itself), or "differing" (an earlier turn
    comes back with another text; `reason` says where). `is_reasoning_kept`: reasoning is in the prompt that the
    template has removed.
    """

    prompt: IdArray
    tail: IdArray
    turn: GatewayTurn | None
    outcome: SpliceOutcome
    reason: str = ""
    is_reasoning_kept: bool = False

    def sampled(self, completion: Sequence[int], *, is_stopped: bool, reasoning: str = "") -> GatewayTurn:
        """The turn that a completion of this prompt makes."""
        at = max(0, len(self.tail) - _JOINT)
        return GatewayTurn(
            parent=self.turn,
            head=self.tail[:at],
            joint=self.tail[at:] + as_ids(completion),
            context=len(self.tail) - at,
            is_stopped=is_stopped,
            reasoning=reasoning,
        )


async def splice(
    rendered: IdArray, turns: Sequence[GatewayTurn], decode: DecodeIds, *, keep_reasoning: bool = False
) -> Splice:
    """Find the longest path of turns that a rendered prompt continues, and put its sampled ids into the prompt.

    `turns` are the turns of the rollout that continue no other, the latest last. `decode` asks the server for the text
    of ids. With `keep_reasoning` a turn also matches if the template has removed its reasoning.
    """
    best, end, best_kept = None, 0, False
    difference, differs_at = "", -1
    waiting = [(turn, 0, False) for turn in turns]
    while waiting:
        turn, at, is_kept = waiting.pop()
        start = at + len(turn.head)
        if not _may_continue(turn, rendered, at, start):
            continue
        found = await _match(turn, rendered, start, decode, keep_reasoning=keep_reasoning)
        if isinstance(found, str):
            # Of several differences, report the one that is furthest into the prompt.
            if start > differs_at:
                difference, differs_at = found, start
            continue
        behind, without_reasoning = found
        if behind > end:
            best, end, best_kept = turn, behind, is_kept or without_reasoning
        # Only turns whose parents matched are looked at: the tree is walked, and not every turn compared.
        waiting += [(child, behind, is_kept or without_reasoning) for child in turn.children]
    tail = rendered[end:]
    prompt = tail if best is None else best.path() + tail
    outcome: SpliceOutcome = "not_needed" if prompt == rendered else "spliced"
    if differs_at >= end:
        outcome = "differing"
    reason = difference if outcome == "differing" else ""
    return Splice(prompt=prompt, tail=tail, turn=best, outcome=outcome, reason=reason, is_reasoning_kept=best_kept)


def _may_continue(turn: GatewayTurn, rendered: IdArray, at: int, start: int) -> bool:
    """Whether a rendered prompt has the ids of a turn's prompt at this place, and more ids behind them.

    The last id of the turn's prompt may differ: the template's tokenization may join it with the completion.
    """
    if rendered[at:start] != turn.head:
        return False
    common = max(0, turn.context - 1)
    return len(rendered) > start + turn.context and rendered[start : start + common] == turn.joint[:common]


async def _match(
    turn: GatewayTurn, rendered: IdArray, start: int, decode: DecodeIds, *, keep_reasoning: bool
) -> tuple[int, bool] | str:
    """Where the text of a turn ends in a rendered prompt, and whether its reasoning was removed there.

    If the text is another one, returns a description of the difference instead.
    """
    for form in (turn.joint, *turn.forms):
        if rendered[start : start + len(form)] == form:
            return start + len(form), False
    for form in turn.kept if keep_reasoning else ():
        if rendered[start : start + len(form)] == form:
            return start + len(form), True
    if turn.text is None:
        turn.text = await decode(turn.joint)
        turn.shown = await _shown(turn, turn.text, decode)
    text = ""
    end = start
    for sampled in dict.fromkeys((turn.text, turn.shown)):
        stop = _behind_stop(turn, rendered, start) if turn.is_stopped else None
        end = stop or await _behind_text(sampled, rendered, start, decode, guess=len(turn.joint))
        text = await decode(rendered[start:end])
        if text == sampled:
            turn.forms.append(rendered[start:end])
            return end, False
    if keep_reasoning and turn.is_stopped and await _lacks_reasoning(turn, text, decode):
        turn.kept.append(rendered[start:end])
        return end, True
    return _difference(turn.text, text, turn.reasoning)


async def _shown(turn: GatewayTurn, text: str, decode: DecodeIds) -> str:
    """The text of a turn without the bytes of an unfinished character at its end."""
    if _UNFINISHED not in text:
        return text
    end = len(turn.joint) - turn.is_stopped
    said = await decode(turn.joint[:end])
    stop = text[len(said) :]
    while said.endswith(_UNFINISHED) and end > turn.context:
        end -= 1
        said = await decode(turn.joint[:end])
    return said + stop


def _behind_stop(turn: GatewayTurn, rendered: IdArray, start: int) -> int | None:
    """The place in a rendered prompt behind the stop token of a turn; None where there is none.

    That is the first place from `start` on at which the stop token has come as often as in the turn.
    """
    stop = turn.joint[-1]
    at = start - 1
    try:
        for _ in range(turn.joint.count(stop)):
            at = rendered.index(stop, at + 1)
    except ValueError:
        return None
    return at + 1


async def _behind_text(text: str, rendered: IdArray, start: int, decode: DecodeIds, guess: int) -> int:
    """The last place in a rendered prompt up to which it has no more characters than a text.

    A search in growing steps from the likely place `start + guess`, then by halves: each try asks the server to decode.
    """
    low, high = start, len(rendered)  # up to `low` there are not too many characters, beyond `high` there are
    at = min(high, start + guess)
    step = 1
    while low < high:
        if len(await decode(rendered[start:at])) <= len(text):
            low, at = at, min(high, at + step)
        else:
            high, at = at - 1, max(low + 1, at - step)
        step *= 2
        if at <= low or at > high:
            at = (low + high + 1) // 2
    return low


async def _lacks_reasoning(turn: GatewayTurn, text: str, decode: DecodeIds) -> bool:
    """Whether a text is that of a turn without its reasoning. Marks such as `<think></think>` may be left of it."""
    if not turn.reasoning.strip() or turn.text is None or turn.reasoning.strip() not in turn.text:
        return False
    _, _, behind = turn.text.partition(turn.reasoning.strip())
    mark = _MARK.match(behind)
    seen = behind if mark is None else behind[mark.end() :]
    if not seen or not text.endswith(seen):
        return False
    before = await decode(turn.joint[: turn.context])
    return _MARKS.sub("", text.removesuffix(seen)) == _MARKS.sub("", before)


def _difference(sampled: str, rendered: str, reasoning: str) -> str:
    """A description of where the text that comes back in a prompt differs from the one that was sampled."""
    at = next((at for at, pair in enumerate(zip(sampled, rendered, strict=False)) if pair[0] != pair[1]), None)
    if at is None:
        at = min(len(sampled), len(rendered))
    if reasoning.strip() and reasoning.strip() not in rendered:
        return f"reasoning removed at character {at}"
    return f"text at character {at}: sampled {sampled[at : at + _EXCERPT]!r}, now {rendered[at : at + _EXCERPT]!r}"
