"""A web service in front of a model: `application` for WSGI servers (gunicorn), `asgi` for ASGI servers (uvicorn).

Each request makes one call; the answer is its response id.
"""

from openai import AsyncOpenAI, OpenAI

client = OpenAI()
async_client = AsyncOpenAI()


def request(path: str) -> dict:
    """The arguments of the call."""
    return {"model": "m", "messages": [{"role": "user", "content": f"path {path}"}]}


def application(environ, start_response) -> list[bytes]:
    """WSGI."""
    reply = client.chat.completions.create(**request(environ["PATH_INFO"]))
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [reply.id.encode()]


async def asgi(scope, receive, send) -> None:
    """ASGI."""
    if scope["type"] == "lifespan":
        while True:
            message = await receive()
            await send({"type": f"{message['type']}.complete"})
            if message["type"] == "lifespan.shutdown":
                return
    reply = await async_client.chat.completions.create(**request(scope["path"]))
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/plain")]})
    await send({"type": "http.response.body", "body": reply.id.encode()})
