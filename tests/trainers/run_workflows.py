"""Runs traced by art-otel: the planned calls in our workflow classes, by the agent's own client."""

import asyncio
import json
import sys

from openai import OpenAI

import art_otel.workflows
from tests.trainers.plan import reward_of


def completions(exps) -> list[list[int]]:
    return [exp.tokens[exp.prompt_length :].tolist() for exp in exps]


class Model:
    def __init__(self, url: str) -> None:
        self._url = url

    def get_openai_client(self) -> OpenAI:
        return OpenAI(base_url=self._url, api_key="none")


class _Planned:
    def __init__(self, plan: dict, url: str) -> None:
        super().__init__(task=plan, model=Model(url))
        self.plan = plan

    @property
    def max_step_num(self):
        return self.plan["max_step_num"]

    def ask(self, step_num: int) -> bool:
        for question in self.plan["steps"][step_num]["asks"]:
            messages = [{"role": "user", "content": question["content"]}]
            self.client.chat.completions.create(model="planned", messages=messages, n=question["n"])
        return self.plan["steps"][step_num]["goes_on"]


class StepWise(_Planned, art_otel.workflows.StepWiseRewardWorkflow):
    def step(self, step_num):
        return self.ask(step_num)

    def reward(self, exps, step_num):
        return reward_of(completions(exps), step_num)


class AsyncStepWise(_Planned, art_otel.workflows.AsyncStepWiseRewardWorkflow):
    async def step_async(self, step_num):
        return self.ask(step_num)

    async def reward_async(self, exps, step_num):
        return reward_of(completions(exps), step_num)


class Propagation(_Planned, art_otel.workflows.RewardPropagationWorkflow):
    def step(self, step_num):
        return self.ask(step_num)

    def reward(self, exps):
        return reward_of(completions(exps))


class AsyncPropagation(_Planned, art_otel.workflows.AsyncRewardPropagationWorkflow):
    async def step_async(self, step_num):
        return self.ask(step_num)

    async def reward_async(self, exps):
        return reward_of(completions(exps))


def main(plans: str, url: str) -> None:
    for number, plan in enumerate(json.loads(plans)):
        for kind in (StepWise, AsyncStepWise, Propagation, AsyncPropagation):
            workflow = kind(plan, url)
            with art_otel.rollout(name=kind.__name__, attempt=number):
                asyncio.run(workflow.run_async()) if hasattr(workflow, "run_async") else workflow.run()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
