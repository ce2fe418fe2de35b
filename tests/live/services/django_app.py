"""Django: the site's paths, and its applications."""

from conversation import converse, converse_async, converse_in_parts, converse_in_parts_async
from django.core.asgi import get_asgi_application
from django.core.wsgi import get_wsgi_application
from django.http import HttpRequest, HttpResponse, StreamingHttpResponse
from django.urls import path


def answer(request: HttpRequest, question: str) -> HttpResponse:  # noqa: ARG001 - Django gives it
    """Answer a question."""
    return HttpResponse(converse(question))


def stream(request: HttpRequest, question: str) -> StreamingHttpResponse:  # noqa: ARG001 - as above
    """Stream the answer, which is made when the view has returned."""
    return StreamingHttpResponse(converse_in_parts(question))


async def answer_async(request: HttpRequest, question: str) -> HttpResponse:  # noqa: ARG001 - as above
    """Answer a question."""
    return HttpResponse(await converse_async(question))


async def stream_async(request: HttpRequest, question: str) -> StreamingHttpResponse:  # noqa: ARG001 - as above
    """Stream the answer."""
    return StreamingHttpResponse(converse_in_parts_async(question))


urlpatterns = [
    path("answer/<question>", answer),
    path("stream/<question>", stream),
    path("answer_async/<question>", answer_async),
    path("stream_async/<question>", stream_async),
]
wsgi = get_wsgi_application()
asgi = get_asgi_application()
