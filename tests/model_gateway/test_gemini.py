"""Gemini's requests pass and are recorded as the other dialects are: whole, as events, and as an array."""

import subprocess
from pathlib import Path

import httpx
import pytest

from art_otel.calls import InferenceCall
from tests.examples import daily
from tests.model_gateway.gateways import gateway, recorded
from tests.model_gateway.gemini_server import gemini_server
from tests.trainers.environment import trainer_python

MODELS = "/v1beta/models/gemini-test"
VERTEX = "/v1beta1/projects/p/locations/us/publishers/google/models/gemini-test"
WAYS = ("generateContent", "streamGenerateContent?alt=sse", "streamGenerateContent")
LOOK = {"name": "look", "parametersJsonSchema": {"type": "object"}}
PROGRAM = Path(__file__).parent / "agents" / "gemini.py"


@pytest.fixture(scope="module")
def gemini():
    with gemini_server() as url:
        yield url


def asked(text: str, **more) -> dict:
    return {
        "systemInstruction": {"parts": [{"text": "Be brief."}], "role": "user"},
        "contents": [{"role": "user", "parts": [{"text": text}]}],
        **more,
    }


def post(url: str, way: str, body: dict, models: str = MODELS) -> httpx.Response:
    return httpx.post(f"{url}{models}:{way}", json=body, timeout=30)


def said(call: InferenceCall) -> list:
    return [(choice.message, choice.finish_reason) for choice in call.choices or ()]


@pytest.mark.parametrize("models", [MODELS, VERTEX])
def test_a_call_is_the_same_however_it_streams_and_the_agent_sees_what_the_server_sent(tmp_path, gemini, models):
    config = {"temperature": 0.5, "maxOutputTokens": 100, "candidateCount": 2, "topK": 3}
    body = asked("Please look", tools=[{"functionDeclarations": [LOOK]}, {"googleSearch": {}}], generationConfig=config)
    with gateway(tmp_path, gemini) as running:
        for way in WAYS:
            through, direct = (post(url, way, body, models) for url in (f"{running.url}/rollout/r", gemini))
            assert through.content == direct.content
            assert through.headers["content-type"] == direct.headers["content-type"]
    (trajectory,) = recorded(tmp_path)
    assert trajectory.complete, trajectory.incomplete_reasons
    first, *others = trajectory.calls
    assert [message.content for message in first.input_messages or ()] == ["Be brief.", "Please look"]
    assert first.parameters == {"temperature": 0.5, "max_tokens": 100, "n": 2, "top_k": 3}
    assert first.tools is not None
    assert [tool["type"] for tool in first.tools] == ["function", "googleSearch"]
    assert (first.request_model, first.response_model, first.response_id) == (
        "gemini-test",
        "gemini-test-001",
        "id-look",
    )
    assert (first.usage.input_tokens, first.usage.output_tokens, first.usage.reasoning_tokens) == (9, 4, 7)
    assert first.provider == ("gcp.vertex_ai" if models == VERTEX else "gcp.gemini")
    message, reason = said(first)[0]
    assert (message.content, message.reasoning, reason) == ("I look.", "Let me see. ", "tool_calls")
    assert [(call.id, call.name, call.arguments) for call in message.tool_calls] == [
        (None, "look", '{"where": "Paris"}'),
        ("c-2", "look", "{}"),
    ]
    assert len(said(first)) == 2
    assert all(said(call) == said(first) and call.usage == first.usage for call in others)
    assert {turn.text_untrained for turn in trajectory.turns} == {None}


@pytest.mark.parametrize("way", daily(WAYS, one_in=3))
def test_a_conversation_is_one_also_where_the_agent_keeps_pieces(tmp_path, gemini, way):
    pieces = [{"text": text, "thought": True} for text in ("Let m", "e see. ")]
    model = [*pieces, {"text": "You s"}, {"text": "aid Hi."}]
    body = asked("Hi")
    contents = [*body["contents"], {"role": "model", "parts": model}, {"role": "user", "parts": [{"text": "Go on"}]}]
    with gateway(tmp_path, gemini) as running:
        post(running.url, way, body)  # nobody names the rollout
        post(running.url, way, {**body, "contents": contents})
    (trajectory,) = recorded(tmp_path)
    assert [turn.parent for turn in trajectory.turns] == [None, 0]
    assert [message.content for message in trajectory.calls[1].input_messages or ()][2] == "You said Hi."
    assert trajectory.complete, trajectory.incomplete_reasons


@pytest.mark.parametrize("way", daily(reversed(WAYS), one_in=3))
def test_what_was_not_answered_is_a_failed_call_and_what_was_cut_an_answer(tmp_path, gemini, way):
    with gateway(tmp_path, gemini) as running:
        for word in ("blocked", "malformed", "fail", "cut"):
            post(f"{running.url}/rollout/r", way, asked(f"Now {word}"))
        broken = f"{running.url}/rollout/r{MODELS}:{way}"
        if way != "generateContent":
            with pytest.raises(httpx.RemoteProtocolError):
                httpx.post(broken, json=asked("Now break"))
    (trajectory,) = recorded(tmp_path)
    assert trajectory.complete, trajectory.incomplete_reasons
    *_, cut = [call for call in trajectory.calls if call.error_type is None]
    assert [(message.content, reason) for message, reason in said(cut)] == [("", "length")]
    errors = [call.error_type for call in trajectory.calls if call.error_type is not None]
    assert errors == ["SAFETY", "MALFORMED_FUNCTION_CALL", "429", *(["BrokenOffError"] if "stream" in way else [])]


@pytest.mark.parametrize("way", WAYS[1:])
def test_a_stream_that_was_left_costs_that_turn_alone(tmp_path, gemini, way):
    with gateway(tmp_path, gemini) as running:
        url = f"{running.url}/rollout/r"
        with httpx.stream("POST", f"{url}{MODELS}:{way}", json=asked("Be slow"), timeout=30) as response:
            next(response.iter_bytes())
        post(url, way, asked("Hi"))
    (trajectory,) = recorded(tmp_path)
    assert trajectory.complete, trajectory.incomplete_reasons
    assert [turn.text_untrained for turn in trajectory.turns] == ["stream broke", None]


def test_a_cached_content_is_history_that_only_the_server_has(tmp_path, gemini):
    with gateway(tmp_path, gemini) as running:
        post(f"{running.url}/rollout/r", WAYS[0], asked("Hi", cachedContent="cachedContents/a"))
        httpx.post(f"{running.url}/rollout/r{MODELS}:countTokens", json=asked("Hi"))
    (trajectory,) = recorded(tmp_path)
    assert trajectory.incomplete_reasons == {"unknown history": 1}


@pytest.mark.install
@pytest.mark.parametrize("kind", ["developer", "vertex"])
def test_google_s_client_gives_the_same(tmp_path, gemini, kind):
    command = [str(trainer_python("gateway-gemini", "google-genai==3.6.1")), str(PROGRAM)]
    with gateway(tmp_path, gemini) as running:
        through, direct = (
            subprocess.run([*command, url, kind], capture_output=True, text=True, check=True, timeout=120).stdout
            for url in (f"{running.url}/rollout/r", gemini)
        )
    assert through == direct
    assert len(direct.splitlines()) > 15
    (trajectory,) = recorded(tmp_path)
    assert trajectory.complete, trajectory.incomplete_reasons
    assert [turn.parent for turn in trajectory.turns] == [None, 0, None, 2]
