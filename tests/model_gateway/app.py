"""An app with a gateway inside: `python -m tests.model_gateway.app CASE ADDRESS FOLDER`.

It is a process of its own, because what gathers traces the process from then on.
"""

import asyncio
import os
import subprocess
import sys
import threading
from collections import Counter

import httpx
import openai
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ParentBased

import art_otel
from tests.model_gateway import record_vllm
from tests.model_gateway.exact_cases import requests
from tests.model_gateway.test_other_requests import agreeing_server
from tests.model_gateway.test_untrained import MARKS, ask_all

AGENT = """
import json, os, sys, urllib.request
history = []
for question in sys.argv[1:]:
    history.append({"role": "user", "content": question})
    body = json.dumps({"model": "m", "messages": history}).encode()
    request = urllib.request.Request(os.environ["BASE_URL"] + "/chat/completions", body)
    history.append(json.load(urllib.request.urlopen(request))["choices"][0]["message"])
"""


def run_agent(url: str, *questions: str) -> None:
    environment = {**os.environ, "BASE_URL": url}
    subprocess.run([sys.executable, "-c", AGENT, *questions], env=environment, check=True, timeout=60)


@art_otel.rollout(group_id="g")
def solve(gateway, *questions: str) -> None:
    run_agent(gateway.url("/v1"), *questions)
    art_otel.reward(1.0)


@art_otel.rollout
def solve_judged(gateway) -> None:
    """The policy's agent asks before and after a judge, by an address that it had before there was one."""
    url = gateway.url("/v1")
    run_agent(url, "Hi")
    with art_otel.untrained("a/judge"):
        judge = gateway.url("/v1")
        run_agent(judge, "Was it good?")
    run_agent(url, "Ho")
    run_agent(judge, "Was it better?")


@art_otel.rollout
def ask(gateway) -> None:
    with openai.OpenAI(base_url=gateway.url("/v1"), api_key="k") as client:
        for stream in (False, True):
            messages = [{"role": "user", "content": "Hi"}]
            answer = client.chat.completions.create(model="m", messages=messages, stream=stream)
            if stream:
                list(answer)


@art_otel.rollout
def end(gateway) -> int:
    """Give a reward as agents do that have no app around them."""
    assert gateway.url("end") == gateway.url("/end")
    return httpx.post(gateway.url("/end"), json={"reward": 1}, timeout=30).status_code


@art_otel.rollout
def leave(gateway, text: str) -> threading.Thread:
    """Return while a stream of the agent runs, which a thread reads to its end."""
    url, has_begun = gateway.url("/v1/chat/completions"), threading.Event()
    body = {"model": "m", "messages": [{"role": "user", "content": text}], "stream": True}

    def read() -> None:
        with httpx.stream("POST", url, json=body, timeout=60) as response:
            for _ in response.iter_bytes():
                has_begun.set()

    reading = threading.Thread(target=read)
    reading.start()
    assert has_begun.wait(30)
    return reading


@art_otel.rollout
def ask_exactly(gateway) -> None:
    path, body = requests(record_vllm.MODEL)[0]
    httpx.post(gateway.url(path), json=body, timeout=30).raise_for_status()


@art_otel.rollout
def solve_with(gateway, program: str, task: str) -> None:
    environment = {**os.environ, "ANTHROPIC_BASE_URL": gateway.url()}
    said = subprocess.run([program, "-p", task], env=environment, stdout=subprocess.PIPE, text=True, check=True)
    art_otel.reward(float("HELLO" in said.stdout))


async def claude(address: str, folder: str, program: str) -> None:
    """Claude Code in two rollouts at once."""
    async with art_otel.gateway(address, dir=folder) as gateway:
        rollouts = [
            asyncio.to_thread(solve_with, gateway, program, f"Say it. #say={word}") for word in ("HELLO", "BYE")
        ]
        trajectories = [*await art_otel.gather_trajectories(rollouts)]
    assert sorted(one.reward for one in trajectories) == [0.0, 1.0]
    for one in trajectories:
        assert one.complete, one.incomplete_reasons
        print(*(call.response_id for call in one.calls))


async def agents(address: str, folder: str) -> None:
    """Two rollouts at once, whose agents are other programs."""
    async with art_otel.gateway(address, dir=folder) as gateway:
        asks = (("Hi", "and then?"), ("Ho", "why?"))
        rollouts = [asyncio.to_thread(solve, gateway, *questions) for questions in asks]
        trajectories = [*await art_otel.gather_trajectories(rollouts)]
    assert [len(one.calls) for one in trajectories] == [2, 2]
    for one in trajectories:
        assert one.complete, one.incomplete_reasons
        assert (one.reward, one.group_id, one.name) == (1.0, "g", "solve")
        assert [turn.parent for turn in one.turns] == [None, 0]
        assert all(call.choices and call.choices[0].token_ids for call in one.calls)


async def judged(address: str, folder: str) -> None:
    """A judge's address says so, in the rollout and outside of every one."""
    async with art_otel.gateway(address, dir=folder) as gateway:
        trajectory = await art_otel.gather_trajectory(asyncio.to_thread(solve_judged, gateway))
        with art_otel.untrained("a/judge"):
            await asyncio.to_thread(run_agent, gateway.url("/v1"), "Alone")
    assert trajectory.complete, trajectory.incomplete_reasons
    assert [call.marked_untrained for call in trajectory.calls] == [None, "a/judge", None, "a/judge"]


@art_otel.rollout
def ask_with_helpers(gateway) -> None:
    ask_all(gateway.url())


async def helpers(address: str, folder: str) -> None:
    """The agent's side calls ask for other models, by the same address."""
    async with art_otel.gateway(address, dir=folder, models=["policy-*", "!*judge*"]) as gateway:
        trajectory = await art_otel.gather_trajectory(asyncio.to_thread(ask_with_helpers, gateway))
        await asyncio.to_thread(run_agent, gateway.url("/v1"), "Alone")
    assert trajectory.complete, trajectory.incomplete_reasons
    assert Counter((call.request_model, call.marked_untrained) for call in trajectory.calls) == MARKS


@art_otel.rollout
def ask_too_often(gateway, limit: str) -> list[str]:
    return [
        httpx.post(gateway.url(f"{limit}/v1/messages"), json=_MESSAGES, timeout=30).json()["content"][0]["text"]
        for _ in range(4)
    ]


_MESSAGES = {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "Hi"}]}


async def limited(address: str, folder: str) -> None:
    """A rollout of the app has had all its calls; the next rollout has its own."""
    async with art_otel.gateway(address, dir=folder, max_calls=3) as gateway:
        for _ in range(2):
            trajectory = await art_otel.gather_trajectory(asyncio.to_thread(ask_too_often, gateway, ""))
            assert ["The rollout has ended" in said for said in trajectory.result] == [False, False, False, True]
            assert (len(trajectory.calls), trajectory.metadata) == (3, {"max_calls_reached": True})
            assert trajectory.complete, trajectory.incomplete_reasons


async def client(address: str, folder: str) -> None:
    """The app asks by itself, and its client is traced as well."""
    async with art_otel.gateway(address, dir=folder) as gateway:
        trajectory = await art_otel.gather_trajectory(asyncio.to_thread(ask, gateway))
    assert trajectory.complete, trajectory.incomplete_reasons
    assert len(trajectory.calls) == 2
    assert all(call.choices and call.choices[0].token_ids for call in trajectory.calls)
    async with art_otel.gateway(address, dir=folder, max_calls=1) as gateway:
        trajectory = await art_otel.gather_trajectory(asyncio.to_thread(ask, gateway))
    assert [call.marked_untrained for call in trajectory.calls] == [None, "limit of calls"]
    assert trajectory.complete, trajectory.incomplete_reasons


@art_otel.rollout
def ask_ollama(gateway) -> int:
    run_agent(gateway.url("/v1"), "Hi")
    return httpx.post(gateway.url("/api/chat"), json={"messages": []}, timeout=30).status_code


async def unread(_address: str, folder: str) -> None:
    """An agent asks in a dialect that the gateway does not know, too."""
    with agreeing_server() as (url, _):
        async with art_otel.gateway(url, dir=folder) as gateway:
            trajectory = await art_otel.gather_trajectory(asyncio.to_thread(ask_ollama, gateway))
    assert (trajectory.result, trajectory.incomplete_reasons) == (200, {"request unread": 1})
    assert len(trajectory.calls) == 1


async def unsampled(address: str, folder: str) -> None:
    """The app's sampler drops the trace: it is recorded, and exporters get none of it."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider(sampler=ParentBased(ALWAYS_OFF))
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    trace.set_tracer_provider(provider)
    await client(address, folder)
    assert exporter.get_finished_spans() == ()


async def late(address: str, folder: str) -> None:
    """Rollouts return while a call of theirs runs; the second one's ends after the grace."""
    async with art_otel.gateway(address, dir=folder) as gateway:
        for pace, grace, reasons in (("0.02", 30.0, {}), ("0.2", 0.1, {"not ended": 1, "no content": 1})):
            work = asyncio.to_thread(leave, gateway, f"Hi #words=10 #pace={pace}")
            trajectory = await art_otel.gather_trajectory(work, grace_seconds=grace)
            assert trajectory.incomplete_reasons == reasons, trajectory.incomplete_reasons
            (call,) = trajectory.calls
            assert bool(call.choices and call.choices[0].token_ids) == trajectory.complete
            await asyncio.to_thread(trajectory.result.join)


async def ended(address: str, folder: str) -> None:
    """A rollout of the app is ended by its function, and by no request."""
    async with art_otel.gateway(address, dir=folder) as gateway:
        trajectory = await art_otel.gather_trajectory(asyncio.to_thread(end, gateway))
    assert (trajectory.result, trajectory.reward) == (409, None)


async def exact(address: str, folder: str) -> None:
    """What became of prompts is metadata of the app's rollout."""
    async with art_otel.gateway(address, dir=folder, tokens="exact") as gateway:
        trajectory = await art_otel.gather_trajectory(asyncio.to_thread(ask_exactly, gateway))
    assert trajectory.complete, trajectory.incomplete_reasons
    assert trajectory.metadata == {"prompts_not_needed": 1}


async def outside(address: str, folder: str) -> None:
    """Nobody runs a rollout."""
    async with art_otel.gateway([address], dir=folder) as gateway:
        await asyncio.to_thread(run_agent, gateway.url("/v1"), "Hi", "and?")


if __name__ == "__main__":
    cases = (agents, limited, claude, judged, helpers, client, unsampled, unread, late, ended, exact, outside)
    asyncio.run({case.__name__: case for case in cases}[sys.argv[1]](*sys.argv[2:]))
