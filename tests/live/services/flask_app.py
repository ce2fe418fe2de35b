"""Flask."""

from conversation import converse, converse_in_parts, streamed
from flask import Flask, Response, stream_with_context

app = Flask(__name__)


@app.post("/answer/<question>")
def answer(question: str) -> str:
    """Answer a question."""
    return converse(question)


@app.post("/stream/<question>")
def stream(question: str) -> Response:
    """Stream the answer, which is made after the request's span."""
    return Response(converse_in_parts(question))


@app.post("/context/<question>")
def context(question: str) -> Response:
    """The same in Flask's context."""
    return Response(stream_with_context(converse_in_parts(question)))


@app.post("/decorated/<question>")
def decorated(question: str) -> Response:
    """Stream the answer, which is a rollout."""
    return Response(streamed(question))
