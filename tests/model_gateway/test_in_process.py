"""A gateway inside the app: a black-box agent's calls are those of the rollout that started it."""

import asyncio
import os
import subprocess
import sys

import openai

import art_otel
from tests.model_gateway.gateways import MODEL, recorded, user

AGENT = """
import json, os, sys, urllib.request
history = []
for question in sys.argv[1:]:
    history.append({"role": "user", "content": question})
    body = json.dumps({"model": "m", "messages": history}).encode()
    request = urllib.request.Request(os.environ["BASE_URL"] + "/chat/completions", body)
    history.append(json.load(urllib.request.urlopen(request))["choices"][0]["message"])
"""


def test_a_program_is_trained_on_by_a_base_url_alone(tmp_path, address):
    @art_otel.rollout(group_id="g")
    def solve(gateway, *questions: str) -> None:
        environment = {**os.environ, "BASE_URL": gateway.url("/v1")}
        subprocess.run([sys.executable, "-c", AGENT, *questions], env=environment, check=True, timeout=60)
        art_otel.reward(1.0)

    async def main() -> list[art_otel.Trajectory]:
        async with art_otel.gateway(address, dir=tmp_path) as gateway:
            asks = (("Hi", "and then?"), ("Ho", "why?"))
            rollouts = [asyncio.to_thread(solve, gateway, *questions) for questions in asks]
            return [*await art_otel.gather_trajectories(rollouts)]

    trajectories = asyncio.run(main())
    assert [len(one.calls) for one in trajectories] == [2, 2]
    for one in trajectories:
        assert one.complete, one.incomplete_reasons
        assert (one.reward, one.group_id, one.name.rpartition(".")[2]) == (1.0, "g", "solve")
        assert [turn.parent for turn in one.turns] == [None, 0]
        assert all(call.choices and call.choices[0].token_ids for call in one.calls)
    assert recorded(tmp_path) == []


def test_a_client_of_the_app_itself_gives_each_call_once(tmp_path, address):
    @art_otel.rollout
    def ask(gateway) -> None:
        with openai.OpenAI(base_url=gateway.url("/v1"), api_key="k") as client:
            for stream in (False, True):
                answer = client.chat.completions.create(model=MODEL, messages=user("Hi"), stream=stream)
                if stream:
                    list(answer)

    async def main() -> art_otel.Trajectory:
        async with art_otel.gateway(address, dir=tmp_path) as gateway:
            return await art_otel.gather_trajectory(asyncio.to_thread(ask, gateway))

    trajectory = asyncio.run(main())
    assert trajectory.complete, trajectory.incomplete_reasons
    assert len(trajectory.calls) == 2
    assert all(call.choices and call.choices[0].token_ids for call in trajectory.calls)


def test_what_no_rollout_asks_is_a_conversation(tmp_path, address):
    async def main() -> None:
        async with art_otel.gateway([address], dir=tmp_path) as gateway:
            program = [sys.executable, "-c", AGENT, "Hi", "and?"]
            environment = {**os.environ, "BASE_URL": gateway.url("/v1")}
            await asyncio.to_thread(subprocess.run, program, env=environment, check=True, timeout=60)

    asyncio.run(main())
    (trajectory,) = recorded(tmp_path)
    assert len(trajectory.calls) == 2
    assert trajectory.metadata == {"inferred": True}
