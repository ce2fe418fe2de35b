"""Starlette."""

from conversation import converse_async, converse_in_parts_async
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, StreamingResponse
from starlette.routing import Route


async def answer(request: Request) -> PlainTextResponse:
    """Answer a question."""
    return PlainTextResponse(await converse_async(request.path_params["question"]))


async def stream(request: Request) -> StreamingResponse:
    """Stream the answer."""
    return StreamingResponse(converse_in_parts_async(request.path_params["question"]))


app = Starlette(
    routes=[
        Route("/answer/{question}", answer, methods=["POST"]),
        Route("/stream/{question}", stream, methods=["POST"]),
    ]
)
