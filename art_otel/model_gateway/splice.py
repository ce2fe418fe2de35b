"""Splice: a prompt that continues sampled turns keeps their ids in the place of those that its template makes.

    rendered   ids of the template    [system, user][what the template makes of an answer][tail, user …]
    prompt     ids that are sampled   [system, user][the ids that were sampled           ][tail, user …]

Invariant: text decides. Ids are put in the place of others only where both have the same text, so the model reads what
the template says, in the tokens that it wrote itself. The server alone decodes; what it was asked once is remembered
as a form of the turn. Nothing is sent anywhere and nothing is remembered of a request here, but for those forms.

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
"""Ids at the end of a prompt that are compared together with the completion, because its first token may join them."""

_EXCERPT: Final = 40
_UNFINISHED: Final = "\ufffd"
_MARKS: Final = re.compile(r"<[^<>]*>|\s+")
_MARK: Final = re.compile(r"\s*<[^<>]*>\s*")


def as_ids(numbers: Sequence[int]) -> IdArray:
    """Token ids as they are kept."""
    return array("i", numbers)


@dataclass(eq=False, kw_only=True)
class GatewayTurn:
    """A completion of a rollout, behind the turn that its prompt continues.

    `head` is what its prompt has behind that turn; `joint` is the end of the prompt with the completion, of which the
    first `context` ids are the prompt's. `forms` are the ids that templates are known to make of `joint`.
    """

    parent: "GatewayTurn | None"
    head: IdArray
    joint: IdArray
    context: int
    is_stopped: bool
    reasoning: str = ""
    forms: list[IdArray] = field(default_factory=list[IdArray])
    kept: list[IdArray] = field(default_factory=list[IdArray])
    """Forms without the reasoning."""
    children: "list[GatewayTurn]" = field(default_factory=lambda: list[GatewayTurn]())  # noqa: PLW0108 # the class is not there yet
    text: str | None = None
    shown: str = ""
    """The text without an unfinished character at its end, which the server shows to nobody."""

    def path(self) -> IdArray:
        """The prompt and the completion, as they were sampled."""
        turns: list[GatewayTurn] = [self]
        while (parent := turns[-1].parent) is not None:
            turns.append(parent)
        ids = as_ids(())
        for turn in reversed(turns):
            ids += turn.head + turn.joint
        return ids


@dataclass(frozen=True, kw_only=True, slots=True)
class Splice:
    """What to sample from. `turn` is the one that the prompt continues, `tail` what it has behind it.

    `reason` says where the text differs from that of an earlier turn.
    """

    prompt: IdArray
    tail: IdArray
    turn: GatewayTurn | None
    outcome: SpliceOutcome
    reason: str = ""
    is_reasoning_kept: bool = False

    def sampled(self, completion: Sequence[int], *, is_stopped: bool, reasoning: str = "") -> GatewayTurn:
        """Give the turn that a completion of the prompt makes."""
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
    """Put the ids of the longest path of turns that a rendered prompt continues in the place of its own.

    `turns` are those that continue no other, the latest last.
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
            if start > differs_at:
                difference, differs_at = found, start
            continue
        behind, without_reasoning = found
        if behind > end:
            best, end, best_kept = turn, behind, is_kept or without_reasoning
        waiting += [(child, behind, is_kept or without_reasoning) for child in turn.children]
    tail = rendered[end:]
    prompt = tail if best is None else best.path() + tail
    outcome: SpliceOutcome = "not_needed" if prompt == rendered else "spliced"
    if differs_at >= end:
        outcome = "differing"
    reason = difference if outcome == "differing" else ""
    return Splice(prompt=prompt, tail=tail, turn=best, outcome=outcome, reason=reason, is_reasoning_kept=best_kept)


def _may_continue(turn: GatewayTurn, rendered: IdArray, at: int, start: int) -> bool:
    """Whether a prompt has that of a turn, but for its last id, and something behind it."""
    if rendered[at:start] != turn.head:
        return False
    common = max(0, turn.context - 1)
    return len(rendered) > start + turn.context and rendered[start : start + common] == turn.joint[:common]


async def _match(
    turn: GatewayTurn, rendered: IdArray, start: int, decode: DecodeIds, *, keep_reasoning: bool
) -> tuple[int, bool] | str:
    """Where the text of a turn ends in a prompt, and whether it lacks the reasoning; else where it differs."""
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
    """The text of a turn up to the last id behind which no character is unfinished."""
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
    """Where a prompt has had as many of the token that ended a turn as the turn has."""
    stop = turn.joint[-1]
    at = start - 1
    try:
        for _ in range(turn.joint.count(stop)):
            at = rendered.index(stop, at + 1)
    except ValueError:
        return None
    return at + 1


async def _behind_text(text: str, rendered: IdArray, start: int, decode: DecodeIds, guess: int) -> int:
    """Where a prompt has had as many characters as a text; behind all tokens of the last one."""
    low, high = start, len(rendered)  # up to low there are not too many characters, behind high there are
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
    """Whether a text is that of a turn without its reasoning, of which marks of the template may be left."""
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
    """Say where a text that comes back is another than the one that was sampled."""
    at = next((at for at, pair in enumerate(zip(sampled, rendered, strict=False)) if pair[0] != pair[1]), None)
    if at is None:
        at = min(len(sampled), len(rendered))
    if reasoning.strip() and reasoning.strip() not in rendered:
        return f"reasoning removed at character {at}"
    return f"text at character {at}: sampled {sampled[at : at + _EXCERPT]!r}, now {rendered[at : at + _EXCERPT]!r}"
