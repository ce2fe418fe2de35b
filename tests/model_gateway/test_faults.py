"""Servers that break, at every event, that are slow, refuse, or answer rubbish: passed on, and recorded as it was."""

import json
import socket
import threading
import time
from contextlib import AbstractContextManager, ExitStack

import httpx
import pytest

from art_otel.model_gateway.gateway import Gateway
from tests.examples import daily
from tests.model_gateway.gateways import MODEL, gateway, recorded, user
from tests.stand_ins import Handler, listening
from tests.tracing.server import OVERFLOW

SSE = "text/event-stream"
STREAM = {"model": MODEL, "messages": user("Hi"), "stream": True}


def answering(*answers: tuple[int, dict[str, str], bytes]) -> AbstractContextManager[str]:
    """A server that gives the bytes of `answers`, one a request, and breaks off or ends. It samples from no ids."""
    waiting = list(answers)

    class Answering(Handler):
        def answer(self, body: bytes) -> None:  # noqa: ARG002 # whatever it is
            if self.path.startswith("/inference/"):
                self.send_error(404)
                return
            status, headers, data = waiting.pop(0)
            self.head(status, **headers)
            self.wfile.write(data)
            self.close_connection = headers.get("content-length") != str(len(data))

    return listening(Answering)


@pytest.mark.long
@pytest.mark.parametrize("tokens", ["off", "passthrough"])
@pytest.mark.parametrize("path", ["chat/completions", "completions", "responses", "messages"])
def test_a_stream_that_is_cut_in_or_behind_every_event_is_what_it_was(tmp_path, address, path, tokens):
    """The agent gets the same bytes and the same end; no such turn is trained."""
    asked = {"completions": {"prompt": "Hi"}, "responses": {"input": "Hi"}}.get(path, {"messages": user("Hi")})
    body = {"model": MODEL, "stream": True, **asked}
    whole = httpx.post(f"{address}/v1/{path}", json=body).content
    ends = [at + 2 for at in range(len(whole)) if whole[at : at + 2] == b"\n\n"][:-1]
    cuts = sorted([*ends, *(end - 5 for end in ends)])
    headers = {"content-type": SSE, "transfer-encoding": "chunked"}
    answers = [(200, headers, b"%x\r\n%b\r\n" % (cut, whole[:cut])) for cut in cuts]
    with answering(*answers) as url, gateway(tmp_path, url, tokens=tokens) as running:
        for cut in cuts:
            got: list[bytes] = []
            with (
                httpx.stream("POST", f"{running.url}/rollout/r/v1/{path}", json=body) as response,
                pytest.raises(httpx.RemoteProtocolError),
            ):
                got.extend(response.iter_raw())
            assert b"".join(got) == whole[:cut]
    (trajectory,) = recorded(tmp_path)
    assert len(trajectory.calls) == len(cuts)
    assert all(call.failed for call in trajectory.calls[:-1])
    assert all(turn.tokens_untrained is not None for turn in trajectory.turns[:-1])
    assert trajectory.complete, trajectory.incomplete_reasons


ODD_ANSWERS = (
    (429, {"retry-after": "7"}, b'{"error": {"message": "slow down"}}'),
    (503, {"content-type": "text/html"}, b"<html>no"),
    (200, {"content-type": "application/json"}, b"{torn"),
    (200, {"content-type": "application/json"}, b'{"choices": [{"message": 3}, null]}'),
    (200, {"content-type": SSE}, b"data: {torn\n\ndata: [1]\n\n: comment\n\nevent: x\ndata: {}\n\nrest"),
    (200, {"content-type": SSE}, b'data: {"choices": 3}\n\ndata: [DONE]\n\n'),
    (200, {"content-type": SSE}, b"\xff\xfe\n\n\r\n\r\ndata:\r\r"),
    (200, {}, b""),
)


@pytest.mark.parametrize("path", daily(["chat/completions", "completions", "responses", "messages"], one_in=4))
def test_what_no_server_should_say_passes_and_is_recorded(tmp_path, path):
    answers = [(status, {**headers, "content-length": str(len(body))}, body) for status, headers, body in ODD_ANSWERS]
    with answering(*answers) as url, gateway(tmp_path, url) as running:
        for number, (status, headers, body) in enumerate(ODD_ANSWERS):
            response = httpx.post(f"{running.url}/rollout/r{number}/v1/{path}", json=STREAM)
            assert (response.status_code, response.content) == (status, body)
            assert {name: response.headers.get(name) for name in headers} == headers
    for trajectory, (status, _, _) in zip(recorded(tmp_path), ODD_ANSWERS, strict=True):
        (call,) = trajectory.calls
        assert call.failed == (status >= 400)
        assert call.error_type == (str(status) if status >= 400 else None)
        assert not any(turn.tokens_untrained is None for turn in trajectory.turns)


TOO_LONG = {
    "vLLM": (400, {"error": {"message": OVERFLOW, "type": "BadRequestError", "param": None, "code": 400}}),
    "SGLang": (
        400,
        {"object": "error", "message": "The input (9 tokens) is longer than the model's context length (8)"},
    ),
    "OpenAI, by its code": (400, {"error": {"message": "no", "type": "x", "code": "context_length_exceeded"}}),
    "Anthropic": (400, {"type": "error", "error": {"message": "prompt is too long: 9 tokens > 8 maximum"}}),
    "llama.cpp, by its type": (400, {"error": {"message": "no", "type": "exceed_context_size_error", "code": 400}}),
    "TGI": (422, {"error": "`inputs` must have less than 8 tokens. Given: 9", "error_type": "validation"}),
    "an engine that died": (500, {"error": {"message": OVERFLOW, "type": "InternalServerError", "code": 500}}),
    "another refusal": (400, {"error": {"message": "no such tool", "type": "BadRequestError", "code": 400}}),
}


@pytest.mark.parametrize("server", daily(TOO_LONG, one_in=3))
def test_a_context_that_was_exceeded_is_the_policys_doing_and_no_outage(tmp_path, server):
    status, said = TOO_LONG[server]
    body = json.dumps(said).encode()
    refusal = (status, {"content-type": "application/json", "content-length": str(len(body))}, body)
    with answering(*[refusal] * 32) as url, gateway(tmp_path, url) as running:
        for number, path in enumerate(("chat/completions", "completions", "responses", "messages")):
            assert httpx.post(f"{running.url}/rollout/r{number}/v1/{path}", json=STREAM).content == body
    is_outage = server in ("an engine that died", "another refusal")
    trajectories = recorded(tmp_path)
    assert [one.calls[0].failure for one in trajectories] == [None if is_outage else "context exceeded"] * 4
    assert [one.end for one in trajectories] == ["failed call" if is_outage else "context exceeded"] * 4


DIED = {"code": "engine", "message": "the engine died"}
BEHIND_200 = (
    ("chat/completions", SSE, {"error": DIED}),
    ("messages", SSE, {"type": "error", "error": DIED}),
    ("responses", SSE, {"type": "error", **DIED}),
    ("responses", SSE, {"type": "response.failed", "response": {"status": "failed", "error": DIED}}),
    ("responses", "application/json", {"status": "failed", "output": [], "error": DIED}),
    ("chat/completions", "application/json", {"error": DIED}),
)


def test_an_error_behind_the_status_200_is_a_failure_with_its_words(tmp_path):
    texts = [json.dumps(said) for _, _, said in BEHIND_200]
    bodies = [
        (f"data: {text}\n\n" if kind == SSE else text).encode()
        for text, (_, kind, _) in zip(texts, BEHIND_200, strict=True)
    ]
    answers = [
        (200, {"content-type": kind, "content-length": str(len(body))}, body)
        for body, (_, kind, _) in zip(bodies, BEHIND_200, strict=True)
    ]
    with answering(*answers) as url, gateway(tmp_path, url) as running:
        for number, (path, _, _) in enumerate(BEHIND_200):
            response = httpx.post(f"{running.url}/rollout/r{number}/v1/{path}", json=STREAM)
            assert response.content == bodies[number]
    trajectories = recorded(tmp_path)
    assert len(trajectories) == len(BEHIND_200)
    for trajectory in trajectories:
        assert [(call.error_type, call.error) for call in trajectory.calls] == [("engine", "the engine died")]
        assert trajectory.complete, trajectory.incomplete_reasons


def test_an_answer_that_is_cut_is_an_error_that_says_so(tmp_path):
    with answering((200, {"content-length": "99"}, b'{"id"')) as url, gateway(tmp_path, url) as running:
        response = httpx.post(f"{running.url}/rollout/r/v1/chat/completions", json=STREAM)
        assert response.status_code == 502
        assert "broke off" in response.json()["error"]["message"]
    (trajectory,) = recorded(tmp_path)
    assert [call.error_type for call in trajectory.calls] == ["BrokenOffError"]
    assert not trajectory.turns


def test_a_gateway_that_ends_cuts_what_it_streams_at_once(tmp_path, address, caplog):
    """The agent sees no end, its rollout says so, and nobody waits."""
    slow = {**STREAM, "messages": user("Hi #words=50 #pace=0.5")}
    stack = ExitStack()
    running = stack.enter_context(gateway(tmp_path, address))
    ending = threading.Thread(target=stack.close)
    with httpx.stream("POST", f"{running.url}/rollout/r/v1/chat/completions", json=slow) as response:
        pieces = response.iter_raw()
        next(pieces)
        began = time.monotonic()
        ending.start()
        with pytest.raises(httpx.RemoteProtocolError):
            list(pieces)
        cut = time.monotonic() - began
    ending.join()
    assert cut < 3
    (trajectory,) = recorded(tmp_path)
    assert [call.error_type for call in trajectory.calls] == ["GatewayEnded"]
    assert not [record for record in caplog.records if record.name.startswith("uvicorn")]


def test_a_gateway_that_ends_waits_for_no_agent_that_does_not_read(tmp_path, caplog):
    event = b"data: " + b"x" * (1 << 16) + b"\n\n"
    body = json.dumps(STREAM).encode()
    head = b"POST /rollout/r/v1/chat/completions HTTP/1.1\r\nhost: a\r\ncontent-length: %d\r\n\r\n" % len(body)
    with (
        answering((200, {"content_type": SSE}, event * 1000)) as url,
        ExitStack() as stack,
        socket.create_connection(("127.0.0.1", _port_of(stack.enter_context(gateway(tmp_path, url))))) as agent,
    ):
        agent.sendall(head.replace(b"host: a", b"host: 127.0.0.1") + body)
        assert agent.recv(1)
        time.sleep(1)
        began = time.monotonic()
        stack.close()
        assert time.monotonic() - began < 4
    assert not [record for record in caplog.records if record.name.startswith("uvicorn")]


def _port_of(running: Gateway) -> int:
    return int(running.url.rpartition(":")[2])


def test_the_log_names_a_server_that_cannot_be_reached_once_an_outage(tmp_path, caplog):
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        port = nobody.getsockname()[1]
    with gateway(tmp_path, f"http://user:secret@127.0.0.1:{port}") as running:
        for _ in range(3):
            response = httpx.post(f"{running.url}/rollout/r/v1/chat/completions", json=STREAM)
            assert response.status_code == 502
            assert "secret" not in response.text
    said = [record.getMessage() for record in caplog.records if "cannot be reached" in record.getMessage()]
    assert len(said) == 1
    assert f"http://127.0.0.1:{port} " in said[0]
    assert "--upstream" in said[0]
