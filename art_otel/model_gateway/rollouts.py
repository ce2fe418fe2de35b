"""Rollouts: those whose agents ask through the gateway, from their first call until they are over.

Invariant: a rollout's own span has ids that its id alone decides, so that several gateways, and one that was killed,
write editions of one span, which whoever reads them makes one: each says no more than what its gateway knows. It counts
the calls that began here, under this gateway's name, so one that runs yet, or that could not be recorded, is missed by
whoever reads it. A rollout is over when somebody ends it, when no call runs and none came for the grace, or when the
gateway ends, and not before that is written; here, if others have calls of it as well. Where a call ends later than
somebody ended its rollout, the rollout's own span is written again with that of the call: it is given once more, and
not a second time for the count. A call that begins after somebody ended its rollout is of another attempt, whose own
span is another one.
"""

import logging
import os
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from hashlib import blake2b
from random import Random
from typing import Final, Literal, TypeAlias
from urllib.parse import urlsplit

import msgspec

from art_otel import attributes as names
from art_otel.attributes import REWARD_NAME
from art_otel.conventions import ART_OTEL, ERROR_TYPE, EVALUATION, INSTANCE, evaluation_attributes
from art_otel.conventions.exchanges import whole_attributes
from art_otel.exchange.api_dialects import call_identity
from art_otel.exchange.exchange import (
    CallFailure,
    Exchange,
    request_body,
    response_body,
)
from art_otel.forks import after_fork
from art_otel.live.endings import RolloutCounts, is_quiet
from art_otel.model_gateway.addresses import Parent, RequestAddress
from art_otel.model_gateway.attempts import Attempts, RolloutAttempt
from art_otel.spans import Event, Link, Resource, Scope, Span, Value
from art_otel.tracing.api import scalars
from art_otel.version import __version__

logger = logging.getLogger(__name__)

_MAX_REMEMBERED: Final = 10_000
"""Rollouts that are over and known still: a later call or reward belongs to the same span."""

Write: TypeAlias = Callable[[Sequence[Span]], bool]
"""Writes spans; False where the disk refuses them."""

_SCOPE: Final = Scope(name=ART_OTEL, version=__version__)
_NAME: Final = "agent"
_INFERRED: Final = f"{names.METADATA_PREFIX}inferred"
"""Says of a rollout that nobody named it: its calls continue each other's prompts."""


class RolloutEnd(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a rollout ended, as `POST /rollout/ID/end` says it. `reward` may be several by their names."""

    reward: float | dict[str, float] | None = None
    status: Literal["ok", "error", "cancelled"] = "ok"
    error: str | None = None
    metadata: dict[str, object] = {}
    metrics: dict[str, float] = {}


class GivenReward(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A reward of a rollout, as `POST /rollout/ID/reward` says it; with a `response_id`, of the call with this answer.

    `reward` may be several by their names, else `name` is its name.
    """

    reward: float | dict[str, float]
    name: str = REWARD_NAME
    response_id: str | None = None


@dataclass(kw_only=True, slots=True)
class GatewayRollout:
    """What is known of one rollout: how many `calls` began and ended here; `ended_ns` is None until it is over.

    `is_written` says that the spool has its beginning, `reward` what was given last, `was_ended` that somebody ended it
    before this process began.
    """

    rollout_id: str
    attempt: int = 1
    started_ns: int
    attributes: dict[str, str | int | float | bool]
    calls: RolloutCounts = field(default_factory=RolloutCounts)
    last_ns: int = 0
    ended_ns: int | None = None
    end: RolloutEnd | None = None
    reward: float | dict[str, float] | None = None
    edition: int = 0
    events: tuple[Event, ...] = ()
    is_written: bool = False
    was_ended: bool = False

    @property
    def number(self) -> int | float | str:
        """The number of the attempt, as somebody named it, else as it was counted."""
        return self.attributes.get(names.ROLLOUT_ATTEMPT, self.attempt)

    @property
    def is_closed(self) -> bool:
        """Whether somebody ended it: its next call is of another attempt."""
        return self.was_ended or self.end is not None


@dataclass(kw_only=True)
class Rollouts:
    """The rollouts of a gateway. `resource` is that of its spans; `attempts` knows of those before it began."""

    resource: Resource
    grace: float
    attempts: Attempts
    _known: OrderedDict[tuple[str, int], GatewayRollout] = field(
        default_factory=OrderedDict[tuple[str, int], GatewayRollout]
    )
    """By id and attempt."""
    _last: dict[str, int] = field(default_factory=dict[str, int])
    """The attempt of each id whose call began last: who names no attempt means this one."""

    @property
    def open(self) -> list[str]:
        """The ids of those that are not over."""
        return [rollout_id for (rollout_id, _), rollout in self._known.items() if rollout.ended_ns is None]

    def begin_call(self, rollout_id: str, address: RequestAddress, start_ns: int) -> GatewayRollout:
        """A call of a rollout begins. One that was over because it was quiet goes on, one that was ended does not."""
        rollout = self._of(rollout_id, address.settings, start_ns)
        if rollout.is_closed:
            rollout = self._next_attempt(rollout, start_ns)
        self._last[rollout_id] = rollout.attempt
        rollout.attributes |= address.settings
        if address.source == "conversation":
            rollout.attributes[_INFERRED] = True
        rollout.calls.started += 1
        if rollout.ended_ns is not None:
            rollout.ended_ns, rollout.is_written = None, False
        return rollout

    def _next_attempt(self, ended: GatewayRollout, start_ns: int) -> GatewayRollout:
        """Begin the attempt behind one that was ended."""
        rollout_id = ended.rollout_id
        last = self.attempts.find(rollout_id)
        number = 1 + max(ended.attempt, self._last.get(rollout_id, 1), 1 if last is None else last.number)
        logger.warning(
            "art-otel: rollout %r was ended and is called again: its attempt %d begins. Give each run an id of its own",
            rollout_id,
            number,
        )
        return self._begin(rollout_id, number, start_ns)

    def reached_limit(self, address: RequestAddress, max_calls: int | None) -> int | None:
        """How many calls a rollout may have, where it has had them; None where another may begin.

        What an address says of `max_calls` counts more than what the gateway was told. The rollout says that it ended
        so: it is cut, and nothing of it is missing.
        """
        if address.rollout_id is None or not address.is_ours:
            return None
        rollout = self._known.get((address.rollout_id, self._number(address.rollout_id, address.settings)))
        if rollout is None or rollout.is_closed:  # the next call begins another attempt
            return None
        limit = address.settings.get(names.MAX_CALLS, rollout.attributes.get(names.MAX_CALLS, max_calls))
        if limit is None or rollout.calls.started < int(limit):
            return None
        rollout.attributes[names.MAX_CALLS_REACHED] = True
        return int(limit)

    def end_call(self, rollout: GatewayRollout) -> list[Span]:
        """A call has ended, and its span is about to be written: give what of the rollout is written with it.

        That is its own span, as begun before its first call, so that it shows what a kill left, and as it is now where
        it was over.
        """
        rollout.calls.ended += 1
        rollout.last_ns = now_ns()
        if rollout.ended_ns is not None:
            rollout.ended_ns = max(rollout.ended_ns, rollout.last_ns)
        elif rollout.is_written:
            return []
        rollout.is_written = True
        return [self.edition(rollout)]

    def end_again(self, rollout: GatewayRollout) -> None:
        """The span of a call that has ended could not be written: the rollout ends once more, and says so."""
        rollout.ended_ns, rollout.is_written = None, False

    def end(
        self, rollout_id: str, end: RolloutEnd, settings: Mapping[str, str | int], write: Write
    ) -> GatewayRollout | None:
        """End a rollout as somebody said. The same said again changes nothing, as of a client that got no answer.

        What could not be written is None, and as if nobody had said it.
        """
        time_ns = now_ns()
        rollout = self._of(rollout_id, self._settings_of_end(rollout_id, settings), time_ns)
        if end == rollout.end and rollout.ended_ns is not None and rollout.attributes.items() >= settings.items():
            return rollout
        before = replace(rollout)
        if end.reward is not None and end.reward != rollout.reward:
            rollout.reward = end.reward
            rollout.events += tuple(_rewards(GivenReward(reward=end.reward), time_ns))
        rollout.end = end
        metrics = {f"{names.METRIC_PREFIX}{name}": value for name, value in end.metrics.items()}
        rollout.attributes = {**rollout.attributes, **settings, **scalars.metadata(end.metadata), **metrics}
        rollout.ended_ns = time_ns
        if write([self.edition(rollout)]):
            self.attempts.note(rollout_id, RolloutAttempt(rollout.attempt, has_ended=True))
            return rollout
        rollout.attributes, rollout.end, rollout.ended_ns = before.attributes, before.end, before.ended_ns
        rollout.reward, rollout.events = before.reward, before.events
        return None

    def reward(
        self, rollout_id: str, reward: GivenReward, settings: Mapping[str, str | int], write: Write
    ) -> GatewayRollout | None:
        """Give a rollout a reward, also one that is over. What could not be written is None, and was not given."""
        time_ns = now_ns()
        rollout = self._of(rollout_id, settings, time_ns)
        before, rollout.last_ns = rollout.events, time_ns
        rollout.events += tuple(_rewards(reward, time_ns))
        is_written = write([self.edition(rollout)])
        if is_written:
            rollout.is_written = True
        else:
            rollout.events = before
        return rollout if is_written else None

    def end_quiet(self, now: int, write: Write) -> None:
        """End those that were quiet for the grace. Those whose end could not be written end the next time."""
        quiet = [
            rollout
            for rollout in self._known.values()
            if rollout.ended_ns is None
            and not rollout.calls.is_any_running
            and is_quiet(rollout.last_ns, now, self.grace * 1e9)
        ]
        for rollout in quiet:
            rollout.ended_ns = rollout.last_ns
        if quiet and not write([self.edition(rollout) for rollout in quiet]):
            for rollout in quiet:
                rollout.ended_ns = None
        over = [
            key
            for key, rollout in self._known.items()
            if rollout.ended_ns is not None and not rollout.calls.is_any_running
        ]
        for rollout_id, attempt in over[: max(0, len(over) - _MAX_REMEMBERED)]:
            del self._known[rollout_id, attempt]
            if self._last.get(rollout_id) == attempt:
                del self._last[rollout_id]

    def close(self) -> Iterator[Span]:
        """End all that are open, because no call can come any more."""
        for rollout in self._known.values():
            if rollout.ended_ns is None:
                rollout.ended_ns = rollout.last_ns or now_ns()
                yield self.edition(rollout)

    def open_editions(self) -> Iterator[Span]:
        """The own spans of those that are not over, as they are now."""
        yield from (self.edition(rollout) for rollout in self._known.values() if rollout.ended_ns is None)

    def edition(self, rollout: GatewayRollout) -> Span:
        """A rollout's own span as it is now, without an end where it is not over."""
        return own_span(rollout, self.resource)

    def _of(self, rollout_id: str, settings: Mapping[str, str | int], now: int) -> GatewayRollout:
        """The attempt at a rollout that the settings name, else the last one."""
        number = self._number(rollout_id, settings)
        rollout = self._known.get((rollout_id, number))
        if rollout is None:
            known = self.attempts.find(rollout_id, number)
            if known is None:
                return self._begin(rollout_id, number, now)
            rollout = GatewayRollout(rollout_id=rollout_id, attempt=number, started_ns=now, last_ns=now, attributes={})
            self._known[rollout_id, number] = rollout
            if known.has_ended:  # how it ended is in the spool
                rollout.was_ended, rollout.ended_ns, rollout.is_written = True, now, True
        self._known.move_to_end((rollout_id, number))
        return rollout

    def _settings_of_end(self, rollout_id: str, settings: Mapping[str, str | int]) -> Mapping[str, str | int]:
        """Settings without an attempt that no call named: who says it with the end names the one that runs."""
        number = settings.get(names.ROLLOUT_ATTEMPT)
        is_named = number is None or (rollout_id, int(number)) in self._known
        last = self._known.get((rollout_id, self._last.get(rollout_id, 0)))
        if is_named or last is None or last.is_closed or names.ROLLOUT_ATTEMPT in last.attributes:
            return settings
        return {}

    def _number(self, rollout_id: str, settings: Mapping[str, str | int]) -> int:
        number = settings.get(names.ROLLOUT_ATTEMPT, self._last.get(rollout_id))
        if number is None:
            last = self.attempts.find(rollout_id)
            number = 1 if last is None else last.number
        return int(number)

    def _begin(self, rollout_id: str, attempt: int, now: int) -> GatewayRollout:
        rollout = GatewayRollout(rollout_id=rollout_id, attempt=attempt, started_ns=now, last_ns=now, attributes={})
        self._known[rollout_id, attempt] = rollout
        if attempt > 1:  # the first one needs no note: it is that of an id of which nothing is noted
            self.attempts.note(rollout_id, RolloutAttempt(attempt, has_ended=False))
        return rollout


def own_span(rollout: GatewayRollout, resource: Resource) -> Span:
    """A rollout's own span as the process of this resource knows it, without an end where it is not over."""
    own, end = root_of(rollout.rollout_id, rollout.attempt), rollout.end
    rollout.edition = max(rollout.edition + 1, now_ns() // 1000)
    attributes: dict[str, str | int | float | bool] = {
        names.ROLLOUT_ID: rollout.rollout_id,
        names.ROLLOUT_EDITION: rollout.edition,
        f"{names.CALLS_PREFIX}{resource.attributes[INSTANCE]}": rollout.calls.started,
        **({} if rollout.attempt == 1 else {names.ROLLOUT_ATTEMPT: rollout.attempt}),
        **rollout.attributes,
    }
    if end is not None and end.status != "ok":
        attributes[ERROR_TYPE] = "CancelledError" if end.status == "cancelled" else "error"
    return Span(
        trace_id=own.trace_id,
        span_id=own.span_id,
        name=f"{names.ROLLOUT_SPAN_PREFIX}{rollout.attributes.get(names.ROLLOUT_NAME, _NAME)}",
        kind="internal",
        start_ns=rollout.started_ns,
        end_ns=None if rollout.ended_ns is None else max(rollout.started_ns, rollout.ended_ns),
        attributes=attributes,
        events=rollout.events,
        status="unset" if end is None else "ok" if end.status == "ok" else "error",
        status_message="" if end is None else end.error or "",
        scope=_SCOPE,
        resource=resource,
    )


def _rewards(given: GivenReward, time_ns: int) -> Iterator[Event]:
    rewards = given.reward if isinstance(given.reward, dict) else {given.name: given.reward}
    for name, value in rewards.items():
        attributes = evaluation_attributes(name, value, response_id=given.response_id)
        yield Event(name=EVALUATION, time_ns=time_ns, attributes={**attributes})


SCOPE: Final = Scope(name=names.GATEWAY_SCOPE, version=__version__)
"""Another scope than that of the live half, which may record the same call."""


def gateway_resource() -> Resource:
    """The resource of a gateway process, which no other process has."""
    instance = f"{os.getpid()}-{os.urandom(4).hex()}"
    return Resource(attributes={"service.name": "art-otel gateway", INSTANCE: instance})


_IDS: Final = Random()  # noqa: S311 # an id is no secret
"""Makes ids, as OTel's own generator does; the system's random bytes take a call of it for each."""
after_fork(_IDS.seed)  # else each child makes the same ids


def span_id() -> str:
    """A new id."""
    return f"{_IDS.getrandbits(64):016x}"


@lru_cache(maxsize=1024)
def root_of(rollout_id: str, attempt: int = 1) -> Parent:
    """The ids of the own span of an attempt at a rollout that the gateway records."""
    name = rollout_id if attempt == 1 else f"{rollout_id}\0{attempt}"
    digest = blake2b(f"art-otel gateway {name}".encode(), digest_size=24).hexdigest()
    return Parent(digest[:32], digest[32:])


def call_span(exchange: Exchange, address: RequestAddress, server: str, resource: Resource) -> Span:
    """Build the span of an exchange, with its bodies; `exchanges.whole` makes it what a collector gets."""
    name, begun = _begun(exchange, address, server)
    attributes = {**begun, **request_body(exchange), **response_body(exchange)}
    failure = exchange.why_failed()
    if failure is not None:
        attributes[ERROR_TYPE] = failure.type
    return _span(name, attributes, address, resource, (exchange.start_ns, exchange.end_ns), failure)


def begun_call(exchange: Exchange, address: RequestAddress, server: str) -> tuple[str, dict[str, Value]]:
    """The name of the span of a call in an app, and what it says as soon as the call begins."""
    name, begun = _begun(exchange, address, server)
    return name, {**whole_attributes(request_body(exchange)), **begun}


def _begun(exchange: Exchange, address: RequestAddress, server: str) -> tuple[str, dict[str, Value]]:
    """The name of a call's span, and what is said of it beside its bodies."""
    translation = exchange.translation
    name, identity = call_identity(exchange.dialect, exchange.path, exchange.model, server)
    attributes = dict(identity)
    if translation is not None and translation.dialect != exchange.dialect:
        attributes[names.TRANSLATED_FROM] = translation.dialect
        if translation.left_out:
            attributes[names.LEFT_OUT] = [*translation.left_out]
    if address.untrained is not None:
        attributes[names.UNTRAINED] = address.untrained
    return name, attributes


def unread_span(request: str, address: RequestAddress, server: str, resource: Resource, start_ns: int) -> Span:
    """Build the span of a request that may have been a call: its rollout says that it could not be read."""
    return _span(request, unread_attributes(request, server), address, resource, (start_ns, now_ns()), None)


def unread_attributes(request: str, server: str) -> dict[str, Value]:
    """The attributes of such a span."""
    return {names.UNREAD_REQUEST: request, "server.address": urlsplit(server).hostname or server}


def _span(
    name: str,
    attributes: dict[str, Value],
    address: RequestAddress,
    resource: Resource,
    times: tuple[int, int],
    failure: CallFailure | None,
) -> Span:
    """Build a span below its rollout's own span, with a link to the agent's.

    Where the app records the rollout, it is below the app's span.
    """
    rollout_id, around = address.rollout_id, address.parent
    parent = root_of(rollout_id, address.attempt) if rollout_id is not None and address.is_ours else around
    linked = None if parent is around else around
    if rollout_id is not None:
        attributes = {names.ROLLOUT_ID: rollout_id, **attributes}
    return Span(
        trace_id=f"{_IDS.getrandbits(128):032x}" if parent is None else parent.trace_id,
        span_id=span_id(),
        parent_span_id=None if parent is None else parent.span_id,
        name=name,
        kind="client",
        start_ns=times[0],
        end_ns=max(times),
        attributes=attributes,
        links=() if linked is None else (Link(trace_id=linked.trace_id, span_id=linked.span_id),),
        status="unset" if failure is None else "error",
        status_message="" if failure is None else failure.message or failure.type,
        scope=SCOPE,
        resource=resource,
    )


def now_ns() -> int:
    """The time, as spans have it."""
    return time.time_ns()
