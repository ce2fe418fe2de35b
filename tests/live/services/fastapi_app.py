"""FastAPI."""

from conversation import converse_async, converse_in_parts_async
from fastapi import FastAPI
from fastapi.responses import StreamingResponse

app = FastAPI()


@app.post("/answer/{question}")
async def answer(question: str) -> str:
    """Answer a question."""
    return await converse_async(question)


@app.post("/stream/{question}")
async def stream(question: str) -> StreamingResponse:
    """Stream the answer."""
    return StreamingResponse(converse_in_parts_async(question))
