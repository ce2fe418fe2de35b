"""Agreement: whether what is trained of trajectories is what the policy sampled, by torch with the same weights.

A recorded log probability equals torch's, over the ids that stand before it in the batch, only where every id, mask and
position is right.
"""

import json
import subprocess
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import numpy as np

import art_otel
from art_otel.calls import InferenceCall
from art_otel.data import Batch
from art_otel.trajectories import Trajectory
from tests.data.token_rollouts import EVERYTHING
from tests.gaps import kinds
from tests.model_servers.llama import prompt_ids
from tests.model_servers.servers import ModelServer

_TORCH: Final = Path(__file__).with_name("torch_logprobs.py")


@dataclass
class Agreement:
    """`worst` is the greatest difference to torch. Counts are of tokens; what may be a fault is by the rollout's id.

    `compared` were trained with a log probability, `constrained` without one because a grammar forced them,
    `unknown` without one for no reason that is known. `uncounted` calls have other ids than the server counted.
    """

    trajectories: int = 0
    turns: int = 0
    compared: int = 0
    constrained: int = 0
    drifts: int = 0
    unknown: Counter[str] = field(default_factory=Counter[str])
    worst: dict[str, float] = field(default_factory=dict[str, float])
    twice: Counter[str] = field(default_factory=Counter[str])
    untrained: Counter[str] = field(default_factory=Counter[str])
    uncounted: list[str] = field(default_factory=list[str])
    skipped: Counter[str] = field(default_factory=Counter[str])
    without_ids: list[str] = field(default_factory=list[str])

    def __str__(self) -> str:
        name, worst = max(self.worst.items(), key=lambda item: item[1], default=("none", 0.0))
        return (
            f"{self.trajectories} rollouts, {self.turns} turns; {self.compared} tokens as torch has them, the worst"
            f" {worst:.1e} ({name}); {self.constrained} constrained; {self.unknown.total()} of unknown log probability"
            f" {dict(self.unknown)}; {self.twice.total()} trained twice; {self.untrained.total()} sampled and not"
            f" trained; not trained by reason {dict(self.skipped)}; {self.drifts} drifts; without ids"
            f" {self.without_ids}; not as many as counted {self.uncounted}"
        )


def agreement(trajectories: Sequence[Trajectory], server: ModelServer) -> Agreement:
    """Compare the batches of trajectories with torch, and with what the trajectories say was sampled."""
    result = Agreement(trajectories=len(trajectories))
    sampled: Counter[tuple[str, bytes]] = Counter()
    constrained: set[str] = set()
    for trajectory in trajectories:
        constrained |= {trajectory.rollout_id for call in trajectory.calls if call.is_constrained}
        _count_sampled(trajectory, sampled, result)
    batches = art_otel.batches(trajectories, batch_size=1, **EVERYTHING)
    rows = list(_rows(batches))
    result.skipped, result.drifts = batches.report.completions_skipped, batches.report.drifts
    trained: Counter[tuple[str, bytes]] = Counter()
    for row, expected in zip(rows, torch_logprobs(rows, server), strict=True):
        for at, logprob in zip(row.at, expected, strict=True):
            trained[row.rollout_id, row.ids[: at + 1].tobytes()] += 1
            if np.isnan(row.logprobs[at]):
                if row.rollout_id in constrained:
                    result.constrained += 1
                else:
                    result.unknown[row.rollout_id] += 1
                continue
            result.compared += 1
            difference = abs(float(row.logprobs[at]) - logprob)
            result.worst[row.rollout_id] = max(result.worst.get(row.rollout_id, 0.0), difference)
    for (rollout_id, _), number in (trained - sampled).items():
        result.twice[rollout_id] += number
    for (rollout_id, _), number in (sampled - trained).items():
        result.untrained[rollout_id] += number
    return result


def _count_sampled(trajectory: Trajectory, sampled: Counter[tuple[str, bytes]], result: Agreement) -> None:
    """Count each token that may be trained, by all that stand before it and itself."""
    for turn in trajectory.turns:
        result.turns += 1
        prompt = trajectory.calls[turn.call].prompt_token_ids
        if turn.token_ids is None or prompt is None:
            result.without_ids.append(trajectory.rollout_id)
        elif turn.tokens_untrained is None:
            ids = np.array([*prompt.tolist(), *turn.token_ids.tolist()], np.int32)
            for end in range(len(prompt), len(ids)):
                sampled[trajectory.rollout_id, ids[: end + 1].tobytes()] += 1
    for position, call in enumerate(trajectory.calls):
        ids = [turn.token_ids for turn in trajectory.turns if turn.call == position]
        counted = None if call.usage is None else call.usage.output_tokens
        if (
            ids
            and None not in ids
            and counted is not None
            and counted != sum(len(one) for one in ids if one is not None)
        ):
            result.uncounted.append(trajectory.rollout_id)


@dataclass(frozen=True)
class Row:
    """A row of a batch; `at` are the places of trained tokens."""

    rollout_id: str
    ids: "np.ndarray[tuple[int], np.dtype[np.int32]]"
    at: list[int]
    logprobs: "np.ndarray[tuple[int], np.dtype[np.float32]]"


def _rows(batches: Iterable[Batch]) -> Iterable[Row]:
    for batch in batches:
        at = np.flatnonzero(batch.loss_mask[0]).tolist()
        yield Row(batch.rollout_ids[0], batch.input_ids[0], at, batch.logprobs[0])


def torch_logprobs(rows: Sequence[Row], server: ModelServer) -> list[list[float]]:
    """What torch gives for the trained tokens of rows."""
    asked = "".join(json.dumps({"ids": row.ids.tolist(), "at": row.at}) + "\n" for row in rows)
    command = [str(server.python), str(_TORCH), str(server.model)]
    done = subprocess.run(command, input=asked, stdout=subprocess.PIPE, text=True, check=True, timeout=600)
    return [json.loads(line) for line in done.stdout.splitlines()]


def rows_of(name: str, call: InferenceCall, server: ModelServer) -> list[Row]:
    """A row for each choice of a call that has its ids."""
    assert call.usage is None or call.usage.output_tokens == sum(len(choice.token_ids) for choice in call.choices)
    rows = []
    for choice in call.choices:
        prompt = prompt_ids(server, call, choice.index)
        ids = [*prompt, *choice.token_ids.tolist()]
        at = list(range(len(prompt), len(ids)))
        logprobs = np.array([0.0] * len(prompt) + choice.logprobs.tolist(), np.float32)
        rows.append(Row(name, np.array(ids, np.int32), at, logprobs))
    return rows


def check_calls(trajectory: Trajectory, server: ModelServer, *, close: float, has_gaps: bool = False) -> str:
    """All ids are there, as many as the server counted, with torch's log probabilities but where a call is of a tool.

    A random model calls a tool only where a grammar binds it, which changes what is likely. With `has_gaps`, as of
    llama.cpp, a call has no ids where the server left some out, and says so. What was compared, in a line.
    """
    rows: list[Row] = []
    gaps = 0
    for call in trajectory.calls:
        assert call.error_type is None, call
        choices = call.choices or ()
        if has_gaps and "miscounted" in kinds(call):
            gaps += 1
            assert {choice.token_ids for choice in choices} == {None}, call
            continue
        assert call.prompt_token_ids is not None or has_gaps, call
        assert all(len(choice.token_ids) == len(choice.logprobs) for choice in choices), call
        if call.usage is not None and call.prompt_token_ids is not None:  # a client asks for that of a stream, or not
            assert call.usage.input_tokens == len(call.prompt_token_ids)
        if not any(choice.message.tool_calls for choice in choices):
            rows += rows_of(trajectory.rollout_id, call, server)
    if not gaps:
        assert trajectory.complete, trajectory.incomplete_reasons
        assert all(turn.tokens_untrained is None for turn in trajectory.turns)
    worst = 0.0
    for row, expected in zip(rows, torch_logprobs(rows, server), strict=True):
        worst = max(worst, *np.abs(row.logprobs[row.at] - np.array(expected)).tolist())
    tokens = sum(len(row.at) for row in rows)
    told = (
        f"{len(trajectory.calls)} calls, {gaps} without ids; {tokens} tokens as torch has them, the worst {worst:.1e}"
    )
    assert worst < close, told
    return told
