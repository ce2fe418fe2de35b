"""The inference server: the policy behind OpenAI's API. It answers `return_token_ids` and `logprobs` as vLLM does."""

import json
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock, Thread
from uuid import uuid4

from policy import WORDS, Policy, render


class Server(ThreadingHTTPServer):
    """Serves the policy from threads of this process."""

    daemon_threads = True

    def __init__(self, policy: Policy) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.policy = policy
        self.lock = Lock()
        self.url = f"http://127.0.0.1:{self.server_port}/v1"
        Thread(target=self.serve_forever, daemon=True).start()


class Handler(BaseHTTPRequestHandler):
    """Answers chat completions."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_POST(self) -> None:
        """Answer one request."""
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if not self.path.endswith("/chat/completions"):
            self.send_error(404)  # a gateway asks what else this server can do
            return
        prompt = render(request["messages"])
        with self.server.lock:
            token, logprob = self.server.policy.sample(prompt)
        body = json.dumps(completion(request, prompt, token, logprob)).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Keep the terminal quiet."""


def completion(request: dict, prompt: list[int], token: int, logprob: float) -> dict:
    """The response, with token ids and log probabilities where the request asks for them."""
    choice = {"index": 0, "message": {"role": "assistant", "content": WORDS[token]}, "finish_reason": "stop"}
    answer = {"id": f"chatcmpl-{uuid4().hex}", "object": "chat.completion", "created": 0, "model": request["model"]}
    if request.get("logprobs"):
        choice["logprobs"] = {"content": [{"token": WORDS[token], "logprob": logprob, "top_logprobs": []}]}
    if request.get("return_token_ids"):
        choice["token_ids"] = [token]
        answer["prompt_token_ids"] = prompt
    return {**answer, "choices": [choice]}
