"""FastAPI."""

from conversation import converse_async
from fastapi import FastAPI

app = FastAPI()


@app.post("/answer/{question}")
async def answer(question: str) -> str:
    """Answer a question."""
    return await converse_async(question)
