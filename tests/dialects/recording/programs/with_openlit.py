"""OpenLIT."""

from contextlib import contextmanager

from recorder import ENDPOINT, unwrapped


@contextmanager
def recorded(_what: str):
    import openlit
    from opentelemetry import trace

    openlit.init(otlp_endpoint=ENDPOINT, disable_batch=True, disable_metrics=True)
    yield unwrapped
    trace.get_tracer_provider().shutdown()
