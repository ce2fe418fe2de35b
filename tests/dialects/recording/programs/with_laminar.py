"""Laminar's SDK."""

from contextlib import contextmanager
from urllib.parse import urlsplit

from recorder import ENDPOINT, unwrapped


@contextmanager
def recorded(_what: str):
    from lmnr import Laminar

    port = urlsplit(ENDPOINT).port
    Laminar.initialize(
        project_api_key="key", base_url="http://127.0.0.1", http_port=port, grpc_port=port, force_http=True
    )
    with Laminar.start_as_current_span("agent run"):
        yield unwrapped
    Laminar.flush()
    Laminar.shutdown()
