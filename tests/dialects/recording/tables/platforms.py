"""SDKs of platforms, around clients."""

from typing import Final

from tests.dialects.recording.tables.row import ANTHROPIC_CONTENT, Row, sdk

_OPENAI: Final = ("openai", *sdk())
_ANTHROPIC: Final = ("anthropic", *sdk())
_LAMINAR: Final = ("lmnr", "openai")
_LAMINAR_ANTHROPIC: Final = ("lmnr", "anthropic")
_LANGFUSE: Final = ("langfuse", *_OPENAI)
_LANGSMITH: Final = ("langsmith", *_OPENAI)
_LANGSMITH_ANTHROPIC: Final = ("langsmith", "anthropic==0.60.0", *sdk())  # before it had spans of its own
_LOGFIRE: Final = ("logfire", *_OPENAI, "anthropic")
_MLFLOW: Final = ("mlflow", *_OPENAI)
_MLFLOW_ANTHROPIC: Final = ("mlflow", *_ANTHROPIC)
_OPENLIT_145: Final = ("openlit", "openai==2.54.0", "anthropic==0.125.0")

PLATFORMS: Final[dict[str, Row]] = {
    "laminar_stream": Row(requires=_LAMINAR, run=("openai_client.py", "stream", "laminar all")),
    "laminar_responses": Row(requires=_LAMINAR, run=("openai_client.py", "responses", "laminar all")),
    "laminar_anthropic": Row(requires=_LAMINAR_ANTHROPIC, run=("anthropic_client.py", "sync", "laminar all")),
    "laminar_hand": Row(requires=_LAMINAR, run=("openai_client.py", "chat", "laminar hand")),
    "langfuse_stream": Row(requires=_LANGFUSE, run=("openai_client.py", "stream", "langfuse openai")),
    "langfuse_rstream": Row(requires=_LANGFUSE, run=("openai_client.py", "rstream", "langfuse openai")),
    "langsmith_chat": Row(requires=_LANGSMITH, run=("openai_client.py", "chat", "langsmith openai")),
    "langsmith_rstream": Row(requires=_LANGSMITH, run=("openai_client.py", "rstream", "langsmith openai")),
    "langsmith_anthropic": Row(
        requires=_LANGSMITH_ANTHROPIC, run=("anthropic_client.py", "sync", "langsmith anthropic")
    ),
    "logfire_anthropic": Row(requires=_LOGFIRE, run=("anthropic_client.py", "sync", "logfire anthropic")),
    "logfire_anthropic_v1": Row(requires=_LOGFIRE, run=("anthropic_client.py", "sync", "logfire anthropic 1")),
    "logfire_anthropic_stream_v1": Row(
        requires=_LOGFIRE,
        run=("anthropic_client.py", "stream", "logfire anthropic 1"),
        settings=ANTHROPIC_CONTENT,
    ),
    "logfire_responses_v1": Row(requires=_LOGFIRE, run=("openai_client.py", "responses", "logfire openai 1")),
    "logfire_responses_v2": Row(requires=_LOGFIRE, run=("openai_client.py", "responses", "logfire openai 2")),
    "logfire_rstream_v2": Row(requires=_LOGFIRE, run=("openai_client.py", "rstream", "logfire openai 2")),
    "logfire_stream": Row(requires=_LOGFIRE, run=("openai_client.py", "stream", "logfire openai")),
    "logfire_stream_v1": Row(requires=_LOGFIRE, run=("openai_client.py", "stream", "logfire openai 1")),
    "mlflow_responses": Row(requires=_MLFLOW, run=("openai_client.py", "responses", "mlflow openai")),
    "mlflow_rstream": Row(requires=_MLFLOW, run=("openai_client.py", "rstream", "mlflow openai")),
    "mlflow_stream": Row(requires=_MLFLOW, run=("openai_client.py", "stream", "mlflow openai app")),
    "mlflow_anthropic": Row(
        requires=_MLFLOW_ANTHROPIC,
        run=("anthropic_client.py", "sync", "mlflow anthropic app"),
        settings=ANTHROPIC_CONTENT,
    ),
    "openlit_145_stream": Row(requires=_OPENLIT_145, run=("openai_client.py", "stream", "openlit")),
    "openlit_145_anthropic": Row(requires=_OPENLIT_145, run=("anthropic_client.py", "sync", "openlit")),
}
