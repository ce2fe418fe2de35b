"""What apps of Flask and Django keep of their own: spans of answers that nobody reads, files, Django's hook."""

import json
from pathlib import Path
from typing import Any

import django
from conversation import converse_in_parts
from django.conf import settings
from django.http import FileResponse, HttpRequest, StreamingHttpResponse
from django.test import Client
from django.urls import path
from flask import Flask, Response, send_file
from opentelemetry import trace
from opentelemetry.instrumentation.django import DjangoInstrumentor
from opentelemetry.instrumentation.flask import FlaskInstrumentor
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from werkzeug.test import EnvironBuilder

import art_otel

HERE = Path(__file__).resolve()
art_otel.configure(rollout_spans=["* *stream", "GET *file"])
exported = InMemorySpanExporter()
trace.set_tracer_provider(TracerProvider())
trace.get_tracer_provider().add_span_processor(SimpleSpanProcessor(exported))
told: dict[str, list[object]] = {}


def note(what: str) -> None:
    """Note the names of the spans that have ended since the last note."""
    told[what] = [span.name for span in exported.get_finished_spans()]
    exported.clear()


app = Flask(__name__)
app.add_url_rule("/stream", "stream", lambda: Response(converse_in_parts("unread")))
app.add_url_rule("/news", "news", lambda: Response(iter(["no agent"])))
app.add_url_rule("/file", "file", lambda: send_file(HERE))
FlaskInstrumentor.instrument_app(app)


def ask(path: str, method: str = "GET") -> Any:
    """The answer as a server gets it, before it reads any."""
    return app(EnvironBuilder(path, method=method).get_environ(), lambda *_: print)


answer = ask("/stream")
note("flask, open")
del answer
note("flask, dropped")
ask("/stream", "HEAD").close()
note("flask, without a body")
news = ask("/news")
note("flask, a stream in no rollout that is open")
news.close()
file = ask("/file")
note("flask, a file that is open")
file.close()


def stream(request: HttpRequest) -> StreamingHttpResponse:  # noqa: ARG001 - Django gives it
    """Stream an answer."""
    return StreamingHttpResponse(converse_in_parts("unread"))


def download(request: HttpRequest) -> FileResponse:  # noqa: ARG001 - as above
    """Send a file."""
    return FileResponse(HERE.open("rb"))


seen: list[object] = []
urlpatterns = [path("stream", stream), path("file", download)]
settings.configure(ROOT_URLCONF=__name__, SECRET_KEY="for tests", ALLOWED_HOSTS=["*"])
DjangoInstrumentor().instrument(response_hook=lambda _, request, __: seen.append(request.path))
django.setup()
answer = Client().get("/stream")
note("django, open")
answer.close()
note("django, closed")
file = Client().get("/file")
note("django, a file that is open")
file.close()
told["django, the app's hook"] = seen
print(json.dumps(told))
