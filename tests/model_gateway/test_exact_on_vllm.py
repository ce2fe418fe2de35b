"""Exact tokens on a real vLLM: `ART_OTEL_VLLM_URL` names one that runs with --enable-scale-out and both parsers."""

import os
from itertools import pairwise

import httpx
import pytest

from tests.model_gateway.exact_cases import PLAIN, comparable, requests, user
from tests.model_gateway.gateways import gateway, recorded

URL = os.environ.get("ART_OTEL_VLLM_URL", "")
MODEL = os.environ.get("ART_OTEL_VLLM_MODEL", "tiny")
pytestmark = pytest.mark.skipif(not URL, reason="ART_OTEL_VLLM_URL names no server")
TURNS = int(os.environ.get("ART_OTEL_VLLM_TURNS", "30"))


def test_to_the_agent_it_is_the_server_and_every_id_is_known(tmp_path):
    with gateway(tmp_path, URL, tokens="exact") as running, httpx.Client(timeout=60) as client:
        for number, (path, body) in enumerate(requests(MODEL)):
            own = client.post(f"{URL}{path}", json=body)
            ours = client.post(f"{running.url}/rollout/{number}{path}", json=body)
            assert comparable(ours) == comparable(own), (path, body)
    calls = [call for trajectory in recorded(tmp_path) for call in trajectory.calls]
    assert len(calls) == len(requests(MODEL))
    for call in calls:
        if call.extra["prompt"] != "passed_through":
            assert call.prompt_token_ids is not None
            assert all(len(choice.token_ids) == len(choice.logprobs) > 0 for choice in call.choices)


def ask(client: httpx.Client, url: str, dialect: str, conversation: list[dict], **more: object) -> list[dict]:
    """Ask for the next turn, and give what an agent puts behind its conversation."""
    body = {"model": MODEL, "temperature": 1.0, **PLAIN, **more}
    if dialect == "chat":
        body |= {"messages": conversation, "max_tokens": 20}
        return [client.post(f"{url}/v1/chat/completions", json=body).json()["choices"][0]["message"]]
    if dialect == "messages":
        body |= {"messages": conversation, "max_tokens": 20}
        answer = client.post(f"{url}/v1/messages", json=body).json()
        return [{"role": "assistant", "content": answer["content"]}]
    body |= {"input": conversation, "max_output_tokens": 20}
    return client.post(f"{url}/v1/responses", json=body).json()["output"]


@pytest.mark.parametrize("dialect", ["chat", "messages", "responses"])
def test_turns_whose_text_is_unchanged_do_not_drift(tmp_path, dialect):
    with gateway(tmp_path, URL, tokens="exact") as running, httpx.Client(timeout=60) as client:
        for rollout in range(0, TURNS, 10):
            conversation: list[dict] = []
            for turn in range(10):
                conversation += user(["Go on", "\n\nAnd?", "é 你好"][turn % 3])
                conversation += ask(client, f"{running.url}/rollout/{rollout}", dialect, conversation)
    trajectories = recorded(tmp_path)
    assert sum(len(trajectory.calls) for trajectory in trajectories) == TURNS
    for trajectory in trajectories:
        assert {call.extra["prompt"] for call in trajectory.calls} <= {"spliced", "not_needed"}
        for one, other in pairwise(trajectory.calls):
            if dialect == "responses" and not one.choices[0].message.content:
                continue  # an empty answer has no item that could be sent back
            path = [*one.prompt_token_ids, *one.choices[0].token_ids]
            assert [*other.prompt_token_ids][: len(path)] == path


def test_a_text_that_comes_back_as_another_is_not_spliced(tmp_path):
    with gateway(tmp_path, URL, tokens="exact") as running, httpx.Client(timeout=60) as client:
        conversation = user("Hi")
        ask(client, f"{running.url}/rollout/r", "chat", conversation)
        conversation += [{"role": "assistant", "content": "Something else"}, *user("And?")]
        ask(client, f"{running.url}/rollout/r", "chat", conversation)
    (trajectory,) = recorded(tmp_path)
    assert trajectory.calls[1].extra["prompt"] == "differing"
    assert "at character" in trajectory.calls[1].extra["prompt_reason"]
    assert trajectory.metadata["prompts_differing"] == 1
