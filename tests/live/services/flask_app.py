"""Flask."""

from conversation import converse
from flask import Flask

app = Flask(__name__)


@app.post("/answer/<question>")
def answer(question: str) -> str:
    """Answer a question."""
    return converse(question)
