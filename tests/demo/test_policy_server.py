"""The policy's server, spoken to by the real `openai` client, and the agent's service in front of it."""

import io
import json
import subprocess
import sys
from threading import Thread

import numpy as np
import openai
import pytest

from art_otel.demo import agent_service
from art_otel.demo.agent import describe, guide
from art_otel.demo.agent_process import AgentProcess
from art_otel.demo.agent_service import AgentService
from art_otel.demo.policy import IDS, SIZE, VOCABULARY, Policy, render, untrained
from art_otel.demo.policy_server import VERSION_HEADER, PolicyServer, post
from art_otel.demo.task import CITIES, READ_FROM, make_task
from art_otel.demo.training import publish
from art_otel.errors import ArtOtelError

QUESTION = {"role": "user", "content": "hour in Oslo"}
TOOLS = [describe(name) for name in ("thermometer", "clock", "archivist")]


@pytest.fixture
def server():
    with PolicyServer(untrained()) as serving:
        yield serving


@pytest.fixture
def client(server):
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0) as speaking:
        yield speaking


def ask(client, **options):
    return client.chat.completions.create(model="guide", messages=[QUESTION], tools=TOOLS, seed=7, **options)


def sensible() -> Policy:
    """What a long training would come to: each question has its tool."""
    policy = untrained()
    for topic, instrument in READ_FROM.items():
        main = instrument if instrument in ("thermometer", "clock") else "archivist"
        for tool in {main, instrument}:
            policy.weights[IDS["<assistant>"], IDS[topic], IDS[tool]] += 20
    for first in ("thermometer", "clock", "archivist", "register", "atlas"):
        for city in CITIES:
            policy.weights[IDS[first], IDS[city], IDS[city]] += 20
    for word in range(SIZE):
        policy.weights[IDS["<assistant>"], word, word] += 20 * VOCABULARY[word].islower()
    return policy


def test_a_completion_has_what_was_asked_for(client):
    plain = ask(client)
    assert plain.choices[0].logprobs is None
    assert "token_ids" not in plain.choices[0].to_dict()
    full = ask(client, logprobs=True, extra_body={"return_token_ids": True})
    body = full.to_dict()
    sampled = untrained().sample(render([QUESTION], TOOLS), seed=7)
    assert body["prompt_token_ids"] == render([QUESTION], TOOLS)
    assert body["choices"][0]["token_ids"] == sampled.token_ids
    assert [one.logprob for one in full.choices[0].logprobs.content] == sampled.logprobs
    assert [one.token for one in full.choices[0].logprobs.content] == [VOCABULARY[token] for token in sampled.token_ids]
    assert full.usage.completion_tokens == len(sampled.token_ids)
    (call,) = full.choices[0].message.tool_calls
    assert full.choices[0].finish_reason == "tool_calls"
    assert [call.function.name, json.loads(call.function.arguments)["city"]] == [
        VOCABULARY[token] for token in sampled.token_ids[:2]
    ]
    assert plain.id != full.id


def test_without_a_seed_each_completion_is_another(client):
    options = {"model": "guide", "messages": [QUESTION], "tools": TOOLS}
    said = [client.chat.completions.create(**options).choices[0].message for _ in range(20)]
    assert len({message.tool_calls[0].function.name for message in said if message.tool_calls}) > 1


def test_what_never_ends_is_cut(server, client):
    weights = np.zeros((SIZE, SIZE, SIZE))
    weights[:, :, IDS["nine"]] = 100
    server.serving = Policy(weights=weights), "0"
    (choice,) = ask(client).choices
    assert (choice.message.content, choice.finish_reason) == ("nine nine nine nine", "length")


def test_a_stream_and_another_path_are_refused(client, server):
    with pytest.raises(openai.BadRequestError, match="stream"):
        ask(client, stream=True)
    with pytest.raises(openai.NotFoundError, match="no such path"):
        client.embeddings.create(model="guide", input="hour")
    with pytest.raises(ArtOtelError, match="status 404"):
        post(f"{server.url}/elsewhere", b"{}", {})


def test_weights_come_with_their_version_and_tell_what_was_sampled(server, client):
    assert (
        client.chat.completions.with_raw_response.create(
            model="guide", messages=[QUESTION], tools=TOOLS, seed=1
        ).headers[VERSION_HEADER]
        == "0"
    )
    before = sum(ask(client).usage.completion_tokens for _ in range(3))
    first = len(untrained().sample(render([QUESTION], TOOLS), 1).token_ids)
    assert publish(server.url, sensible(), version=1) == before + first
    raw = client.chat.completions.with_raw_response.create(model="guide", messages=[QUESTION], tools=TOOLS)
    assert raw.headers[VERSION_HEADER] == "1"
    assert raw.parse().choices[0].message.tool_calls[0].function.name == "clock"
    assert publish(server.url, sensible(), version=2) == raw.parse().usage.completion_tokens


def test_weights_that_could_run_code_are_not_read(server):
    evil = io.BytesIO()
    np.save(evil, np.array([object]), allow_pickle=True)
    for body in (evil.getvalue(), b"", b"no array"):
        with pytest.raises(ArtOtelError, match=r"status 400: .*weights: "):
            post(f"{server.url}/weights", body, {VERSION_HEADER: "1"})
    assert server.serving[1] == "0"


@pytest.mark.parametrize("number", range(4))
def test_a_sensible_policy_makes_the_agent_right(server, client, number):
    server.serving = sensible(), "1"
    task = make_task(seed=0, step=0, number=number)
    assert task.score(guide(client, task.topic, task.city, task.readings, seed=3)) == 1.0


def test_an_agent_that_never_answers_ends(server, client):
    weights = untrained().weights.copy()
    weights[IDS["<assistant>"], :, IDS["clock"]] += 100
    weights[IDS["clock"], :, IDS["Lima"]] += 100
    server.serving = Policy(weights=weights), "0"
    task = make_task(seed=0, step=0, number=0)
    assert guide(client, task.topic, task.city, task.readings, seed=3) == ""


def test_the_agent_is_a_service(server, client):
    server.serving = sensible(), "1"
    task = make_task(seed=0, step=0, number=3)
    question = {"topic": task.topic, "city": task.city, "readings": task.readings, "seed": 3}
    with AgentService(client) as service:
        Thread(target=service.serve_forever, daemon=True).start()
        answer = post(f"http://127.0.0.1:{service.server_port}/", json.dumps(question).encode(), {})
        service.shutdown()
    assert task.score(answer.decode()) == 1.0


def test_the_service_ends_with_its_input(monkeypatch, capsys):
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    monkeypatch.setattr(sys, "stdin", io.StringIO(""))
    agent_service.main()
    assert int(capsys.readouterr().out) > 0


@pytest.mark.program
def test_the_agent_is_a_process_of_its_own(server, tmp_path):
    server.serving = sensible(), "1"
    task = make_task(seed=0, step=0, number=2)
    with AgentProcess(server.url, tmp_path) as agent:
        assert task.score(agent.ask(task, seed=3)) == 1.0
    assert agent._process.returncode == 0
    with pytest.raises(ArtOtelError, match="no answer"):
        agent.ask(task, seed=3)


def test_an_agent_that_cannot_start_says_so(server, tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    (tmp_path / "openai.py").write_text("raise SystemExit('no openai here')\n")
    with pytest.raises(ArtOtelError, match="did not start"), AgentProcess(server.url, tmp_path / "art"):
        pass  # pragma: no cover # it is never entered


@pytest.mark.long
def test_the_agent_knows_nothing_of_art_otel():
    code = "import sys; sys.modules['art_otel'] = None; import runpy; runpy.run_path(sys.argv[1])"
    agent = sys.modules["art_otel.demo.agent"].__file__
    done = subprocess.run([sys.executable, "-c", code, agent], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
