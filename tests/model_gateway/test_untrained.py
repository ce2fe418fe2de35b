"""What a call is for is said to the gateway: by the path, a header, the app's baggage, or a span around it."""

import subprocess
import sys
from collections import Counter

import httpx
import openai
import pytest

import art_otel
from tests.conversions import convert_files
from tests.model_gateway.gateways import MODEL, Running, gateway, recorded, user
from tests.receiver.consuming import next_rollouts

HI = {"model": MODEL, "messages": user("Hi")}


def chat(url: str, **headers: str) -> None:
    httpx.post(f"{url}/v1/chat/completions", json=HI, headers=headers).raise_for_status()


def test_a_call_says_what_it_is_for(tmp_path, server, address):
    before = len(server.exchanges())
    header, label = {"x-art-rollout-id": "r"}, "user%20simulator"
    with gateway(tmp_path, address) as running:
        chat(f"{running.url}/rollout/r")
        chat(f"{running.url}/rollout/r/untrained/{label}", **{"x-art-untrained": "something else"})
        chat(f"{running.url}/untrained/{label}", **header)
        chat(running.url, **header, **{"x-art-untrained": "user simulator"})
        chat(f"{running.url}/rollout/r", baggage=f"a=b,art.untrained={label}")
        chat(f"{running.url}/rollout/r", baggage="art.untrained=user+simulator")  # as OTel writes it for Python
        httpx.post(f"{running.url}/rollout/r/untrained/{label}/v1?group_id=g/chat/completions", json=HI)
        httpx.post(f"{running.url}/rollout/r/untrained/{label}/end", json={"reward": 1})
        (taken,) = next_rollouts(running.url, 1)
    (trajectory,) = recorded(tmp_path)
    (converted,), _ = convert_files(tmp_path / "out", tmp_path / "spool")
    assert taken == trajectory == converted
    assert [call.marked_untrained for call in taken.calls] == [None, *["user simulator"] * 6]
    assert taken.complete, taken.incomplete_reasons
    assert (taken.reward, taken.group_id) == (1.0, "g")
    asked = server.exchanges()[before:]
    assert not any("untrained" in one.path for one in asked)
    assert not any(name.startswith("x-art-") for one in asked for name in one.headers)


def test_a_mark_that_says_nothing_is_refused_in_words(tmp_path, address):
    with gateway(tmp_path, address) as running:
        refused = httpx.post(f"{running.url}/untrained//v1/chat/completions", json=HI)
    assert refused.status_code == 400
    assert "/untrained/judge/v1" in refused.json()["error"]["message"]


@pytest.mark.long
@pytest.mark.parametrize("client", ["openai", "httpx"])
def test_calls_in_an_untrained_block_of_a_traced_app_are_marked(tmp_path, address, monkeypatch, client):
    """The gateway knows only the span around its own: what that is in, the app's spans say."""
    monkeypatch.setenv("ART_OTEL_DIR", str(tmp_path))
    ask = {
        "openai": "openai.OpenAI(api_key='k', base_url=URL).chat.completions.create(**BODY)",
        "httpx": "TraceContextTextMapPropagator().inject(headers := {});"
        "httpx.post(f'{URL}/chat/completions', json=BODY, headers=headers).raise_for_status()",
    }[client]
    program = (
        "import httpx, openai, art_otel\n"
        "from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator\n"
        "art_otel.configure()\n"
        f"URL, BODY = %r, {HI!r}\n"
        "with art_otel.rollout(name='app'):\n"
        f"    {ask}\n"
        "    with art_otel.untrained('judge'):\n"
        f"        {ask}\n"
    )
    with gateway(tmp_path, address) as running:
        subprocess.run([sys.executable, "-c", program % f"{running.url}/v1"], check=True, timeout=60)
    (trajectory,) = recorded(tmp_path)
    assert trajectory.complete, trajectory.incomplete_reasons
    assert [call.marked_untrained for call in trajectory.calls] == [None, "judge"]
    assert all(call.choices and call.choices[0].token_ids for call in trajectory.calls)


def ask_all(url: str) -> None:
    """What an agent asks that has side calls by the same base URL."""
    with openai.OpenAI(base_url=f"{url}/v1", api_key="k") as client:
        for model in ("policy-7", "policy-judge", "claude-haiku-4-5"):
            client.chat.completions.create(model=model, messages=user("Hi"))
        with client.chat.completions.create(model="helper", messages=user("A title?"), stream=True) as stream:
            assert list(stream)
        client.responses.create(model="helper", input="Is there quota?")
        judge = {"x-art-untrained": "judge"}
        client.chat.completions.create(model="policy-7", messages=user("Was it good?"), extra_headers=judge)


MARKS = {
    ("policy-7", None): 1,
    ("policy-7", "judge"): 1,
    ("policy-judge", "another model"): 1,
    ("claude-haiku-4-5", "another model"): 1,
    ("helper", "another model"): 2,
}


def test_calls_of_other_models_are_marked(tmp_path, server, address):
    before = len(server.exchanges())
    running = Running(tmp_path / "art", address, "--models", "policy-*, !*judge*")
    running.start()
    ask_all(f"{running.url}/rollout/r")
    running.stop()
    convert_files(tmp_path / "out", tmp_path / "art" / "spool")
    (trajectory,) = art_otel.read_trajectories(tmp_path / "out")
    assert Counter((call.request_model, call.marked_untrained) for call in trajectory.calls) == MARKS
    assert trajectory.complete, trajectory.incomplete_reasons
    batches = art_otel.batches(tmp_path / "out", advantage=None)
    list(batches)
    assert batches.report.trained_completions == 1
    assert batches.report.completions_skipped == {"marked untrained": 5}
    assert Counter(one.body.get("model") for one in server.exchanges()[before:])["helper"] == 2


@pytest.mark.long
def test_a_call_without_a_model_is_of_none_that_is_chosen(tmp_path, address):
    body = {"messages": user("Hi")}
    for models, mark in ((("policy",), "another model"), (("!judge",), None), (("*",), None)):
        folder = tmp_path / models[0].strip("*!")
        with gateway(folder, address, models=models) as running:
            httpx.post(f"{running.url}/rollout/r/v1/chat/completions", json=body)
        ((call,),) = (one.calls for one in recorded(folder))
        assert call.marked_untrained == mark
