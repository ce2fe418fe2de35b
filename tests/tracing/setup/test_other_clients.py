"""Apps of other clients, under `art-otel run` with the instrumentors of our extras: each call is whole."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.conversions import convert_files
from tests.tracing.setup.programs import ROOT, run_command
from tests.trainers.environment import trainer_python

CLIENTS = ("anthropic==2.12.0", "google-genai==3.4.0", "litellm==1.106.2", "mcp", "boto3==1.44.5")
APP = ROOT / "tests" / "tracing" / "apps" / "other_clients.py"
TEXT, CITY, ANSWER = "Let me look.", {"city": "Paris"}, "Paris is sunny."


def messages(texts: list[str], is_call: bool) -> dict:
    blocks = [{"type": "text", "text": text} for text in texts]
    blocks += [{"type": "tool_use", "id": "call_1", "name": "get_weather", "input": CITY}] * is_call
    about = {"id": "m_1", "type": "message", "role": "assistant", "model": "m", "stop_sequence": None}
    stop = "tool_use" if is_call else "end_turn"
    return about | {"content": blocks, "stop_reason": stop, "usage": {"input_tokens": 5, "output_tokens": 6}}


def generate_content(texts: list[str], is_call: bool) -> dict:
    parts = [{"text": text} for text in texts]
    parts += [{"functionCall": {"id": "call_1", "name": "get_weather", "args": CITY}}] * is_call
    candidate = {"content": {"role": "model", "parts": parts}, "index": 0, "finishReason": "STOP"}
    return {"candidates": [candidate], "modelVersion": "m"}


def chat(texts: list[str], is_call: bool) -> dict:
    function = {"name": "get_weather", "arguments": json.dumps(CITY)}
    message: dict = {"role": "assistant", "content": "".join(texts)}
    message |= {"tool_calls": [{"id": "call_1", "type": "function", "function": function}]} if is_call else {}
    choice = {"index": 0, "message": message, "finish_reason": "tool_calls" if is_call else "stop"}
    return {"id": "c_1", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice]}


def converse(texts: list[str], is_call: bool) -> dict:
    content: list[dict] = [{"text": text} for text in texts]
    content += [{"toolUse": {"toolUseId": "call_1", "name": "get_weather", "input": CITY}}] * is_call
    usage = {"inputTokens": 5, "outputTokens": 6, "totalTokens": 11}
    output = {"message": {"role": "assistant", "content": content}}
    stop = "tool_use" if is_call else "end_turn"
    return {"output": output, "stopReason": stop, "usage": usage, "metrics": {"latencyMs": 1}}


WAYS = {"/messages": messages, ":generateContent": generate_content, "/completions": chat, "/converse": converse}


class Handler(BaseHTTPRequestHandler):
    """A model that calls its tool once: a request with a result gets the answer."""

    def do_POST(self):
        asked = self.rfile.read(int(self.headers["Content-Length"]))
        answer = next(answer for way, answer in WAYS.items() if self.path.split("?")[0].endswith(way))
        is_call = b"sunny" not in asked
        body = json.dumps(answer([TEXT] if is_call else [ANSWER], is_call)).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


@pytest.fixture(scope="module")
def url():
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.mark.live
@pytest.mark.parametrize("client", ["anthropic", "google", "litellm", "bedrock"])
def test_an_app_of_another_client_is_recorded_whole(client, url, tmp_path: Path):
    python = trainer_python("clients", *CLIENTS, "-e", f"{ROOT}[anthropic,bedrock,google,litellm]")
    settings = {"LITELLM_LOCAL_MODEL_COST_MAP": "True", "NO_PROXY": "127.0.0.1"}
    command = (python.parent / "art-otel", "run", "--", python, APP, client, url)
    done = run_command(tmp_path, *command, ART_OTEL_DIR=str(tmp_path), **settings)
    assert done.code == 0, done.errors
    (trajectory,), _ = convert_files(tmp_path / "dataset", tmp_path / "spool")
    assert trajectory.complete, trajectory.incomplete_reasons
    first, second = trajectory.calls
    assert [(message.role, message.content) for message in first.input_messages] == [
        ("system", "Be brief."),
        ("user", "Weather in Paris?"),
    ]
    (said,) = [choice.message for choice in first.choices]
    assert (said.content, [(call.name, json.loads(call.arguments)) for call in said.tool_calls]) == (
        TEXT,
        [("get_weather", CITY)],
    )
    asked, result = second.input_messages[2:]
    assert (asked.content, [call.name for call in asked.tool_calls]) == (TEXT, ["get_weather"])
    assert (result.role, "sunny" in result.content) == ("tool", True)
    assert second.choices[0].message.content == ANSWER
