"""Asking: token ids and logprobs are asked of the server where the app did not.

Invariant: only requests whose call is recorded in a rollout are changed, by these fields and no other, and only where
the app says nothing about them. A request that is refused for them is sent again without: the app sees no refusal that
it did not cause. For some minutes requests to that server and model, streamed or not as this one, then do not ask.

Source of the fields: https://docs.vllm.ai (`return_token_ids`), OpenAI's `logprobs`.
"""

import copy
import logging
import time
import weakref
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple, cast

from art_otel.tracing.guest import Guest
from art_otel.tracing.openai.call import current_call_span
from art_otel.tracing.openai.client import Method
from art_otel.tracing.openai.exchange import Options, Request, Response

logger = logging.getLogger(__name__)

_FIELDS: Final[Mapping[str, Mapping[str, object]]] = {
    "/chat/completions": {"logprobs": True, "return_token_ids": True},
    "/completions": {"logprobs": 1, "return_token_ids": True},
}
"""By path; Completions counts the alternatives it wants."""

_REFUSALS: Final = (400, 422)
_REMEMBERED: Final = 600.0
"""Seconds that a refusal is remembered: servers are restarted with other options, and gateways lead elsewhere."""

_EXTENDING: Final = Guest("a request does not ask for token ids")
_REMEMBERING: Final = Guest("a server that refuses to be asked for token ids will be seen by the app")


class Asking:
    """Adds the fields to requests while it is on, and takes them back from those that were refused."""

    def __init__(self) -> None:
        self.is_on = True
        self._plain: weakref.WeakKeyDictionary[Request, _Plain] = weakref.WeakKeyDictionary()
        self._refused_at: dict[_Target, float] = {}

    def build(self, method: Method) -> Method:
        """`_build_request` of a client, which makes a request of options."""

        def build(client: Any, options: Options, *given: Any, **named: Any) -> Request:  # noqa: ANN401 # as openai
            extended = self._extended(client, options)
            if extended is None:
                return method(client, options, *given, **named)
            request: Request = method(client, extended, *given, **named)
            with _REMEMBERING:
                again = lambda: method(client, options, *given, **named)  # noqa: E731 # two of them are no function
                self._plain[request] = _Plain(client, _target(client, options), again)
            return request

        return build

    def send(self, method: Method) -> Method:
        """The method that sends a request, of a client."""

        def send(sender: Any, request: Request, **named: Any) -> Response:  # noqa: ANN401 # as openai and httpx
            response: Response = method(sender, request, **named)
            plain = self._plain_of(request, response)
            if plain is None:
                return response
            again = plain.make()
            plain.client._prepare_request(again)  # noqa: SLF001 # where providers sign
            response.close()
            return self._judged(plain.target, response, method(sender, again, **named))

        return send

    def async_send(self, method: Method) -> Method:
        """The method that sends a request, of an async client."""

        async def send(sender: Any, request: Request, **named: Any) -> Response:  # noqa: ANN401 # as above
            response: Response = await method(sender, request, **named)
            plain = self._plain_of(request, response)
            if plain is None:
                return response
            again = plain.make()
            await plain.client._prepare_request(again)  # noqa: SLF001 # as above
            await response.aclose()
            return self._judged(plain.target, response, await method(sender, again, **named))

        return send

    def _extended(self, client: Any, options: Options) -> Options | None:  # noqa: ANN401 # as openai
        """The options with the fields that are missing; None where a request is not to be changed."""
        with _EXTENDING:
            missing = self._missing(client, options)
            if missing:
                extended = copy.copy(options)
                extended.extra_json = {**(options.extra_json or {}), **missing}
                return extended
        return None

    def _missing(self, client: Any, options: Options) -> dict[str, object]:  # noqa: ANN401 # as openai
        """The fields to add to a request."""
        path = next((path for path in _FIELDS if options.url.endswith(path)), None)
        given = options.json_data
        if path is None or not isinstance(given, Mapping) or not self.is_on or current_call_span() is None:
            return {}
        if time.monotonic() < self._refused_at.get(_target(client, options), -_REMEMBERED) + _REMEMBERED:
            return {}
        said = {**cast(Mapping[str, object], given), **(options.extra_json or {})}
        return {name: value for name, value in _FIELDS[path].items() if name not in said}

    def _plain_of(self, request: Request, response: Response) -> "_Plain | None":
        """The request without our fields, if they may be why it was refused."""
        plain = self._plain.pop(request, None)
        return plain if plain is not None and response.status_code in _REFUSALS else None

    def _judged(self, target: "_Target", refused: Response, response: Response) -> Response:
        """The second answer. Where it is no refusal, the fields were the reason for the first."""
        if response.status_code not in _REFUSALS:
            if target not in self._refused_at:
                logger.warning(
                    "art-otel: %s refuses to be asked for token ids and logprobs of %s (status %d); it is asked again"
                    " in some minutes",
                    target.server,
                    target.model,
                    refused.status_code,
                )
            self._refused_at[target] = time.monotonic()
        return response


class _Target(NamedTuple):
    """Who is asked, and whether by a stream: what a refusal is remembered by."""

    server: str
    model: str
    stream: bool


def _target(client: Any, options: Options) -> _Target:  # noqa: ANN401 # as openai
    given = options.json_data
    body: Mapping[str, object] = cast(Mapping[str, object], given) if isinstance(given, Mapping) else {}
    return _Target(str(client.base_url), str(body.get("model")), bool(body.get("stream")))


class _Plain(NamedTuple):
    """A request as the app made it: `make` makes it again with its client."""

    client: Any
    target: _Target
    make: Callable[[], Request]
