"""Capture of openai's clients: `capture` installs the hooks, `call` follows one call, `stream` reads its answer."""

from art_otel.lazy_names import defer_imports

if not defer_imports(__name__):
    from art_otel.tracing.openai.capture import Capture as Capture
    from art_otel.tracing.openai.capture import install as install
    from art_otel.tracing.openai.capture import uninstall as uninstall
