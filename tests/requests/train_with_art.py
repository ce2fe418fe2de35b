"""Runs in ART's environment: the request's log calls on rollouts of art-otel, and groups to train on; prints JSON."""

import asyncio
import json
import os
import sys
from pathlib import Path

import art
from art.utils.trajectory_logging import read_trajectory_groups_parquet
from openai import AsyncOpenAI

import art_otel
from art_otel_art import art_groups

client = AsyncOpenAI(base_url=os.environ["MODEL_URL"], api_key="none")


@art_otel.rollout
async def rollout(number: int) -> str:
    completion = await client.chat.completions.create(model="m", messages=[{"role": "user", "content": f"{number}"}])
    if number == 2:
        raise ValueError("no reward for this one")
    art_otel.reward(number)
    return completion.choices[0].message.content


async def main(base: str) -> None:
    groups = await art_otel.gather_trajectory_groups(
        {"task": [rollout(number) for number in range(3)]}, max_exceptions=1
    )
    log = art_otel.RunLog("p", "ours", base, report_metrics=[])
    entry = await log.log(groups, split="val")
    step = await log.get_step()

    trajectory_groups = art_groups(groups)
    model = art.TrainableModel(name="theirs", project="p", base_model="none", base_path=base, report_metrics=[])
    await model.log(trajectory_groups, split="val", step=0)

    files = [entry.file, *sorted(Path(model._get_output_dir()).glob("trajectories/*/*.parquet"))]
    (group,) = trajectory_groups
    assert isinstance(group, art.TrajectoryGroup)
    choices = [one.messages_and_choices[-1] for one in group.trajectories]
    told = {
        "step": step,
        "rewards": [
            sorted(one.reward for found in read_trajectory_groups_parquet(file) for one in found) for file in files
        ],
        "unrewarded": [one.error for one in art_otel.read_trajectories(entry.unrewarded)],
        "trained": [[len(choice.logprobs.content), choice.message.content] for choice in choices],
        "results": [[len(one.turns[0].token_ids), one.result] for one in groups[0] if one.status == "ok"],
        "exceptions": [one.message for one in group.exceptions],
        "row": sorted(json.loads((log.folder.history).read_text())),
    }
    print(json.dumps(told))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
