"""Runs in Trinity-RFT's environment: its own workflow classes, model wrapper and client on planned calls; prints JSON.

Trinity's model wrapper imports vLLM for what it makes of images. vLLM takes gigabytes and a GPU's libraries, and no
call here has an image, so its names are stood in for. What makes steps, experiences and rewards is Trinity's own.
"""

import asyncio
import importlib
import importlib.abc
import importlib.machinery
import json
import sys
from unittest.mock import MagicMock

from plan import reward_of


class _NoVllm(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(self, fullname, path=None, target=None):  # noqa: ARG002 # importlib's signature
        return importlib.machinery.ModuleSpec(fullname, self) if fullname.split(".")[0] == "vllm" else None

    def create_module(self, spec):
        return MagicMock(name=spec.name, __path__=[], __spec__=spec)

    def exec_module(self, module):
        pass


sys.meta_path.insert(0, _NoVllm())
Config = importlib.import_module("trinity.common.config").InferenceModelConfig
ModelWrapper = importlib.import_module("trinity.common.models.model").ModelWrapper
workflows = importlib.import_module("trinity.common.workflows.step_wise_workflow")
Task = importlib.import_module("trinity.common.workflows.workflow").Task


def completions(exps) -> list[list[int]]:
    return [exp.tokens[exp.prompt_length :].tolist() for exp in exps]


class _WithoutActor(ModelWrapper):
    model_path = "planned"


def wrapper(url: str) -> ModelWrapper:
    """Trinity's own client of the server."""
    options = {"model_path": "planned", "engine_type": "external", "enable_openai_api": True, "enable_history": True}
    address = url.removesuffix("/v1")
    if "api_key" in Config.__dataclass_fields__:
        return ModelWrapper(config=Config(**options, api_key="none"), api_address=address)
    # 0.5.2 asks an actor of Ray for these.
    model = _WithoutActor(None, enable_history=True)
    model.config, model.api_address, model._api_key = Config(**options), address, "none"
    model._engine_type, model._model_name = "external", "planned"
    return model


class _Planned:
    def __init__(self, plan: dict, url: str) -> None:
        super().__init__(task=Task(), model=wrapper(url))
        self.plan = plan

    @property
    def max_step_num(self):
        return self.plan["max_step_num"]

    def ask(self, step_num: int) -> bool:
        for question in self.plan["steps"][step_num]["asks"]:
            messages = [{"role": "user", "content": question["content"]}]
            self.client.chat.completions.create(model="planned", messages=messages, n=question["n"])
        return self.plan["steps"][step_num]["goes_on"]


class StepWise(_Planned, workflows.StepWiseRewardWorkflow):
    def step(self, step_num):
        return self.ask(step_num)

    def reward(self, exps, step_num):
        return reward_of(completions(exps), step_num)


class AsyncStepWise(_Planned, workflows.AsyncStepWiseRewardWorkflow):
    async def step_async(self, step_num):
        return self.ask(step_num)

    async def reward_async(self, exps, step_num):
        return reward_of(completions(exps), step_num)


class Propagation(_Planned, workflows.RewardPropagationWorkflow):
    def step(self, step_num):
        return self.ask(step_num)

    def reward(self, exps):
        return reward_of(completions(exps))


class AsyncPropagation(_Planned, workflows.AsyncRewardPropagationWorkflow):
    async def step_async(self, step_num):
        return self.ask(step_num)

    async def reward_async(self, exps):
        return reward_of(completions(exps))


def run(kind: type, plan: dict, url: str) -> list[dict]:
    workflow = kind(plan, url)
    exps = asyncio.run(workflow.run_async()) if workflow.is_async else workflow.run()
    return [
        {
            "prompt": exp.tokens[: exp.prompt_length].tolist(),
            "completion": exp.tokens[exp.prompt_length :].tolist(),
            "reward": exp.reward,
            "step": exp.eid.step,
            "metrics": exp.metrics,
        }
        for exp in exps
    ]


def main(plans: str, url: str) -> None:
    kinds = (StepWise, AsyncStepWise, Propagation, AsyncPropagation)
    found = {kind.__name__: [run(kind, plan, url) for plan in json.loads(plans)] for kind in kinds}
    print("\n" + json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
