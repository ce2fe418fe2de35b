"""The agent as a service, in a process of its own: a question comes by HTTP, the answer goes back.

As an instrumented web framework would, it makes the W3C trace context of a request current, so that whatever the agent
does belongs to the rollout that asked. It knows nothing of art-otel: it is traced by its environment alone.

    art-otel run -- python -m art_otel.demo.agent_service
"""

import json
import os
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

from openai import OpenAI
from opentelemetry import context, propagate

from art_otel.demo.agent import guide


class AgentService(ThreadingHTTPServer):
    """Serves on any free port of this machine; `client` is what the agent asks its model with."""

    daemon_threads = True

    def __init__(self, client: OpenAI) -> None:
        super().__init__(("127.0.0.1", 0), _AgentHandler)
        self.client = client


class _AgentHandler(BaseHTTPRequestHandler):
    server: AgentService  # pyright: ignore[reportIncompatibleVariableOverride] # the base class knows no more of it

    def do_POST(self) -> None:
        """Answer a question: the arguments of `guide` as JSON."""
        question = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        token = context.attach(propagate.extract(dict(self.headers)))
        try:
            answer = guide(self.server.client, **question).encode()
        finally:
            context.detach(token)
        self.send_response(200)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 # the base class's name
        """Nobody reads a log of requests here."""


def main() -> None:
    """Tell the port, and serve until standard input ends, as it does when whoever started this has gone."""
    with OpenAI() as client, AgentService(client) as service:
        Thread(target=service.serve_forever, daemon=True).start()
        _tell(service.server_port)
        sys.stdin.read()
        service.shutdown()


def _tell(port: int) -> None:
    try:
        print(port, flush=True)  # noqa: T201 # how it tells
    except BrokenPipeError:  # whoever started this has gone; Python would complain again while closing the pipe
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


if __name__ == "__main__":
    main()
