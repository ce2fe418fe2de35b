"""Django: the site's paths, and its application."""

from conversation import converse, converse_in_parts, streamed
from django.core.wsgi import get_wsgi_application
from django.http import HttpRequest, HttpResponse, StreamingHttpResponse
from django.urls import path


def answer(request: HttpRequest, question: str) -> HttpResponse:  # noqa: ARG001 - Django gives it
    """Answer a question."""
    return HttpResponse(converse(question))


def stream(request: HttpRequest, question: str) -> StreamingHttpResponse:  # noqa: ARG001 - as above
    """Stream the answer, which is made after the request's span."""
    return StreamingHttpResponse(converse_in_parts(question))


def decorated(request: HttpRequest, question: str) -> StreamingHttpResponse:  # noqa: ARG001 - as above
    """Stream the answer, which is a rollout."""
    return StreamingHttpResponse(streamed(question))


urlpatterns = [
    path("answer/<question>", answer),
    path("stream/<question>", stream),
    path("decorated/<question>", decorated),
]
application = get_wsgi_application()
