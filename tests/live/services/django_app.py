"""Django: the site's paths, and its application."""

from conversation import converse
from django.core.wsgi import get_wsgi_application
from django.http import HttpRequest, HttpResponse
from django.urls import path


def answer(request: HttpRequest, question: str) -> HttpResponse:  # noqa: ARG001 - Django gives it
    """Answer a question."""
    return HttpResponse(converse(question))


urlpatterns = [path("answer/<question>", answer)]
application = get_wsgi_application()
