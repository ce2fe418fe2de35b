"""Runs in ART's environment: the recipe docs/loop/art_local.py, with what ART packed beside what numpy makes of it."""

import asyncio
import json
from collections.abc import Iterator

import art_local
import numpy as np
import torch
from art.preprocessing.pack import packed_tensors_from_dir

from art_otel import TrajectoryGroup
from art_otel.trajectories import token_histories

PLAYED = []
PACKED = ("tokens", "assistant_mask", "logprobs", "advantages", "weights")


class Watching(art_local.OnCpu):
    """The service; of each step it says how far ART's batch, logprobs and loss are from those of its own."""

    async def train(self, packed, *rest):
        rows = packed_tensors_from_dir(**packed)
        theirs = by_row([rows[name].double().numpy() for name in PACKED])
        ours = by_row(batch(PLAYED[-1], theirs[0].shape[1], pad=int(theirs[0][0, -1])))
        tokens, mask, sampled, advantages, weights = ours
        with torch.no_grad():
            own = self.policy(torch.from_numpy(tokens).long()).logits.log_softmax(-1).double().numpy()
        present = np.zeros(tokens.shape)
        present[:, 1:] = np.take_along_axis(own[:, :-1], tokens[:, 1:, None].astype(int), axis=2)[:, :, 0]
        trained = mask == 1
        ratio = np.clip(np.exp(present - sampled)[trained], 0, 5)
        loss = -(ratio * advantages[trained] * present[trained] * weights[trained]).sum() / trained.sum()
        async for metrics in super().train(packed, *rest):
            yield metrics
        told = {
            "version": self.server.serving[1],
            "versions": sorted({call.policy_version for group in PLAYED[-1] for one in group for call in one.calls}),
            "rows": len(tokens),
            "interior": sum(interior(row) for row in trained),
            "same_tokens_and_masks": all(np.array_equal(*pair) for pair in zip(theirs[:2], ours[:2], strict=True)),
            "packed_difference": max(
                float(np.abs(one - other)[trained].max()) for one, other in zip(theirs[2:], ours[2:], strict=True)
            ),
            "logprob_difference": float(np.abs(present - sampled)[trained].max()),
            "loss_difference": abs(loss - metrics["loss/train"]),
            "weights": float(sum(part.double().abs().sum() for part in self.policy.parameters())),
        }
        print(json.dumps(told))


def batch(groups: list[TrajectoryGroup], length: int, pad: int) -> list[np.ndarray]:
    """The rows of a step, of shape (rows, length) each: GRPO's advantages, and each rollout as much as another."""
    found = list(sequences(groups))
    tokens, logprobs = np.full((len(found), length), float(pad)), np.full((len(found), length), np.nan)
    mask, advantages, weights = np.zeros((3, len(found), length))
    for row, (history, advantage, weight) in enumerate(found):
        size = len(history.token_ids)
        trained = np.frombuffer(history.loss_mask, dtype=np.uint8) == 1
        tokens[row, :size], mask[row, :size] = history.token_ids.tolist(), trained
        logprobs[row, :size][trained] = np.array(history.logprobs.tolist())[trained]
        advantages[row, :size][trained], weights[row, :size][trained] = advantage, weight
    weights /= weights[mask == 1].mean()
    advantages /= (np.abs(advantages) * weights)[mask == 1].mean()
    return [tokens, mask, logprobs, advantages, weights]


def sequences(groups: list[TrajectoryGroup]) -> Iterator[tuple]:
    """The token histories whose advantage is not 0, with it and the weight of each token."""
    for group in groups:
        rewards = np.array([one.reward for one in group])
        for one, reward in zip(group, rewards, strict=True):
            advantage = (reward - rewards.mean()) / (rewards.std() + 1e-6)
            histories = token_histories(one)
            if rewards.max() > rewards.min() and advantage != 0:
                weight = 1 / sum(sum(history.loss_mask) for history in histories)
                yield from ((history, advantage, weight) for history in histories)


def by_row(arrays: list[np.ndarray]) -> list[np.ndarray]:
    """The rows in the order of their tokens, and of their worths where sub-agents said the same: ART shuffles them."""
    tokens, _, _, advantages, weights = arrays
    order = np.lexsort(np.vstack([weights.round(3).T, advantages.round(3).T, tokens.T]))
    return [array[order] for array in arrays]


def interior(trained: np.ndarray) -> int:
    """How many tokens of a row are context between sampled ones."""
    first, last = np.flatnonzero(trained)[[0, -1]]
    return int((~trained[first:last]).sum())


def main() -> None:
    played = art_local.play

    async def watched(*arguments):
        PLAYED.append(await played(*arguments))
        return PLAYED[-1]

    art_local.play, art_local.OnCpu = watched, Watching
    asyncio.run(art_local.train(3))


if __name__ == "__main__":
    main()
