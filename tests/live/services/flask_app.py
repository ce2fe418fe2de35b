"""Flask."""

from conversation import converse, converse_in_parts
from flask import Flask, Response, stream_with_context
from opentelemetry import trace

import art_otel

app = Flask(__name__)


@app.post("/answer/<question>")
def answer(question: str) -> str:
    """Answer a question."""
    return converse(question)


@app.post("/stream/<question>")
def stream(question: str) -> Response:
    """Stream the answer, which is made when the view has returned."""
    return Response(converse_in_parts(question))


@app.post("/context/<question>")
def context(question: str) -> Response:
    """The same in Flask's context."""
    return Response(stream_with_context(converse_in_parts(question)))


@app.post("/judged/<question>")
def judged(question: str) -> str:
    """Answer, and say which rollout that was."""
    converse(question)
    return trace.get_current_span().attributes["art.rollout.id"]


@app.post("/feedback/<rollout_id>")
def feedback(rollout_id: str) -> str:
    """Judge an earlier answer."""
    art_otel.reward(1.0, rollout_id=rollout_id)
    return ""
