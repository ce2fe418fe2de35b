"""TokenIdInjector: token ids and logprobs are asked of the server where the app did not.

Invariant: only requests whose call is recorded in a rollout are changed, by these fields and headers and no other, and
only where the app says nothing about them. A request that is refused for them is sent again without: the app sees no
refusal that it did not cause. `token_requests` says what is asked for.
"""

import copy
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple, cast

from art_otel.tracing.internal_errors import InternalErrorHandler
from art_otel.tracing.openai.call import current_call
from art_otel.tracing.openai.client import Method, Options, Request, Response, with_headers
from art_otel.tracing.openai.token_requests import NOTHING, REFUSALS, Ask, Target, TokenRequests

_EXTENDING: Final = InternalErrorHandler("a request does not ask for token ids")
_REMEMBERING: Final = InternalErrorHandler("a server that refuses to be asked for token ids will be seen by the app")


class TokenIdInjector:
    """Adds the fields to requests while it is on, and takes them back from those that were refused."""

    def __init__(self) -> None:
        self.is_on = True
        self._requests = TokenRequests()

    def build(self, method: Method) -> Method:
        """Wrap `_build_request` of a client, which makes a request of options."""

        def build(client: Any, options: Options, *args: Any, **kwargs: Any) -> Request:  # noqa: ANN401 # as openai
            def make(ask: Ask) -> Request:
                return method(client, _with(options, ask), *args, **kwargs)

            extended = options
            with _EXTENDING:
                call = current_call()
                if call is not None and call.is_in_rollout and self.is_on:
                    target = _target(client, options)
                    ask = self._ask(options, target)
                    extended = _with(options, ask)
                    call.asked = None if extended is options else _Asked(self._requests, client, target, ask, make)
            return method(client, extended, *args, **kwargs)

        return build

    def send(self, method: Method) -> Method:
        """Wrap the method of a client that sends a request."""

        def send(sender: Any, request: Request, **kwargs: Any) -> Response:  # noqa: ANN401 # as openai and httpx
            response: Response = method(sender, request, **kwargs)
            while (asked := _refused(request, response)) is not None:
                response.read()
                asked, request = _again(asked, response)
                asked.client._prepare_request(request)  # noqa: SLF001 # where providers sign
                response.close()
                refused, response = response, method(sender, request, **kwargs)
                _remember(asked, refused, response)
            return response

        return send

    def async_send(self, method: Method) -> Method:
        """Wrap the method of an async client that sends a request."""

        async def send(sender: Any, request: Request, **kwargs: Any) -> Response:  # noqa: ANN401 # as above
            response: Response = await method(sender, request, **kwargs)
            while (asked := _refused(request, response)) is not None:
                await response.aread()
                asked, request = _again(asked, response)
                await asked.client._prepare_request(request)  # noqa: SLF001 # as above
                await response.aclose()
                refused, response = response, await method(sender, request, **kwargs)
                _remember(asked, refused, response)
            return response

        return send

    def _ask(self, options: Options, target: Target) -> Ask:
        """What to ask for with a request."""
        body = options.json_data
        if not isinstance(body, Mapping):
            return NOTHING
        asked = {**cast(Mapping[str, object], body), **(options.extra_json or {})}
        return self._requests.ask(options.url, target, asked)


def _refused(request: Request, response: Response) -> "_Asked | None":
    """Take from the call what was asked with its request, if it may be why that was refused."""
    if response.status_code not in REFUSALS:
        return None
    with _REMEMBERING:
        call = current_call()
        if call is not None and call.request is request and isinstance(call.asked, _Asked):
            asked, call.asked = call.asked, None
            return asked
    return None


def _again(asked: "_Asked", refused: Response) -> "tuple[_Asked, Request]":
    """The request with less asked for."""
    asked = asked._replace(ask=asked.requests.less(asked.ask, refused.content))
    request = asked.make(asked.ask)
    call = current_call()
    if call is not None:
        call.request, call.asked = request, None if asked.ask is NOTHING else asked
    return asked, request


def _remember(asked: "_Asked", refused: Response, response: Response) -> None:
    """Remember what was accepted, where it was."""
    if response.status_code not in REFUSALS:
        asked.requests.accepted(asked.ask, asked.target, refused.status_code)


def _with(options: Options, ask: Ask) -> Options:
    """Return the options with the missing fields and headers added; the same object if none is missing."""
    body = {**cast(Mapping[str, object], options.json_data), **(options.extra_json or {})} if ask.fields else {}
    missing = {name: value for name, value in ask.fields.items() if name not in body}
    if not missing and not ask.headers:
        return options
    extended = with_headers(options, ask.headers) if ask.headers else copy.copy(options)
    extended.extra_json = {**(options.extra_json or {}), **missing}
    return extended


def _target(client: Any, options: Options) -> Target:  # noqa: ANN401 # as openai
    data = options.json_data
    body: Mapping[str, object] = cast(Mapping[str, object], data) if isinstance(data, Mapping) else {}
    return Target(str(client.base_url), str(body.get("model")), bool(body.get("stream")))


class _Asked(NamedTuple):
    """A request that we asked something with: `make` makes it of the app's own options and of what is asked for.

    `requests` said so, and is told what the server accepts.
    """

    requests: TokenRequests
    client: Any
    target: Target
    ask: Ask
    make: Callable[[Ask], Request]
