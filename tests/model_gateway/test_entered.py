"""What one request costs is counted: modules of ours that it enters on its way, and Python calls in them.

`uv run python -m tests.model_gateway.test_entered whole` lists them in order, for whoever reads the code along a
request.
"""

import gc
import json
import sys
import tempfile
import threading
import time
from http.client import HTTPConnection
from pathlib import Path
from types import FrameType
from unittest.mock import patch

import pytest

from art_otel.model_gateway import gateway as gateway_module
from tests.model_gateway.gateways import gateway
from tests.stand_ins import Handler, listening

OF_GATEWAY = ["gateway", "addresses", "rollouts", "upstreams"]
"""The modules of the package itself that a request enters, in this order."""

MOST = {"whole": (10, 200), "streamed": (12, 1700)}
"""Modules and Python calls; a streamed answer has a hundred chunks, which two more modules join."""

CHUNKS = 100
_ENTRY = {"token": "a", "logprob": -0.5, "bytes": None, "top_logprobs": []}
_CHOICE = {"index": 0, "finish_reason": None, "token_ids": [7], "logprobs": {"content": [_ENTRY]}}


class ChatServer(Handler):
    """Chat Completions with ids, and nothing else."""

    def answer(self, body: bytes) -> None:
        asked = json.loads(body)
        about = {"id": "c", "model": "m", "prompt_token_ids": [1, 2]}
        kind, status = "application/json", 200 if self.path == "/v1/chat/completions" else 404
        message = {"role": "assistant", "content": "a"}
        answer = json.dumps({**about, "choices": [{**_CHOICE, "finish_reason": "stop", "message": message}]}).encode()
        if asked.get("stream"):
            chunk = b"data: %b\n\n" % json.dumps({**about, "choices": [{**_CHOICE, "delta": message}]}).encode()
            kind, answer = "text/event-stream", chunk * CHUNKS + b"data: [DONE]\n\n"
        self.head(status, content_type=kind, content_length=len(answer))
        self.wfile.write(answer)


def entered_by_a_request(how: str) -> list[tuple[str, str]]:
    """The modules and functions of ours that the gateway's thread enters, one entry a Python call."""
    entered: list[tuple[str, str]] = []
    is_counting = False

    def count(frame: FrameType, event: str, _: object) -> None:
        path = frame.f_code.co_filename.replace("\\", "/")
        is_gateway = threading.current_thread().name == "art-otel receiver"
        if is_counting and is_gateway and event == "call" and "/art_otel/" in path:
            entered.append((path.rpartition("/art_otel/")[2], frame.f_code.co_qualname))

    def ask() -> None:
        body = {"model": "m", "messages": [{"role": "user", "content": "Hi"}], "stream": how == "streamed"}
        connection.request("POST", "/rollout/r/v1/chat/completions", json.dumps(body))
        answered = connection.getresponse()
        assert b'"choices"' in answered.read()

    gc.collect()  # what an earlier gateway has left would be finalized in between
    try:
        with listening(ChatServer) as address, tempfile.TemporaryDirectory() as folder:
            threading.setprofile(count)  # of the threads that begin now
            with (
                patch.object(gateway_module, "_LOOK_EVERY", 3600.0),  # which is no part of the request
                gateway(Path(folder), address, translate="auto", grace=3600.0) as running,
            ):
                connection = HTTPConnection("127.0.0.1", int(running.url.rpartition(":")[2]))
                ask()
                ask()
                time.sleep(0.1)  # what follows an answer is over
                is_counting = True
                ask()
                is_counting = False
                connection.close()
    finally:
        threading.setprofile(None)
    return entered


@pytest.mark.long
@pytest.mark.parametrize("how", MOST)
def test_a_request_enters_few_modules(how):
    entered = entered_by_a_request(how)
    modules = list(dict.fromkeys(module for module, _ in entered))
    own = [module.partition("/")[2].removesuffix(".py") for module in modules if module.startswith("model_gateway/")]
    assert own == OF_GATEWAY
    most_modules, most_calls = MOST[how]
    assert len(modules) <= most_modules
    assert len(entered) <= most_calls


if __name__ == "__main__":
    found: dict[str, dict[str, None]] = {}
    for its_module, function in entered_by_a_request(sys.argv[1]):
        found.setdefault(its_module, {})[function] = None
    for its_module, functions in found.items():
        print(its_module, *functions, sep="\n    ")
