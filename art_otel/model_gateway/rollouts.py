"""Rollouts: the rollouts whose agents call through the gateway, and their spans.

Invariants:

- **One own span, many editions.** The ids of a rollout's own span follow from the rollout's id and attempt. So several
  gateways, and a gateway that was restarted, write editions of the same span, and readers merge them. An edition counts
  the calls that began at this gateway, so readers see that a call is missing which still runs or was not recorded.
- **The end.** A rollout is over when `POST /rollout/ID/end` says so, when no call runs and none came for the grace, or
  when the gateway stops; and only once that is written. Other gateways may still have calls of it.
- **A call that ends after its rollout** is written together with another edition of the own span, so that the rollout
  is delivered once more with the call, and not a second time for the new count.
- **A call that begins after the end** belongs to another attempt, with another own span:

      call 1, call 2, POST …/end: attempt 1        call 3: attempt 2
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
from art_otel.exchange.exchange import Exchange, request_body, response_body
from art_otel.exchange.failures import CallFailure
from art_otel.forks import after_fork
from art_otel.live.endings import RolloutCounts
from art_otel.model_gateway.addresses import Parent, RequestAddress
from art_otel.model_gateway.attempts import Attempts, RolloutAttempt
from art_otel.spans import Event, Link, Resource, Scope, Span, Value
from art_otel.tracing.api import scalars
from art_otel.version import __version__

logger = logging.getLogger(__name__)

_MAX_REMEMBERED: Final = 10_000
"""How many ended rollouts are remembered, so that a later call or reward belongs to the same own span."""

Write: TypeAlias = Callable[[Sequence[Span]], bool]
"""Writes spans; False where the disk refuses them."""

_ROLLOUT_SCOPE: Final = Scope(name=ART_OTEL, version=__version__)
_NAME: Final = "agent"
_INFERRED: Final = f"{names.METADATA_PREFIX}inferred"
"""Marks a rollout that no request named: its calls were found to continue each other's prompts."""


class RolloutEnd(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The body of `POST /rollout/ID/end`: how a rollout ended. `reward` may be several rewards by their names."""

    reward: float | dict[str, float] | None = None
    status: Literal["ok", "error", "cancelled"] = "ok"
    error: str | None = None
    metadata: dict[str, object] = {}
    metrics: dict[str, float] = {}


class GivenReward(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The body of `POST /rollout/ID/reward`: a reward for a rollout, or for the call whose answer has `response_id`.

    `reward` may be several rewards by their names; `name` is the name of a single one.
    """

    reward: float | dict[str, float]
    name: str = REWARD_NAME
    response_id: str | None = None


@dataclass(kw_only=True, slots=True)
class GatewayRollout:
    """One attempt at a rollout, as this gateway knows it. Times are in nanoseconds since the epoch.

    - `attributes`: those of the own span. `events`: its rewards. `reward`: the last one that an end gave.
    - `calls`: how many calls began and ended at this gateway. `last_ns`: when the last call ended.
    - `ended_ns`: None until the rollout is over. `end`: what `POST …/end` said; None without one.
    - `edition`: the number of the last edition. `is_written`: the spool has an edition with the current state.
    - `was_ended`: the attempt was ended by a request before this process began.
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
        """The number of the attempt: the one that requests named, else the one that the gateway counted."""
        return self.attributes.get(names.ROLLOUT_ATTEMPT, self.attempt)

    @property
    def is_closed(self) -> bool:
        """Whether a request ended the attempt: the next call belongs to another attempt."""
        return self.was_ended or self.end is not None


@dataclass(kw_only=True)
class Rollouts:
    """The rollouts of a gateway.

    `resource` is the resource of its spans; `grace` is in seconds; `attempts` remembers earlier attempts across
    restarts.
    """

    resource: Resource
    grace: float
    attempts: Attempts
    _known: OrderedDict[tuple[str, int], GatewayRollout] = field(
        default_factory=OrderedDict[tuple[str, int], GatewayRollout]
    )
    """The rollouts by id and attempt; the longest unused stands first."""
    _last: dict[str, int] = field(default_factory=dict[str, int])
    """The attempt of each id with the latest call: a request that names no attempt means this one."""

    @property
    def open(self) -> list[str]:
        """The ids of the rollouts that are not over."""
        return [rollout_id for (rollout_id, _), rollout in self._known.items() if rollout.ended_ns is None]

    def begin_call(self, rollout_id: str, address: RequestAddress, start_ns: int) -> GatewayRollout:
        """Count a call that begins, and return its rollout.

        A rollout that is over only because it was quiet goes on; after an end by request another attempt begins.
        """
        rollout = self._of(rollout_id, address.settings, start_ns)
        if rollout.is_closed:
            rollout = self._next_attempt(rollout, start_ns)
        self._last[rollout_id] = rollout.attempt
        rollout.attributes |= address.settings
        if address.source == "conversation":
            rollout.attributes[_INFERRED] = True
        rollout.calls.started += 1
        if rollout.ended_ns is not None:
            self.reopen(rollout)
        return rollout

    def _next_attempt(self, ended: GatewayRollout, start_ns: int) -> GatewayRollout:
        """Begin the attempt after one that was ended, with a number that no attempt of this id had."""
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
        """The limit of calls of a rollout that has reached the limit; None where another call may begin.

        A `max_calls` in the request's address takes precedence over that of the gateway. The rollout's metadata then
        says `max_calls_reached`: it was cut off, but no span of it is missing.
        """
        if address.rollout_id is None or not address.is_ours:
            return None
        rollout = self._known.get((address.rollout_id, self._number(address.rollout_id, address.settings)))
        if rollout is None or rollout.is_closed:  # the next call begins another attempt
            return None
        limit = address.settings.get(names.MAX_CALLS, rollout.attributes.get(names.MAX_CALLS, max_calls))
        if limit is None or rollout.calls.started < int(limit):
            return None
        if names.MAX_CALLS_REACHED not in rollout.attributes:
            rollout.attributes[names.MAX_CALLS_REACHED] = True
            if rollout.ended_ns is not None:  # it was quiet for the grace, as while a tool ran
                self.reopen(rollout)
        return int(limit)

    def end_call(self, rollout: GatewayRollout) -> list[Span]:
        """Count a call that ended, and return the editions of the own span to write together with the call's span.

        With the first call an edition without an end is written, so that a killed gateway leaves an unfinished rollout
        and not calls without one. If the rollout was over already, it gets another edition. Else nothing is written.
        """
        rollout.calls.ended += 1
        rollout.last_ns = now_ns()
        if rollout.ended_ns is not None:
            rollout.ended_ns = max(rollout.ended_ns, rollout.last_ns)
        elif rollout.is_written:
            return []
        rollout.is_written = True
        return [self.edition(rollout)]

    def reopen(self, rollout: GatewayRollout) -> None:
        """Reopen a rollout of which something is not in its last edition: its next edition says that, too."""
        rollout.ended_ns, rollout.is_written = None, False

    def end(
        self, rollout_id: str, end: RolloutEnd, settings: Mapping[str, str | int], write: Write
    ) -> GatewayRollout | None:
        """End a rollout as a request says. The same request again, of a client that got no answer, changes nothing.

        Returns None, with nothing changed, if the edition could not be written.
        """
        time_ns = now_ns()
        rollout = self._of(rollout_id, self._meant(rollout_id, settings), time_ns)
        if end == rollout.end and rollout.ended_ns is not None and rollout.attributes.items() >= settings.items():
            return rollout
        # To restore the rollout if the disk refuses the edition.
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
        """Add a reward to a rollout, which may be over. Returns None, with no reward added, if it cannot be written."""
        time_ns = now_ns()
        rollout = self._of(rollout_id, self._meant(rollout_id, settings), time_ns)
        # A reward is a sign of life, too: the grace begins anew.
        before, rollout.last_ns = rollout.events, time_ns
        rollout.events += tuple(_rewards(reward, time_ns))
        is_written = write([self.edition(rollout)])
        if is_written:
            rollout.is_written = True
        else:
            rollout.events = before
        return rollout if is_written else None

    def end_quiet(self, now: int, write: Write) -> None:
        """End the rollouts that were quiet for the grace, and forget the oldest ended ones.

        Rollouts whose end cannot be written end the next time.
        """
        quiet = [
            rollout
            for rollout in self._known.values()
            if rollout.ended_ns is None and rollout.calls.are_quiet(rollout.last_ns, now, self.grace * 1e9)
        ]
        for rollout in quiet:
            rollout.ended_ns = rollout.last_ns
        # Each rollout ended with its last call, and not when the grace was over.
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
        """End all open rollouts when the gateway stops, and iterate over their last editions."""
        for rollout in self._known.values():
            if rollout.ended_ns is None:
                rollout.ended_ns = rollout.last_ns or now_ns()
                yield self.edition(rollout)

    def open_editions(self) -> Iterator[Span]:
        """New editions of the own spans of all rollouts that are not over."""
        yield from (self.edition(rollout) for rollout in self._known.values() if rollout.ended_ns is None)

    def edition(self, rollout: GatewayRollout) -> Span:
        """A new edition of a rollout's own span; without an end time if the rollout is not over."""
        return own_span(rollout, self.resource)

    def _of(self, rollout_id: str, settings: Mapping[str, str | int], now: int) -> GatewayRollout:
        """The attempt that the settings name, else the last one; begun now if there is none."""
        number = self._number(rollout_id, settings)
        rollout = self._known.get((rollout_id, number))
        if rollout is None:
            known = self.attempts.find(rollout_id, number)
            if known is None:
                return self._begin(rollout_id, number, now)
            rollout = GatewayRollout(rollout_id=rollout_id, attempt=number, started_ns=now, last_ns=now, attributes={})
            self._known[rollout_id, number] = rollout
            if known.has_ended:  # before a restart; how the attempt ended is in the spool
                rollout.was_ended, rollout.ended_ns, rollout.is_written = True, now, True
        self._known.move_to_end((rollout_id, number))
        return rollout

    def _meant(self, rollout_id: str, settings: Mapping[str, str | int]) -> Mapping[str, str | int]:
        """The settings that say which attempt an end or a reward is for; {} where it is for the last one.

        For example calls go to `/rollout/r/v1`, and the trainer ends `/rollout/r;attempt=2`. No call named attempt 2,
        and the attempt that runs was begun without a number, so the trainer means the one that runs. A later reward for
        attempt 2 is for the same one, which has that number since its end.
        """
        number = settings.get(names.ROLLOUT_ATTEMPT)
        last = self._known.get((rollout_id, self._last.get(rollout_id, 0)))
        if number is None or last is None or (rollout_id, int(number)) in self._known:
            return settings
        told = last.attributes.get(names.ROLLOUT_ATTEMPT)
        is_for_last = not last.is_closed if told is None else int(told) == int(number)
        return {} if is_for_last else settings

    def _number(self, rollout_id: str, settings: Mapping[str, str | int]) -> int:
        number = settings.get(names.ROLLOUT_ATTEMPT, self._last.get(rollout_id))
        if number is None:
            last = self.attempts.find(rollout_id)
            number = 1 if last is None else last.number
        return int(number)

    def _begin(self, rollout_id: str, attempt: int, now: int) -> GatewayRollout:
        rollout = GatewayRollout(rollout_id=rollout_id, attempt=attempt, started_ns=now, last_ns=now, attributes={})
        self._known[rollout_id, attempt] = rollout
        if attempt > 1:  # an id without any note is taken for attempt 1, so most rollouts cost no write
            self.attempts.note(rollout_id, RolloutAttempt(attempt, has_ended=False))
        return rollout


def own_span(rollout: GatewayRollout, resource: Resource) -> Span:
    """A new edition of a rollout's own span, as the process with this resource knows the rollout."""
    own, end = root_of(rollout.rollout_id, rollout.attempt), rollout.end
    rollout.edition = max(rollout.edition + 1, now_ns() // 1000)  # by the time: a restarted gateway must count on
    attributes: dict[str, str | int | float | bool] = {
        names.ROLLOUT_ID: rollout.rollout_id,
        names.ROLLOUT_EDITION: rollout.edition,
        f"{names.CALLS_PREFIX}{resource.attributes[INSTANCE]}": rollout.calls.started,
        # Most rollouts have one attempt, and need no number.
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
        scope=_ROLLOUT_SCOPE,
        resource=resource,
    )


def _rewards(given: GivenReward, time_ns: int) -> Iterator[Event]:
    rewards = given.reward if isinstance(given.reward, dict) else {given.name: given.reward}
    for name, value in rewards.items():
        attributes = evaluation_attributes(name, value, response_id=given.response_id)
        yield Event(name=EVALUATION, time_ns=time_ns, attributes={**attributes})


CALL_SCOPE: Final = Scope(name=names.GATEWAY_SCOPE, version=__version__)
"""Another scope than that of the traced app, which may record the same call: readers must tell the two apart."""


def gateway_resource() -> Resource:
    """The resource of this gateway process, with an instance id that no other process has."""
    instance = f"{os.getpid()}-{os.urandom(4).hex()}"
    return Resource(attributes={"service.name": "art-otel gateway", INSTANCE: instance})


_IDS: Final = Random()  # noqa: S311 # an id is no secret
"""Makes span ids, as OTel's own generator does. `os.urandom` would cost a system call for each."""
after_fork(_IDS.seed)  # else each forked child would make the same ids


def span_id() -> str:
    """A new span id: 16 hex digits."""
    return f"{_IDS.getrandbits(64):016x}"


@lru_cache(maxsize=1024)
def root_of(rollout_id: str, attempt: int = 1) -> Parent:
    """The ids of a rollout's own span, a hash of the rollout's id and attempt: the same at every gateway."""
    name = rollout_id if attempt == 1 else f"{rollout_id}\0{attempt}"
    digest = blake2b(f"art-otel gateway {name}".encode(), digest_size=24).hexdigest()
    return Parent(digest[:32], digest[32:])


def call_span(exchange: Exchange, address: RequestAddress, server: str, resource: Resource) -> Span:
    """The span of an exchange for the spool, with the raw bodies. A collector gets standard attributes instead."""
    name, begun = _begun(exchange, address, server)
    attributes = {**begun, **request_body(exchange), **response_body(exchange)}
    times = exchange.start_ns, exchange.end_ns
    return gateway_span(name, attributes, address, resource, times, exchange.why_failed())


def begun_call(exchange: Exchange, address: RequestAddress, server: str) -> tuple[str, dict[str, Value]]:
    """The name and first attributes of the span of a call that the app around the gateway records."""
    name, begun = _begun(exchange, address, server)
    return name, {**whole_attributes(request_body(exchange)), **begun}


def _begun(exchange: Exchange, address: RequestAddress, server: str) -> tuple[str, dict[str, Value]]:
    """The name of a call's span, and its attributes besides the bodies."""
    name, identity = call_identity(exchange.dialect, exchange.path, exchange.model, server)
    attributes = dict(identity)
    if address.untrained is not None:
        attributes[names.UNTRAINED] = address.untrained
    return name, attributes


def unread_span(request: str, address: RequestAddress, server: str, resource: Resource, start_ns: int) -> Span:
    """The span of a request that may have been a call in a dialect that the gateway cannot read.

    It makes its rollout incomplete, with this reason.
    """
    return gateway_span(request, unread_attributes(request, server), address, resource, (start_ns, now_ns()), None)


def unread_attributes(request: str, server: str) -> dict[str, Value]:
    """The attributes of an `unread_span`."""
    return {names.UNREAD_REQUEST: request, "server.address": urlsplit(server).hostname or server}


def gateway_span(
    name: str,
    attributes: dict[str, Value],
    address: RequestAddress,
    resource: Resource,
    times: tuple[int, int],
    failure: CallFailure | None,
) -> Span:
    """A span of the gateway, with its start and end in `times`.

    Its parent is the rollout's own span, with a link to the agent's span if that is traced. Where the app records the
    rollout itself, the parent is the agent's span.
    """
    rollout_id, around = address.rollout_id, address.parent
    parent = root_of(rollout_id, address.attempt) if rollout_id is not None and address.is_ours else around
    linked = None if parent is around else around
    attributes = {
        **({} if rollout_id is None else {names.ROLLOUT_ID: rollout_id}),
        **attributes,
        **({} if failure is None else {ERROR_TYPE: failure.type}),
    }
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
        scope=CALL_SCOPE,
        resource=resource,
    )


def now_ns() -> int:
    """The time in nanoseconds since the epoch, as spans have it."""
    return time.time_ns()
