"""MLflow's autolog, to its own provider or, with `app`, to the app's."""

import os
from contextlib import contextmanager

from recorder import ENDPOINT, set_providers, unwrapped

os.environ["OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"] = f"{ENDPOINT}/v1/traces"


@contextmanager
def recorded(what: str):
    client, *options = what.split()
    if options == ["app"]:
        os.environ["MLFLOW_USE_DEFAULT_TRACER_PROVIDER"] = "false"
        set_providers()
    import mlflow

    mlflow.set_tracking_uri(f"sqlite:///{os.environ['HOME']}/mlflow.db")
    getattr(mlflow, client).autolog()
    with mlflow.start_span("agent run"):
        yield unwrapped
    mlflow.flush_trace_async_logging()
