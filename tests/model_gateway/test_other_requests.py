"""What agents ask beside completions passes; what may be one in an unknown dialect makes a rollout incomplete."""

import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager

import httpx
import pytest

from art_otel.data.cures import cure_of
from art_otel.model_gateway.addresses import read_target
from art_otel.model_gateway.other_requests import may_sample, pattern_of
from tests.dumps import chat_span, make_span, request_of
from tests.model_gateway.gateways import MODEL, gateway, recorded, user
from tests.receiver.otlp import JSON, as_body
from tests.receiver.otlp import post as export
from tests.stand_ins import Handler, listening

CHAT = {"model": MODEL, "messages": user("Hi")}
SAYS = {
    "id": "c1",
    "object": "chat.completion",
    "model": MODEL,
    "choices": [{"index": 0, "message": {"role": "assistant", "content": "yes"}, "finish_reason": "stop"}],
    "usage": {"prompt_tokens": 3, "completion_tokens": 1},
}


@contextmanager
def agreeing_server() -> Iterator[tuple[str, list[str]]]:
    """A server that answers every request so, but for those to `/refused`; with the paths that it was asked for."""
    paths: list[str] = []

    class Agreeing(Handler):
        def answer(self, body: bytes) -> None:  # noqa: ARG002 # whatever it is
            paths.append(self.path)
            said = json.dumps(SAYS).encode()
            status = 404 if self.path.endswith("/refused") or "inference" in self.path else 200
            self.head(status, content_type="application/json", content_length=len(said))
            self.wfile.write(said)

    with listening(Agreeing) as url:
        yield url, paths


@pytest.fixture(scope="module")
def agreeing() -> Iterator[tuple[str, list[str]]]:
    with agreeing_server() as served:
        yield served


UNKNOWN = (
    ("/api/chat", "/api/chat"),
    ("/api/generate", "/api/generate"),
    ("/v2/chat", "/v2/chat"),
    ("/model/anthropic.claude-3-5-sonnet-20241022-v2:0/converse", "/model/*/converse"),
    ("/v1/projects/p-1/locations/us-east5/publishers/anthropic/models/claude-4:rawPredict", None),
    ("/v1internal:generateContent", None),
    ("/generate", "/generate"),
    ("/infill", "/infill"),
    ("/v1/threads/runs", "/v1/threads/runs"),
    ("/v1/threads/thread_1/runs", "/v1/threads/*/runs"),
)


def test_a_dialect_that_nobody_knows_is_said_once_and_on_the_rollout(tmp_path, agreeing, caplog):
    caplog.set_level(logging.WARNING, "art_otel.model_gateway.other_requests")
    address, paths = agreeing
    with gateway(tmp_path, address) as running:
        for number, (path, _) in enumerate(UNKNOWN):
            for rollout in (f"a{number}", f"b{number}"):
                answer = httpx.post(f"{running.url}/rollout/{rollout}{path}?x=1", json=CHAT)
                assert (answer.status_code, answer.json(), paths[-1]) == (200, SAYS, f"{path}?x=1")
            httpx.post(f"{running.url}{path}", json=CHAT, headers={"x-art-rollout-id": f"c{number}"})
            httpx.post(f"{running.url}{path}", json=CHAT, headers={"authorization": f"Bearer art-d{number}"})
            httpx.post(f"{running.url}{path}", json=CHAT)  # of no rollout that anybody knows
        httpx.post(f"{running.url}/rollout/a0/end", json={"reward": 1})
    trajectories = recorded(tmp_path)
    assert [one.rollout_id for one in trajectories] == [f"{way}{number}" for way in "abcd" for number in range(10)]
    assert trajectories[0].reward == 1.0
    assert all((one.incomplete_reasons, one.calls) == ({"request unread": 1}, ()) for one in trajectories)
    for (path, pattern), warning in zip(UNKNOWN, caplog.messages, strict=True):
        assert f"POST {pattern_of(path)} is passed on without being recorded" in warning
        assert pattern in (None, pattern_of(path))
    assert "allow_incomplete" in cure_of("incomplete: request unread").helps


SAMPLES_NOTHING = (
    *("/tokenize", "/detokenize", "/v1/embeddings", "/v1/rerank", "/score", "/v1/moderations", "/v1/files"),
    *("/v1/messages/count_tokens", "/v1/responses/input_tokens", "/v1beta/models/g:countTokens"),
    *("/v1beta/models/g:embedContent", "/v1/load_lora_adapter", "/update_weights_from_disk", "/sleep"),
    *("/v1/images/generations", "/v1/audio/speech", "/api/show", "/api/embed", "/v1/vector_stores/v/search"),
    *("/v1/threads/t/messages", "/v1/responses/r/cancel", "/api/event_logging/batch", "/v1/embeddings/"),
    *("/v1/chat/completions/render", "/v1/refused"),
)


def test_what_samples_nothing_takes_nothing_from_a_rollout(tmp_path, agreeing):
    address, _ = agreeing
    with gateway(tmp_path, address) as running:
        for path in SAMPLES_NOTHING:
            assert httpx.post(f"{running.url}/rollout/r{path}", json=CHAT).json() == SAYS
        httpx.post(f"{running.url}/rollout/r/v1/chat/completions", json=CHAT)
    (trajectory,) = recorded(tmp_path)
    assert trajectory.complete, trajectory.incomplete_reasons
    assert len(trajectory.calls) == 1


def test_forms_are_no_calls_and_what_is_compressed_may_be_one():
    assert not may_sample("POST", "/upload", b"--boundary", "")
    assert not may_sample("GET", "/api/chat", b"{}", "")
    assert may_sample("POST", "/api/chat", b"\x1f\x8b", "gzip")


def test_a_slash_too_many_changes_no_dialect(tmp_path, agreeing):
    address, paths = agreeing
    with gateway(tmp_path, address, tokens="passthrough") as running:
        for number, path in enumerate(
            ("/v1/chat/completions/", "/v1//chat/completions?a=b", "/v1/messages/?beta=true")
        ):
            httpx.post(f"{running.url}/rollout/r{number}{path}", json=CHAT)
            assert paths[-1] == path
    trajectories = recorded(tmp_path)
    assert len(trajectories) == 3
    for trajectory in trajectories:
        assert trajectory.complete, trajectory.incomplete_reasons
        assert [turn.message.content for turn in trajectory.turns] == ["yes"]
    assert read_target("/", "").plain == ""


def test_an_agent_that_records_such_a_call_itself_has_it_whole(tmp_path, agreeing):
    """Its instrumentor knows Ollama; the gateway does not."""
    address, _ = agreeing
    times = {"startTimeUnixNano": "1", "endTimeUnixNano": "2"}
    root = make_span(1, trace=7, name="invoke_agent a", attributes={"gen_ai.operation.name": "invoke_agent"}, **times)
    with gateway(tmp_path, address) as running:
        httpx.post(f"{running.url}/api/chat", json=CHAT, headers={"traceparent": f"00-{7:032x}-{2:016x}-01"})
        export(running.url, as_body(request_of(root, chat_span(2, 1, ["Hi"], "yes", trace=7, **times)), JSON), JSON)
    (trajectory,) = recorded(tmp_path)
    assert trajectory.complete, trajectory.incomplete_reasons
