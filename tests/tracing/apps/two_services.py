"""A rollout that asks another service, in another process, which calls the model for it; headers are all they share.

`python two_services.py` is the first; it starts the second. Prints one JSON line: the response ids.
"""

import json
import os
import subprocess
import sys
import urllib.request
from http.server import BaseHTTPRequestHandler, HTTPServer

from openai import OpenAI
from opentelemetry import context, propagate

import art_otel


def ask(text: str) -> str:
    """One call; its response id."""
    with OpenAI() as client:
        return client.chat.completions.create(model="m", messages=[{"role": "user", "content": text}]).id


class Handler(BaseHTTPRequestHandler):
    """The second service: a call for each request, in the context the request came with."""

    def do_GET(self) -> None:
        """Ask the model."""
        token = context.attach(propagate.extract({name.lower(): value for name, value in self.headers.items()}))
        try:
            said = ask("asked by the second service").encode()
        finally:
            context.detach(token)
        self.send_response(200)
        self.send_header("Content-Length", str(len(said)))
        self.end_headers()
        self.wfile.write(said)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 # the base class's name
        """The console stays quiet."""


def serve() -> None:
    """Two requests, then the end."""
    server = HTTPServer(("127.0.0.1", 0), Handler)
    print(server.server_port, flush=True)
    for _ in range(2):
        server.handle_request()
    server.server_close()


def main() -> None:
    """Two rollouts, each with a call of its own and one by the other service."""
    other = subprocess.Popen([sys.executable, __file__, "serve"], stdout=subprocess.PIPE, text=True, env=os.environ)
    port = other.stdout.readline().strip()
    told = {}
    for name in ("one", "two"):
        with art_otel.rollout(name=name):
            headers: dict[str, str] = {}
            propagate.inject(headers)
            request = urllib.request.Request(f"http://127.0.0.1:{port}/", headers=headers)
            with urllib.request.urlopen(request) as answer:
                told[name] = [ask(f"asked by {name}"), answer.read().decode()]
    other.wait()
    print(json.dumps(told))


if __name__ == "__main__":
    serve() if sys.argv[1:] == ["serve"] else main()
