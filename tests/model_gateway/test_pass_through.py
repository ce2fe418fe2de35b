"""To the agent it is the server: status, headers, bodies, events, errors, cancellations."""

import http.client
import json
import re
import socket
import threading
import time

import httpx
import openai
import pytest

from tests.model_gateway.gateways import MODEL, bodies, gateway, user
from tests.tracing.server import ModelServer

NOT_COMPARED = {"date", "content-length", "transfer-encoding", "connection"}
_IDS = re.compile(r"(chatcmpl|resp|msg|msg_chatcmpl)-\d{6}")


@pytest.fixture(scope="module")
def plain(tmp_path_factory, address):
    """A gateway that asks for nothing."""
    with gateway(tmp_path_factory.mktemp("plain"), address, tokens="off") as running:
        yield running


@pytest.fixture(scope="module")
def asking(tmp_path_factory, address):
    """A gateway that asks for token ids."""
    with gateway(tmp_path_factory.mktemp("asking"), address) as running:
        yield running


def answer(url: str, path: str, body: dict) -> tuple[int, dict, str]:
    response = httpx.post(f"{url}{path}", json=body)
    headers = {name: value for name, value in response.headers.items() if name not in NOT_COMPARED}
    return response.status_code, headers, _IDS.sub(r"\1", response.text)


def parsed(text: str) -> object:
    """A body as JSON values; of a stream its events."""
    if "data: " not in text:
        return json.loads(text)
    data = [line.removeprefix("data: ") for line in text.splitlines() if line.startswith("data: ")]
    return [one if one == "[DONE]" else json.loads(one) for one in data]


@pytest.mark.parametrize(("path", "body"), bodies())
def test_an_answer_is_that_of_the_server_byte_by_byte(plain, address, path, body):
    direct, through = answer(address, path, body), answer(plain.url, path, body)
    assert through == direct


@pytest.mark.parametrize(("path", "body"), bodies())
def test_an_answer_has_no_tokens_that_nobody_asked_for(asking, address, path, body):
    direct, through = answer(address, path, body), answer(asking.url, path, body)
    assert through[:2] == direct[:2]
    assert parsed(through[2]) == parsed(direct[2])


def test_clients_of_openai_get_what_they_get_of_the_server(asking, server):
    for url in (
        f"{asking.url}/v1",
        f"{asking.url}/rollout/a%2Fb/v1",
        f"{asking.url}/rollout/c;group_id=a%2Fb;split=val/v1",
        f"{asking.url}/rollout/c/v1?group_id=a%2Fb&split=val",
    ):
        with openai.OpenAI(base_url=url, api_key="sk-x", max_retries=1) as client:
            whole = client.chat.completions.create(model=MODEL, messages=user("Hi"))
            assert whole.choices[0].logprobs is None
            stream = client.chat.completions.create(model=MODEL, messages=user("Hi"), stream=True)
            text = "".join(chunk.choices[0].delta.content or "" for chunk in stream)
            assert text == whole.choices[0].message.content == server.say("Hi")
            assert client.responses.create(model=MODEL, input="Hi").output_text
            again = client.chat.completions.create(model=MODEL, messages=user("Hi #fail=429x1"))
            assert again.choices[0].message.content
            with pytest.raises(openai.RateLimitError, match="as the message asked"):
                client.chat.completions.create(model=MODEL, messages=user("Hi #fail=429"))


def test_other_paths_and_methods_pass(plain, address):
    for method, path in (("GET", "/v1/models"), ("HEAD", "/v1/models"), ("HEAD", "/")):
        direct, through = (httpx.request(method, f"{url}{path}") for url in (address, plain.url))
        assert through.status_code == direct.status_code == 200
        assert through.content == direct.content
        assert through.headers["content-length"] == direct.headers["content-length"]


def test_keys_and_headers_go_to_the_server_but_for_keys_that_name_a_rollout(plain, server):
    own, of_rollout = {"authorization": "Bearer sk-secret"}, {"authorization": "bearer art-r1"}
    for headers, passed in (
        (own, own),
        (of_rollout, {}),
        ({**own, "x-api-key": "art-r1"}, own),
        ({**of_rollout, "x-api-key": "sk-secret"}, {"x-api-key": "sk-secret"}),
    ):
        httpx.post(f"{plain.url}/v1/chat/completions", json={"model": MODEL, "messages": user("Hi")}, headers=headers)
        seen = server.exchanges()[-1].headers
        assert {name: seen[name] for name in ("authorization", "x-api-key") if name in seen} == passed


def test_a_connection_is_kept(plain):
    connection = http.client.HTTPConnection(plain.url.removeprefix("http://"))
    for _ in range(3):
        connection.request("POST", "/v1/chat/completions", json.dumps({"model": MODEL, "messages": user("Hi")}))
        assert connection.sock is not None
        port = connection.sock.getsockname()[1]
        assert connection.getresponse().read()
    assert connection.sock.getsockname()[1] == port
    connection.close()


@pytest.mark.parametrize("asks", [True, False])
def test_events_come_as_the_server_sends_them(plain, asking, asks):
    body = {"model": MODEL, "messages": user("Hi #words=10 #pace=0.05"), "stream": True}
    url = asking.url if asks else plain.url
    with httpx.stream("POST", f"{url}/v1/chat/completions", json=body) as response:
        times = [time.monotonic() for _ in response.iter_bytes()]
    assert len(times) >= 10  # what is held comes together
    assert times[-1] - times[0] > 0.3


class Listener:
    """A server that says when its client has gone."""

    def __init__(self, answer: bytes) -> None:
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}"
        self.was_asked = threading.Event()
        self.was_left = threading.Event()
        self._answer = answer
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        connection, _ = self._socket.accept()
        with connection:
            connection.recv(1 << 16)
            self.was_asked.set()
            connection.sendall(self._answer)
            while connection.recv(1 << 16):
                pass
            self.was_left.set()

    def close(self) -> None:
        self._socket.close()
        self._thread.join(10)


@pytest.mark.parametrize("begun", [b"", b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\ndata: {}\n\n"])
def test_a_server_is_left_when_its_agent_leaves(tmp_path, begun):
    listener = Listener(begun)
    with gateway(tmp_path, listener.url) as running:
        body = {"model": MODEL, "messages": user("Hi"), "stream": True}
        with pytest.raises(httpx.ReadTimeout):
            httpx.post(f"{running.url}/v1/chat/completions", json=body, timeout=0.3)
        assert listener.was_left.wait(5)
    listener.close()


def test_a_server_is_left_when_an_agent_leaves_whose_request_came_at_once(tmp_path):
    """Behind 64 KB uvicorn reads no more, until somebody takes them."""
    listener = Listener(b"")
    with gateway(tmp_path, listener.url) as running:
        body = json.dumps({"model": MODEL, "messages": user("Hi" * 50_000), "stream": True}).encode()
        lines = (b"POST /v1/chat/completions HTTP/1.1", b"host: localhost", b"content-length: %d" % len(body))
        head = b"\r\n".join((*lines, b"content-type: application/json", b"", b""))
        with socket.create_connection(("127.0.0.1", int(running.url.rpartition(":")[2]))) as agent:
            agent.sendall(head + body)
            assert listener.was_asked.wait(5)
        assert listener.was_left.wait(5)
    listener.close()


def test_a_stream_that_the_server_cuts_is_cut_for_the_agent(plain):
    body = {"model": MODEL, "messages": user("Hi #break=3"), "stream": True}
    with pytest.raises(httpx.RemoteProtocolError):
        httpx.post(f"{plain.url}/v1/chat/completions", json=body)


@pytest.mark.long
def test_a_server_that_cannot_be_reached_is_an_error_that_clients_read(tmp_path):
    with (
        gateway(tmp_path, "http://127.0.0.1:9") as running,
        openai.OpenAI(base_url=f"{running.url}/v1", api_key="sk-x", max_retries=0) as client,
        pytest.raises(openai.InternalServerError, match=r"127\.0\.0\.1:9 cannot be reached"),
    ):
        client.chat.completions.create(model=MODEL, messages=user("Hi"))


@pytest.mark.long
def test_a_server_that_refuses_to_be_asked_is_asked_again_unseen(tmp_path):
    with ModelServer(tmp_path, "--strict") as strict, gateway(tmp_path / "art", strict.url) as running:
        for _ in range(3):
            body = {"model": MODEL, "messages": user("Hi")}
            assert httpx.post(f"{running.url}/v1/chat/completions", json=body).status_code == 200
        statuses = [exchange.status for exchange in strict.exchanges()]
        assert statuses == [404, 400, 200, 200, 200]  # the first asks, once, whether it samples from ids


@pytest.mark.long
def test_a_rollout_stays_on_its_server_and_others_go_where_less_runs(tmp_path):
    folders = [tmp_path / name for name in ("one", "two")]
    for folder in folders:
        folder.mkdir()
    with ModelServer(folders[0]) as one, ModelServer(folders[1]) as two:
        with gateway(tmp_path / "art", one.url, two.url) as running:

            def ask(rollout: str, text: str) -> None:
                body = {"model": MODEL, "messages": user(text)}
                httpx.post(f"{running.url}/rollout/{rollout}/v1/chat/completions", json=body, timeout=30)

            slow = threading.Thread(target=ask, args=("a", "Hi #delay=1"))
            slow.start()
            time.sleep(0.3)
            ask("b", "Hi")
            slow.join()
            for _ in range(3):
                ask("a", "again")
                ask("b", "again")
        counts = [len(server.exchanges()) for server in (one, two)]
    assert counts == [5, 5]  # each was asked once, too, whether it samples from ids


@pytest.mark.parametrize(
    ("target", "status"), [("@127.0.0.1:9/v1/models", b"400"), ("*", b"400"), ("http://127.0.0.1:9/v1/models", b"200")]
)
def test_no_request_leads_to_another_server(plain, target, status):
    """Of an address as a target the path alone is read, as HTTP wants it; nothing listens at port 9."""
    host, _, port = plain.url.removeprefix("http://").partition(":")
    with socket.create_connection((host, int(port))) as connection:
        connection.sendall(f"GET {target} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n".encode())
        assert connection.makefile("rb").readline().startswith(b"HTTP/1.1 " + status)


def test_what_is_no_rollout_is_refused_in_words(plain):
    for path, words in (("/rollout//v1/models", "a rollout id"), ("/rollout/r;colour=red/v1/models", "colour")):
        response = httpx.get(f"{plain.url}{path}")
        assert response.status_code == 400
        assert words in response.json()["error"]["message"]
