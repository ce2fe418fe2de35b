"""Rollouts with token ids, one by one and generated, and what batches make of them, taken apart again."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import numpy as np
from hypothesis import strategies as st
from msgspec import structs

from art_otel.data import Batch
from art_otel.data.choosing import MARKED, choose, parts_for
from art_otel.data.columns import CREDITING, columns_of
from art_otel.data.rewards import LARGEST, UNUSABLE
from art_otel.data.selection import Selection
from art_otel.store import FileLimits, write_trajectories
from art_otel.testing import trajectories
from art_otel.trajectories import PolicyVersions, Reward, Trajectory
from tests.data.rollouts import rollout
from tests.trajectories.agents import agent_calls
from tests.trajectories.calls import call, choice, with_sampled

STATUSES = ("ok", "error", "cancelled", "unfinished")
EVERYTHING = {
    "advantage": None,
    "allow_incomplete": True,
    "status": STATUSES,
    "split": "*",
    "images": "placeholders",
}
"""Options that refuse no trajectory, and no completion but those that are marked."""


def trainable(trajectory: Trajectory) -> Trajectory:
    """The trajectory whose token histories are what `EVERYTHING` trains.

    A completion that is marked untrained, or has a reward that is no usable number, is only context. Logprobs that a
    grammar masked are unknown.
    """
    calls = trajectory.calls
    unusable = None if trajectory.reward is None or abs(trajectory.reward) < LARGEST else UNUSABLE
    return with_sampled(
        trajectory,
        lambda turn: {
            "tokens_untrained": (turn.tokens_untrained or unusable)
            if calls[turn.call].marked_untrained is None
            else MARKED,
            "logprobs": None if calls[turn.call].has_masked_logprobs else turn.logprobs,
        },
    )


def talk(rollout_id: str, *sizes: int, steps: Sequence[int | None] = (), **fields) -> Trajectory:
    """A conversation: call k adds the token k to the prompt and samples so many tokens, all of them 100 + k."""
    ids, words, calls = [], [], []
    for number, size in enumerate(sizes):
        words.append(f"q{number}")
        ids.append(number)
        sampled = choice(f"a{number}", [100 + number] * size)
        step = steps[number] if number < len(steps) else None
        calls.append(call(number, " ".join(words), list(ids), sampled, step=step))
        words.append(f"a{number}")
        ids += [100 + number] * size
    return rollout(calls, rollout_id, **fields)


def judged(value: float | None, name: str = "reward", *, call: int | None = None, **fields) -> Reward:
    """A reward of the whole rollout, or of the call of that number."""
    target = None if call is None else f"{call:016x}"
    return Reward(name=name, value=value, source="evaluation", time_ns=0, target=target, **fields)


def skip_reason(selection: Selection, trajectory: Trajectory) -> str | None:
    """Why a trajectory alone is skipped."""
    (reason,) = choose(columns_of([trajectory], CREDITING | parts_for(selection)), selection, [None]).refused
    return reason


BROKEN = (float("nan"), float("inf"), 1e200)
"""Numbers that are no usable reward; only the last can be stored."""

_PARTS = [
    {},
    {"name": "a"},
    *({"step": step} for step in (0, 1, 2)),
    *({"call": number} for number in (0, 1, 2)),
    {"call": 0, "choice": 1},
    {"call": 0, "token_start": 0, "token_end": 1},
]
_VERSIONS = [
    None,
    *(PolicyVersions(first=f"step-{first}", last=f"step-{last}") for first, last in ((1, 1), (1, 2), (2, 2), (3, 3))),
    PolicyVersions(first="main", last="main"),
]
_STEPS = [(None,), (0,), (0, 1), (0, 0, 1, 2), (1, None, 0)]


@st.composite
def _agents(draw, rollout_id: str, calls, values) -> Trajectory:
    steps, version = draw(st.sampled_from(_STEPS)), draw(st.sampled_from([None, "step-2"]))
    told = [structs.replace(one, step=steps[at % len(steps)], policy_version=version) for at, one in enumerate(calls)]
    rewards = st.builds(lambda value, part: judged(value, **part), values, st.sampled_from(_PARTS))
    return rollout(
        told,
        rollout_id,
        group_id=draw(st.sampled_from(["g", "g", "h", None])),
        gathering=draw(st.sampled_from([None, None, "first", "second"])),
        reward=draw(values),
        rewards=tuple(draw(st.lists(rewards, max_size=4))),
        split=draw(st.sampled_from(["train", "train", "val", None])),
        status=draw(st.sampled_from(["ok", "ok", "ok", "error"])),
        incomplete_reasons=draw(st.sampled_from([{}, {}, {}, {"missing root": 1}])),
        policy_version=draw(st.sampled_from(_VERSIONS)),
    )


@st.composite
def rollouts(draw, max_size: int = 5, *, storable: bool = False) -> list[Trajectory]:
    """Rollouts of agents and trajectories of any kind, in the order of a dataset. Files hold those with finite rewards.

    Several may have had the same calls.
    """
    runs_ = st.sampled_from(draw(st.lists(agent_calls(), min_size=1, max_size=2)))
    values = st.sampled_from([None, 0.0, 0.0, 0.5, 1.0, -2.0, *(BROKEN[2:] if storable else BROKEN)])
    found: list[Trajectory] = []
    for number in range(draw(st.integers(0, max_size))):
        rollout_id = f"r-{number}"
        of_agents = draw(st.integers(0, 4)) > 0
        one = _agents(rollout_id, draw(runs_), values) if of_agents else trajectories(st.just(rollout_id), max_calls=2)
        found.append(draw(one))
    return found


@contextmanager
def stored(found: Sequence[Trajectory], rows: int = 2) -> Iterator[Path]:
    """A dataset of them, so many a row group and twice as many a file; removed afterwards."""
    with TemporaryDirectory() as folder:
        write_trajectories(found, folder, limits=FileLimits(group_rows=rows, part_rows=2 * rows))
        yield Path(folder)


class Piece(NamedTuple):
    """One sequence of a batch. Arrays are bytes, so that NaN equals NaN."""

    rollout_id: str
    group_id: str | None
    policy_version: str | None
    reward: str
    ids: bytes
    mask: bytes
    logprobs: bytes
    advantages: bytes | None


def pieces(batch: Batch) -> list[Piece]:
    """The sequences of a batch, which holds what is said of its arrays."""
    padding = batch.segment_ids == 0
    assert not batch.loss_mask[padding].any()
    for array in (batch.logprobs, batch.position_ids, *(() if batch.advantages is None else (batch.advantages,))):
        assert not array[padding].any()
    assert not np.isnan(batch.logprobs[~batch.loss_mask]).any()
    if batch.advantages is not None:
        assert not batch.advantages[~batch.loss_mask].any()
        assert np.isfinite(batch.advantages).all()
    count = len(batch.rewards)
    assert sorted(set(batch.segment_ids[~padding].tolist())) == list(range(1, count + 1))
    return [_piece(batch, number) for number in range(count)]


def _piece(batch: Batch, number: int) -> Piece:
    place = batch.segment_ids == number + 1
    assert place.any(axis=1).sum() == 1  # one row
    (where,) = np.nonzero(place.any(axis=0))
    assert np.ptp(where) + 1 == len(where)  # without a gap
    assert batch.position_ids[place].tolist() == list(range(len(where)))
    return Piece(
        rollout_id=batch.rollout_ids[number],
        group_id=batch.group_ids[number],
        policy_version=batch.policy_version[number],
        reward=repr(float(batch.rewards[number])),
        ids=batch.input_ids[place].tobytes(),
        mask=batch.loss_mask[place].tobytes(),
        logprobs=batch.logprobs[place].tobytes(),
        advantages=None if batch.advantages is None else batch.advantages[place].tobytes(),
    )


def all_pieces(found) -> list[Piece]:
    return [piece for batch in found for piece in pieces(batch)]


def bytes_of(batch: Batch) -> list[object]:
    """Everything in a batch, to be compared."""
    return [
        (name, array.shape, array.dtype.str, array.tolist() if array.dtype == object else array.tobytes())
        for name, array in batch.arrays().items()
    ]
