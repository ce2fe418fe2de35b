"""TokenHistory: one token path from a root to a leaf, token for token as the policy saw and sampled it.

Invariant: ids, loss mask and logprobs have one length; the ids under the mask are the completions that are trained
here, in order; what is before a completion is what the server saw. Over all token histories every completion to
train that has ids is trained exactly once: in the first history that holds it.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from art_otel.calls import Logprobs, TokenIds
from art_otel.trajectories.history import PromptPaths, path_to
from art_otel.trajectories.model import Trajectory, Turn


@dataclass(frozen=True, kw_only=True, slots=True)
class CompletionSpan:
    """Where a completion is in its history: tokens `start` to `end` (exclusive), sampled by turn `turn`.

    `trained` says whether this history is where it is trained; a completion of zero tokens shows that here only.
    """

    turn: int
    start: int
    end: int
    trained: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class TokenHistory:
    """The tokens of a path through turns whose prompt and completion have ids.

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


def token_histories(trajectory: Trajectory) -> tuple[TokenHistory, ...]:
    """Give the token histories: every token path from a root turn to a leaf, in the order of the leaves.

    Needs turns and prompts only, so a trajectory that was read without the calls' prompts will do. Linear in the tokens
    of the histories: a context that several share is written out in each.
    """
    turns = trajectory.turns
    paths = PromptPaths(turns)
    trained_before: set[int] = set()
    result: list[TokenHistory] = []
    for leaf in token_leaves(turns):
        path = path_to(turns, leaf, lambda turn: turn.token_parent)
        trained = {turn for turn in path if turns[turn].untrained is None} - trained_before
        trained_before |= trained
        result.append(_token_history(turns, path, paths, trained))
    return tuple(result)


def token_leaves(turns: Sequence[Turn]) -> list[int]:
    """The turns with ids whose token path no other turn with ids continues."""
    continued = {turn.prompt.token_parent for turn in turns if turn.has_tokens}
    return [position for position, turn in enumerate(turns) if turn.has_tokens and position not in continued]


def _token_history(turns: Sequence[Turn], path: Sequence[int], paths: PromptPaths, trained: set[int]) -> TokenHistory:
    ids: list[bytes] = []
    mask: list[bytes] = []
    logprobs: list[bytes] = []
    spans: list[CompletionSpan] = []
    is_known = True
    end = 0
    for position in path:
        turn, is_trained = turns[position], position in trained
        context = paths.context(turn.prompt)
        sampled = b"" if turn.token_ids is None else turn.token_ids.data
        its_logprobs = None if turn.logprobs is None else turn.logprobs.data
        start = end + len(context) // 4
        end = start + len(sampled) // 4
        if its_logprobs is None or len(its_logprobs) != len(sampled):
            is_known = is_known and not (is_trained and sampled)
            its_logprobs = bytes(len(sampled))
        ids += (context, sampled)
        mask += (bytes(len(context) // 4), (b"\1" if is_trained else b"\0") * (end - start))
        logprobs += (bytes(len(context)), its_logprobs)
        spans.append(CompletionSpan(turn=position, start=start, end=end, trained=is_trained))
    return TokenHistory(
        token_ids=TokenIds(b"".join(ids)),
        loss_mask=b"".join(mask),
        logprobs=Logprobs(b"".join(logprobs)) if is_known else None,
        turns=tuple(path),
        spans=tuple(spans),
    )
