"""LangSmith's SDK with its OTel export: `openai` or `anthropic` wrap their clients, else LangChain does it itself.

"bare": to the app's provider, without a root span; else to a provider that LangSmith makes.
"""

import os
from contextlib import contextmanager

from recorder import set_providers, unwrapped

os.environ |= {"LANGSMITH_TRACING": "true", "LANGSMITH_OTEL_ENABLED": "true", "LANGSMITH_OTEL_ONLY": "true"}


@contextmanager
def recorded(what: str):
    import langsmith
    from langsmith import wrappers
    from langsmith.run_trees import get_cached_client

    if what == "bare":
        provider = set_providers()
        yield unwrapped
    else:
        with langsmith.trace("agent run"):
            yield getattr(wrappers, f"wrap_{what}") if what else unwrapped
    get_cached_client().flush()
    if what == "bare":
        provider.force_flush()
