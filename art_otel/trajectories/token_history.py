"""TokenHistory: one path through the forest of turns as tokens.

Invariant: ids, loss mask and logprobs have one length; the ids under the mask are the sampled completions in order.
"""

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import TypeAlias

from art_otel.calls import Logprobs, TokenIds
from art_otel.trajectories.trajectory import Turn

Contexts: TypeAlias = Sequence[TokenIds | None] | Mapping[int, TokenIds | None]
"""By the position of a turn: the ids between its parent on the path and what it sampled."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CompletionSpan:
    """Where a completion stands in its history: tokens `start` to `end` (exclusive), sampled by turn `turn`.

    `trained` says whether this history is where it is learnt; a completion of zero tokens shows that here only.
    """

    turn: int
    start: int
    end: int
    trained: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class TokenHistory:
    """The tokens of a path through turns that all have ids, from one that continues no such turn to a leaf.

    `token_ids`, `loss_mask` and `logprobs` have shape (tokens,). A byte of `loss_mask` is 1 where the token was sampled
    and is trained in this history, else 0. `logprobs` are the policy's when it sampled; 0.0 where nothing was sampled,
    and in a completion that is only context here and came without. None when a trained completion has none.
    `turns` are positions in the trajectory, `spans` has one entry for each of them.
    """

    token_ids: TokenIds
    loss_mask: bytes
    logprobs: Logprobs | None
    turns: tuple[int, ...]
    spans: tuple[CompletionSpan, ...]


def token_history(
    turns: Sequence[Turn], path: Sequence[int], contexts: Contexts, trained: AbstractSet[int]
) -> TokenHistory:
    """The tokens of a path, of which `trained` are the positions of the turns that are learnt here."""
    ids: list[bytes] = []
    mask: list[bytes] = []
    logprobs: list[bytes] = []
    spans: list[CompletionSpan] = []
    complete = True
    end = 0
    for position in path:
        turn, context = turns[position], contexts[position]
        given = b"" if context is None else context.data
        sampled = b"" if turn.token_ids is None else turn.token_ids.data
        known = None if turn.logprobs is None else turn.logprobs.data
        learnt = position in trained
        start = end + len(given) // 4
        end = start + len(sampled) // 4
        if known is None or len(known) != len(sampled):
            complete = complete and not (learnt and sampled)
            known = bytes(len(sampled))
        ids += (given, sampled)
        mask += (bytes(len(given) // 4), (b"\1" if learnt else b"\0") * (end - start))
        logprobs += (bytes(len(given)), known)
        spans.append(CompletionSpan(turn=position, start=start, end=end, trained=learnt))
    return TokenHistory(
        token_ids=TokenIds(b"".join(ids)),
        loss_mask=b"".join(mask),
        logprobs=Logprobs(b"".join(logprobs)) if complete else None,
        turns=tuple(path),
        spans=tuple(spans),
    )
