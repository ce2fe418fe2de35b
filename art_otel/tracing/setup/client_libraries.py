"""Client libraries: whose calls are recorded, and by which instrumentors.

Invariant: a client library is a row here; what starts instrumentors, and what looks for missing ones, reads the rows.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from art_otel.tracing.setup.settings import MODULES


@dataclass(frozen=True, kw_only=True, slots=True)
class ClientLibrary:
    """A client of models.

    `module` is what an app imports of it, `distribution` is what pip installs. `entry_points` are the names under which
    instrumentors of it are registered with OTel, `instrumentors` the modules of those that record content, the
    preferred first. `extra` is ours and installs one; None where art-otel itself requires one. `is_general` says that
    programs use the library for more than models, so its presence alone says nothing.
    """

    module: str
    distribution: str
    entry_points: tuple[str, ...]
    instrumentors: tuple[str, ...]
    extra: str | None
    is_general: bool = False


OPENAI: Final = ClientLibrary(
    module="openai",
    distribution="openai",
    entry_points=("openai",),
    instrumentors=tuple(MODULES.values()),
    extra=None,
)
CLIENT_LIBRARIES: Final = (
    OPENAI,
    ClientLibrary(
        module="anthropic",
        distribution="anthropic",
        entry_points=("anthropic",),
        instrumentors=(
            "opentelemetry.instrumentation.anthropic",
            "opentelemetry.instrumentation.genai.anthropic",
            "openinference.instrumentation.anthropic",
        ),
        extra="anthropic",
    ),
    ClientLibrary(
        module="google.genai",
        distribution="google-genai",
        entry_points=("google-genai", "google_genai"),
        # OTel's refuses google-genai 3.
        instrumentors=("openinference.instrumentation.google_genai", "opentelemetry.instrumentation.google_genai"),
        extra="google",
    ),
    ClientLibrary(
        module="litellm",
        distribution="litellm",
        entry_points=("litellm",),
        instrumentors=("openinference.instrumentation.litellm",),
        extra="litellm",
    ),
    ClientLibrary(
        module="boto3",
        distribution="boto3",
        entry_points=("boto3", "bedrock"),
        instrumentors=(
            "opentelemetry.instrumentation.bedrock",
            "opentelemetry.instrumentation.genai.bedrock",
            "openinference.instrumentation.bedrock",
        ),
        extra="bedrock",
        is_general=True,
    ),
)

BY_ENTRY_POINT: Final[Mapping[str, ClientLibrary]] = {
    name: library for library in CLIENT_LIBRARIES for name in library.entry_points
}
