"""Runs in verl's environment: the recipe docs/loop/verl_agent_loop.py, with each row of its batches printed beside what
the server sampled. A step more is played as the V1 trainer asks for it: with every history of a rollout.
"""

import asyncio
import json

import verl_agent_loop
from verl_agent_loop import GuideLoop

SAMPLED: list[tuple[list[int], list[int]]] = []
"""The prompt and the completion of each call."""
SAID: dict[int, str] = {}
"""What the rollout of a seed answered."""
HISTORIES: list[dict] = []


class Watched:
    """The policy; it notes what it samples."""

    def __init__(self) -> None:
        self.policy = untrained()

    def sample(self, prompt, seed):
        sampled = self.policy.sample(prompt, seed)
        SAMPLED.append((list(prompt), list(sampled.token_ids)))
        return sampled


untrained, guide = verl_agent_loop.untrained, verl_agent_loop.guide


def noted(client, topic, city, readings, seed):
    SAID[seed] = guide(client, topic, city, readings, seed)
    return SAID[seed]


class Everything(GuideLoop):
    """As V1's worker calls it, which names the session."""

    async def run(self, sampling_params, **row):
        outputs = await super().run(sampling_params, session_id=0, **row)
        HISTORIES.extend({name: value.tolist() for name, value in fields_of(output).items()} for output in outputs)
        return outputs[-1]


def fields_of(output) -> dict:
    fields = output.as_dict()
    return {name: fields[name] for name in ("prompts", "responses", "response_mask", "rollout_log_probs", "rm_scores")}


def computed(ids: list[int]) -> dict:
    """The mask of a row, and its logprobs, from what the server sampled and the weights alone."""
    policy, mask, logprobs = untrained(), [0] * len(ids), [0.0] * len(ids)
    for prompt, completion in SAMPLED:
        start, end = len(prompt), len(prompt) + len(completion)
        if ids[:end] == prompt + completion:
            mask[start:end] = [1] * len(completion)
            logprobs[start:end] = [float(policy.logprobs(ids[:at])[ids[at]]) for at in range(start, end)]
    return {"mask": mask, "logprobs": logprobs}


def rows_of(batch) -> list[dict]:
    rows = []
    width = batch.batch["prompts"].shape[1]
    for at in range(len(batch)):
        there = batch.batch["attention_mask"][at].bool()
        response = there[width:]
        seed = int(batch.non_tensor_batch["index"][at])
        task = verl_agent_loop.make_task(0, 0, int(batch.non_tensor_batch["raw_prompt"][at][0]["content"]))
        ids = batch.batch["input_ids"][at][there].tolist()
        rows.append(
            {
                "prompt_tokens": int(there[:width].sum()),
                "computed": computed(ids),
                "mask": batch.batch["response_mask"][at][response].tolist(),
                "logprobs": batch.batch["rollout_log_probs"][at][response].tolist(),
                "scores": batch.batch["rm_scores"][at][response].tolist(),
                "reward": task.score(SAID[seed]) + 0.1 * (SAID[seed] != ""),
                "advantage": float(batch.batch["advantages"][at].sum() / batch.batch["response_mask"][at].sum()),
                "uid": batch.non_tensor_batch["uid"][at],
                "versions": [batch.non_tensor_batch[f"{end}_global_steps"][at] for end in ("min", "max")],
                "turns": int(batch.non_tensor_batch["__num_turns__"][at]),
            }
        )
    return rows


async def main() -> None:
    verl_agent_loop.untrained, verl_agent_loop.guide = Watched, noted
    batches = await verl_agent_loop.roll_out(2)
    print(json.dumps({"steps": [rows_of(batch) for batch in batches], "skipped": GuideLoop.skipped}))
    GuideLoop.skipped.clear()
    SAMPLED.clear()
    verl_agent_loop.register("guide")(Everything)
    await verl_agent_loop.roll_out(1)
    print(json.dumps({"histories": HISTORIES, "sampled": SAMPLED, "skipped": GuideLoop.skipped}))


async def nothing() -> None:
    """A rollout that fails leaves nothing to train: the older worker is given a row all the same."""

    def failing(*_):
        raise ConnectionError

    verl_agent_loop.guide = failing
    GuideLoop.skipped.clear()
    verl_agent_loop.register("guide")(GuideLoop)
    (batch,) = await verl_agent_loop.roll_out(1)
    told = {name: batch.batch[name].sum().item() for name in ("attention_mask", "response_mask", "rm_scores")}
    print(json.dumps({"failed": told, "skipped": GuideLoop.skipped}))


if __name__ == "__main__":
    asyncio.run(main())
    asyncio.run(nothing())
