"""TokenIdInjector: token ids and logprobs are asked of the server where the app did not.

Invariant: only requests whose call is recorded in a rollout are changed, by these fields and headers and no other, and
only where the app says nothing about them. A request that is refused for them is sent again without: the app sees no
refusal that it did not cause. For some minutes requests to that server and model, streamed or not as this one, are then
asked as was accepted.

Source of the fields: https://docs.vllm.ai (`return_token_ids`), OpenAI's `logprobs`; of the headers and the refusal:
SGLang 0.5.23 (`entrypoints/openai/serving_chat.py`). docs/spec/tokens.md has the table of servers.
"""

import copy
import logging
import time
import weakref
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple, cast
from urllib.parse import urlsplit

from art_otel.tracing.internal_errors import InternalErrorHandler
from art_otel.tracing.openai.call import current_call, current_call_span
from art_otel.tracing.openai.client import Method, Options, Request, Response

logger = logging.getLogger(__name__)


class _Ask(NamedTuple):
    """What is asked for: by fields of the body, and by headers."""

    fields: Mapping[str, object]
    headers: Mapping[str, str]


_ASKS: Final[Mapping[str, _Ask]] = {
    "/chat/completions": _Ask({"logprobs": True, "return_token_ids": True}, {}),
    "/completions": _Ask({"logprobs": 1, "return_token_ids": True}, {}),
}
"""By path; Completions counts the alternatives it wants."""

_SGLANG_STREAM: Final = _Ask({"logprobs": True}, {"x-sglext-return-input-ids": "1", "x-sglext-return-output-ids": "1"})
_SGLANG_REFUSAL: Final = b"return_token_ids is not supported with streaming"
_NOTHING: Final = _Ask({}, {})

_REFUSALS: Final = (400, 422)
_REMEMBERED: Final = 600.0
"""Seconds that a refusal is remembered: servers are restarted with other options, and gateways lead elsewhere."""

_EXTENDING: Final = InternalErrorHandler("a request does not ask for token ids")
_REMEMBERING: Final = InternalErrorHandler("a server that refuses to be asked for token ids will be seen by the app")


class TokenIdInjector:
    """Adds the fields to requests while it is on, and takes them back from those that were refused."""

    def __init__(self) -> None:
        self.is_on = True
        self._asked: weakref.WeakKeyDictionary[Request, _Asked] = weakref.WeakKeyDictionary()
        self._accepted: dict[_Target, _Accepted] = {}

    def build(self, method: Method) -> Method:
        """Wrap `_build_request` of a client, which makes a request of options."""

        def build(client: Any, options: Options, *args: Any, **kwargs: Any) -> Request:  # noqa: ANN401 # as openai
            def make(ask: _Ask) -> Request:
                return method(client, _with(options, ask), *args, **kwargs)

            ask, extended = self._extended(client, options)
            request: Request = method(client, extended, *args, **kwargs)
            if extended is not options:
                with _REMEMBERING:
                    self._asked[request] = _Asked(client, _target(client, options), ask, make)
            return request

        return build

    def send(self, method: Method) -> Method:
        """Wrap the method of a client that sends a request."""

        def send(sender: Any, request: Request, **kwargs: Any) -> Response:  # noqa: ANN401 # as openai and httpx
            response: Response = method(sender, request, **kwargs)
            while (asked := self._refused(request, response)) is not None:
                response.read()
                asked, request = self._again(asked, response)
                asked.client._prepare_request(request)  # noqa: SLF001 # where providers sign
                response.close()
                refused, response = response, method(sender, request, **kwargs)
                self._remember(asked, refused, response)
            return response

        return send

    def async_send(self, method: Method) -> Method:
        """Wrap the method of an async client that sends a request."""

        async def send(sender: Any, request: Request, **kwargs: Any) -> Response:  # noqa: ANN401 # as above
            response: Response = await method(sender, request, **kwargs)
            while (asked := self._refused(request, response)) is not None:
                await response.aread()
                asked, request = self._again(asked, response)
                await asked.client._prepare_request(request)  # noqa: SLF001 # as above
                await response.aclose()
                refused, response = response, await method(sender, request, **kwargs)
                self._remember(asked, refused, response)
            return response

        return send

    def _extended(self, client: Any, options: Options) -> "tuple[_Ask, Options]":  # noqa: ANN401 # as openai
        """What is asked for, and the options with what is missing of it: themselves where that is nothing."""
        with _EXTENDING:
            ask = self._ask(client, options)
            return ask, _with(options, ask)
        return _NOTHING, options

    def _ask(self, client: Any, options: Options) -> _Ask:  # noqa: ANN401 # as openai
        """What to ask for with a request."""
        path = next((path for path in _ASKS if options.url.endswith(path)), None)
        if path is None or not isinstance(options.json_data, Mapping) or not self.is_on or not _is_recorded():
            return _NOTHING
        accepted = self._accepted.get(_target(client, options))
        is_remembered = accepted is not None and time.monotonic() < accepted.at + _REMEMBERED
        return accepted.ask if accepted is not None and is_remembered else _ASKS[path]

    def _refused(self, request: Request, response: Response) -> "_Asked | None":
        """What was asked with a request, if it may be why that was refused."""
        asked = self._asked.pop(request, None)
        return asked if asked is not None and response.status_code in _REFUSALS else None

    def _again(self, asked: "_Asked", refused: Response) -> "tuple[_Asked, Request]":
        """The request with less: SGLang says that its streams are asked otherwise, any other is asked for nothing."""
        is_sglang = asked.ask is not _SGLANG_STREAM and _SGLANG_REFUSAL in refused.content
        asked = asked._replace(ask=_SGLANG_STREAM if is_sglang else _NOTHING)
        request = asked.make(asked.ask)
        if is_sglang:
            self._asked[request] = asked
        return asked, request

    def _remember(self, asked: "_Asked", refused: Response, response: Response) -> None:
        """Remember what was accepted. Where it was, what it lacks was the reason for the refusal."""
        if response.status_code in _REFUSALS:
            return
        target, earlier = asked.target, self._accepted.get(asked.target)
        if asked.ask is _NOTHING and (earlier is None or earlier.ask is not _NOTHING):
            logger.warning(
                "art-otel: %s refuses to be asked for token ids and logprobs of %s (status %d); it is asked again in"
                " some minutes",
                _for_log(target.server),
                target.model,
                refused.status_code,
            )
        self._accepted[target] = _Accepted(asked.ask, time.monotonic())


def _is_recorded() -> bool:
    """Whether the call that this code is part of is recorded in a rollout."""
    call = current_call()
    return current_call_span() is not None if call is None else call.is_in_rollout


def _with(options: Options, ask: _Ask) -> Options:
    """Return the options with the missing fields and headers added; the same object if none is missing."""
    body = {**cast(Mapping[str, object], options.json_data), **(options.extra_json or {})} if ask.fields else {}
    missing = {name: value for name, value in ask.fields.items() if name not in body}
    if not missing and not ask.headers:
        return options
    extended = copy.copy(options)
    extended.extra_json = {**(options.extra_json or {}), **missing}
    if ask.headers:
        headers = options.headers  # openai has something that is no mapping where the app gave none
        extended.headers = {
            **ask.headers,
            **(cast(Mapping[str, object], headers) if isinstance(headers, Mapping) else {}),
        }
    return extended


class _Target(NamedTuple):
    """The key under which a refusal is remembered: the server, the model, and whether the request streams."""

    server: str
    model: str
    stream: bool


def _target(client: Any, options: Options) -> _Target:  # noqa: ANN401 # as openai
    data = options.json_data
    body: Mapping[str, object] = cast(Mapping[str, object], data) if isinstance(data, Mapping) else {}
    return _Target(str(client.base_url), str(body.get("model")), bool(body.get("stream")))


def _for_log(url: str) -> str:
    """The URL without user and password."""
    parts = urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()


class _Asked(NamedTuple):
    """A request that we asked something with: `make` makes it of the app's own options and of what is asked for."""

    client: Any
    target: _Target
    ask: _Ask
    make: Callable[[_Ask], Request]


class _Accepted(NamedTuple):
    """What a server let itself be asked for after it had refused more, and when."""

    ask: _Ask
    at: float
