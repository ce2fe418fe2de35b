"""A stand-in for vLLM, to try the examples without a GPU: `python docs/toy_server.py [PORT]`.

It speaks OpenAI's Chat Completions, and answers `return_token_ids` and `logprobs` as vLLM does. Its model is a joke: it
adds the numbers that it reads, and is wrong every other time. A token is a byte.
"""

import itertools
import json
import re
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

NUMBERS = itertools.count()


class Handler(BaseHTTPRequestHandler):
    """Answers chat completions."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        """Answer one request."""
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if not self.path.endswith("/chat/completions"):
            self.send_error(404)
            return
        body = json.dumps(complete(request)).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Keep the terminal quiet."""


def complete(request: dict) -> dict:
    """The response to a request."""
    number = next(NUMBERS)
    prompt = "".join(f"<{each['role']}>{each.get('content') or ''}\n" for each in request["messages"]) + "<assistant>"
    summands = map(int, re.findall(r"\d+", request["messages"][-1]["content"] or ""))
    text = str(sum(summands) + number % 2)
    choice: dict = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
    answer: dict = {"id": f"toy-{number}", "object": "chat.completion", "created": 0, "model": request["model"]}
    if request.get("logprobs"):
        choice["logprobs"] = {"content": [{"token": each, "logprob": -0.5, "top_logprobs": []} for each in text]}
    if request.get("return_token_ids"):
        choice["token_ids"] = list(text.encode())
        answer["prompt_token_ids"] = list(prompt.encode())
    return {**answer, "choices": [choice]}


if __name__ == "__main__":
    with ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1]) if len(sys.argv) > 1 else 8000), Handler) as server:
        print(f"http://127.0.0.1:{server.server_port}/v1", flush=True)
        server.serve_forever()
