"""Exchange: what is used of openai's options and of httpx's request and response, whose versions differ.

Invariant: nothing else of them is touched, and `art_otel.tracing.openai.client` looks whether it is there.
"""

from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from typing import Any, Final, Protocol, cast

from art_otel.tracing.internal_errors import InternalErrorHandler

_TELLING_CLOSED: Final = InternalErrorHandler("a call was not told that its response was closed")

RAW_HEADER: Final = "x-stainless-raw-response"
"""Tells the client to hand out the response itself: `true` and `raw` when it was read, `stream` before."""


class Options(Protocol):
    """openai's FinalRequestOptions."""

    method: str
    url: str
    json_data: object
    extra_json: Mapping[str, object] | None
    headers: object


def model_of(options: Options) -> str | None:
    """The model that is asked, as far as the options say."""
    body = options.json_data
    model = cast(Mapping[str, object], body).get("model") if isinstance(body, Mapping) else None
    return model if isinstance(model, str) else None


class Request(Protocol):
    """httpx's Request."""

    headers: Mapping[str, str]

    @property
    def content(self) -> bytes:
        """The body."""
        ...


class Response(Protocol):
    """httpx's Response."""

    headers: Mapping[str, str]
    status_code: int
    is_closed: bool

    @property
    def request(self) -> Request:
        """What it answers."""
        ...

    @property
    def content(self) -> bytes:
        """The body, once it was read."""
        ...

    def iter_bytes(self, *args: Any, **kwargs: Any) -> Iterator[bytes]:  # noqa: ANN401 # as httpx has them
        """The body as it comes."""
        ...

    def aiter_bytes(self, *args: Any, **kwargs: Any) -> AsyncIterator[bytes]:  # noqa: ANN401 # as httpx has them
        """The body as it comes."""
        ...

    def read(self) -> bytes:
        """Read the body, which is kept."""
        ...

    async def aread(self) -> bytes:
        """Read the body, which is kept."""
        ...

    def close(self) -> None:
        """Give the connection back."""
        ...

    async def aclose(self) -> None:
        """Give the connection back."""
        ...


def when_closed(response: Response, act: Callable[[], None]) -> None:
    """Do something whenever a response has been closed, by whoever reads it or at its end."""
    close, aclose = response.close, response.aclose

    def closing() -> None:
        try:
            close()
        finally:
            with _TELLING_CLOSED:
                act()

    async def async_closing() -> None:
        try:
            await aclose()
        finally:
            with _TELLING_CLOSED:
                act()

    vars(response).update(close=closing, aclose=async_closing)
