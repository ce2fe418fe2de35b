"""Provider hooks: learn which tracer provider the app sets, and make spans by ours while none is set.

Invariant: OTel's global provider is the app's alone: it finds OTel as it would be without us, no warning, and every
tracer moves over to what it sets, also after spans of ours.
"""

from collections.abc import Callable
from typing import Any, Final, cast

from opentelemetry import trace
from opentelemetry.trace import ProxyTracer, ProxyTracerProvider, Tracer, TracerProvider
from wrapt import wrap_function_wrapper

_GLOBAL: Final = "_TRACER_PROVIDER"
_SET: Final = "_set_tracer_provider"
_PROXIED: Final = "_tracer"
_SCOPE: Final = ("_instrumenting_module_name", "_instrumenting_library_version", "_schema_url", "_attributes")
_DEFAULT: Final = "_art_otel_default"


def provider_in_use() -> TracerProvider | None:
    """The provider that the app has set; None while there is none."""
    provider = cast(TracerProvider | None, getattr(trace, _GLOBAL, None))
    return None if isinstance(provider, ProxyTracerProvider) else provider


def hook_providers(on_set: Callable[[TracerProvider], None], default: Callable[[], TracerProvider | None]) -> bool:
    """Tell `on_set` of each provider that is set from now on; while none is, `default` gives the one that makes spans.

    False where OTel's internals are not as they were: then nothing was changed.
    """
    native = vars(ProxyTracer).get(_PROXIED)
    proxy_fields = vars(ProxyTracer("", None, None))
    if not isinstance(native, property) or not all(hasattr(trace, name) for name in (_GLOBAL, _SET)):
        return False
    if not proxy_fields.keys() >= set(_SCOPE):
        return False

    def tracer(proxy: ProxyTracer) -> Tracer:
        provider = default() if getattr(trace, _GLOBAL) is None else None
        return cast(Tracer, native.__get__(proxy)) if provider is None else _tracer_of(proxy, provider)

    def after_set(wrapped: Callable[..., None], _: object, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        wrapped(*args, **kwargs)
        provider = provider_in_use()
        if provider is not None:
            on_set(provider)

    setattr(ProxyTracer, _PROXIED, property(tracer))
    wrap_function_wrapper(trace, _SET, after_set)
    return True


def _tracer_of(proxy: ProxyTracer, provider: TracerProvider) -> Tracer:
    """The provider's tracer of the scope of a proxy, which remembers it."""
    cached: tuple[TracerProvider, Tracer] | None = vars(proxy).get(_DEFAULT)
    if cached is None or cached[0] is not provider:
        scope = [vars(proxy)[name] for name in _SCOPE]
        cached = vars(proxy)[_DEFAULT] = (provider, provider.get_tracer(*scope))
    return cached[1]
