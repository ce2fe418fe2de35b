"""Records answers of a real vLLM and a real llama.cpp below `recorded/`: `uv run python -m tests.model_servers.record`.

Each is asked as the gateway and the live half ask, with token ids. `test_recorded` reads them without a server.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import httpx

from tests.model_servers.asks import LOOK, MODEL, PLAIN, SCHEMA, TOOLS, user
from tests.model_servers.llama import llama_server
from tests.model_servers.servers import ModelServer, vllm_server

FOLDER: Final = Path(__file__).with_name("recorded")
_CHAT: Final = {
    "model": MODEL,
    "messages": user("weather"),
    "logprobs": True,
    "return_token_ids": True,
    "seed": 1,
    **PLAIN,
}
_TEXT: Final = {"model": MODEL, "max_tokens": 6, "seed": 1}
_RESPONSE: Final = {"model": MODEL, "input": "Hi", "max_output_tokens": 6, "enable_response_messages": True}
REQUESTS: Final[dict[str, tuple[str, dict[str, Any]]]] = {
    "forced": (
        "/v1/chat/completions",
        {
            **_CHAT,
            "max_tokens": 60,
            "tools": TOOLS,
            "tool_choice": {"type": "function", "function": {"name": LOOK["name"]}},
        },
    ),
    "schema": (
        "/v1/chat/completions",
        {
            **_CHAT,
            "max_tokens": 12,
            "response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": SCHEMA}},
        },
    ),
    "echo": ("/v1/completions", {**_TEXT, "prompt": "Hello", "echo": True}),
    "prompts": (
        "/v1/completions",
        {**_TEXT, "prompt": ["Hello world", "Another prompt"], "logprobs": 1, "return_token_ids": True},
    ),
    "responses": ("/v1/responses", _RESPONSE),
    "responses-stream": ("/v1/responses", {**_RESPONSE, "stream": True}),
}
_LLAMA: Final = {
    "model": MODEL,
    "messages": user("Hi"),
    "max_tokens": 12,
    "logprobs": True,
    "top_logprobs": 1,
    "return_token_ids": True,
}
LLAMA_REQUESTS: Final[dict[str, tuple[str, dict[str, Any]]]] = {
    "llama-exact-stream": ("/v1/chat/completions", {**_LLAMA, "stream": True, "seed": 2}),
    "llama-torn-stream": ("/v1/chat/completions", {**_LLAMA, "stream": True, "seed": 1}),
    "llama-two": ("/v1/chat/completions", {**_LLAMA, "n": 2, "max_tokens": 3, "seed": 4}),
    "llama-two-stream": (
        "/v1/chat/completions",
        {**_LLAMA, "n": 2, "max_tokens": 3, "seed": 4, "stream": True, "stream_options": {"include_usage": True}},
    ),
    "llama-text-stream": (
        "/v1/completions",
        {**_TEXT, "prompt": "Hello", "logprobs": 1, "return_token_ids": True, "stream": True},
    ),
}


def main() -> None:
    """Ask for all of them."""
    for started, requests in ((vllm_server, REQUESTS), (llama_server, LLAMA_REQUESTS)):
        with started(Path("server.log")) as server:
            record(server, requests)


def record(server: ModelServer, requests: Mapping[str, tuple[str, dict[str, Any]]]) -> None:
    """Ask a server, and keep what it answers."""
    with httpx.Client(base_url=server.url, timeout=300) as client:
        for name, (path, request) in requests.items():
            answer = client.post(path, json=request).raise_for_status()
            kept = {"content_type": answer.headers["content-type"], "answer": answer.text}
            text = json.dumps({"path": path, "request": request, **kept}, ensure_ascii=False, indent=1)
            (FOLDER / f"{name}.json").write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
