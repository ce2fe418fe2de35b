"""Trinity's request: its step-wise workflows, with signatures and loops as it wrote them, run without Trinity."""

import json

import pytest

from tests.requests.programs import run

pytestmark = pytest.mark.long

SETTING = """
import asyncio
import json
import os
import sys

import openai
import art_otel
from art_otel.workflows import {base} as Base

tracing = art_otel.configure(dir="traces")


class ModelWrapper:
    enable_history = True

    def get_openai_client(self):
        return openai.OpenAI(base_url=os.environ["MODEL_URL"], api_key="none")


class Guess(Base):
    def __init__(self, *, task, model, auxiliary_models=None, use_openai_client=True):
        super().__init__(
            task=task, model=model, auxiliary_models=auxiliary_models, use_openai_client=use_openai_client
        )
        self.seen = []

    @property
    def max_step_num(self):
        return 3

    def ask(self, step_num):
        content = f"{{self.task}} {{step_num}}"
        answer = self.client.chat.completions.create(model="m", messages=[{{"role": "user", "content": content}}], n=2)
        self.seen.append([choice.message.content for choice in answer.choices])
        return step_num < 1

    def judge(self, exps, step_num=None):
        assert [exp.response_text for exp in exps] == sum(self.seen[slice(step_num, None)], [])
        return len(exps) + (step_num or 0) / 4
"""

SYNC = """
    def step(self, step_num: int) -> bool:
        return self.ask(step_num)

    def reward(self, exps, {step}) -> float:
        return self.judge(exps, {step})

workflow = Guess(task="which?", model=ModelWrapper())
exps = workflow.run()
"""

ASYNC = """
    async def step_async(self, step_num: int) -> bool:
        return self.ask(step_num)

    async def reward_async(self, exps, {step}) -> float:
        return self.judge(exps, {step})

workflow = Guess(task="which?", model=ModelWrapper())
exps = asyncio.run(workflow.run_async())
"""

LOOK = """
for exp in exps:
    own = exp.tokens[exp.prompt_length:].tolist()
    assert own == exp.choice.token_ids.tolist() and len(own) == len(exp.logprobs)
    print(json.dumps([exp.eid.step, exp.reward, exp.metrics["actual_env_steps"]]))
exps[-1].reward = 9
tracing.shutdown()
art_otel.convert("traces/spool", "out")
(found,) = art_otel.read_trajectories("out")
assert found.complete and [call.span_id for call in found.calls] == list(dict.fromkeys(exp.eid.suffix for exp in exps))
calls = [call.span_id for call in found.calls]
print(json.dumps([[one.value, one.step, one.choice, one.target in calls] for one in found.rewards]))
print(json.dumps("trinity" in sys.modules))
"""


@pytest.mark.parametrize("body", [SYNC, ASYNC])
@pytest.mark.parametrize("kind", ["StepWise", "Propagation"])
def test_the_request_runs_as_written(server, tmp_path, body, kind):
    base = {"StepWise": "StepWiseRewardWorkflow", "Propagation": "RewardPropagationWorkflow"}[kind]
    setting = SETTING.format(base=base if body is SYNC else f"Async{base}")
    program = body.format(step="step_num" if kind == "StepWise" else "")
    *experiences, rewards, loaded = run(tmp_path, server.url, setting + program, LOOK, ART_OTEL_REQUEST_TOKENS="1")
    set_later = [9.0, 1, 1, True]
    if kind == "StepWise":
        assert experiences == [[0, 2.0, 2.0]] * 2 + [[1, 2.25, 2.0]] * 2
        given = [[2.0, 0, None, False], [2.25, 1, None, False], set_later]
    else:
        assert experiences == [[0, 4.0, 2.0]] * 2 + [[1, 4.0, 2.0]] * 2
        given = [[4.0, None, None, False], set_later]
    assert sorted(rewards, key=json.dumps) == sorted(given, key=json.dumps)
    assert not loaded
