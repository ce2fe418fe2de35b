"""Gateway parts: what gateways say of a rollout whose calls they share, and whether it is over and whole.

Invariant: a gateway knows its own part alone, and says of it, in editions of the rollout's own span, how many calls it
began and whether it waits for more. Of each gateway the newest edition counts, whatever the order in which they come; a
gateway that was restarted is another one. The rollout has ended when somebody said so to one of them, or none waits for
more, and all calls that they began are here. A gateway that only its calls show has not said how many there are.
"""

from collections import Counter
from typing import NamedTuple

from art_otel.attributes import GATEWAY_SCOPE
from art_otel.conventions import INSTANCE
from art_otel.spans import Span
from art_otel.spans.copies import edition_of
from art_otel.trajectories.rollout_span import calls_counted_on


class _Part(NamedTuple):
    """What the newest edition of a gateway says."""

    edition: int
    calls: int
    waits: bool


class GatewayParts:
    """The parts of one rollout."""

    __slots__ = ("_calls", "_is_said", "_parts")

    def __init__(self) -> None:
        self._parts: dict[str, _Part] = {}
        self._calls: Counter[str] = Counter()
        """Calls that have ended, by the gateway; of an empty name where a store did not keep it."""
        self._is_said = False

    def add_edition(self, span: Span) -> None:
        """Take an edition of the rollout's own span."""
        self._is_said = self._is_said or says_the_end(span)
        for gateway, calls in calls_counted_on(span).items():
            part = _Part(edition_of(span), calls, span.end_ns is None)
            self._parts[gateway] = max(part, self._parts.get(gateway, part))

    def add_call(self, span: Span) -> None:
        """Take a call that has ended."""
        self._calls[str(span.resource.attributes.get(INSTANCE, ""))] += 1

    @property
    def is_any(self) -> bool:
        """Whether the rollout's own span is one that gateways write."""
        return bool(self._parts)

    @property
    def has_ended(self) -> bool:
        """Whether the rollout is over, and the calls are here that its gateways began.

        More calls of a gateway than it counted: its newest edition is still on its way.
        """
        is_over = self._is_said or not any(part.waits for part in self._parts.values())
        began = Counter({gateway: part.calls for gateway, part in self._parts.items()})
        missing, uncounted = began - self._calls, self._calls - began
        return is_over and not uncounted.keys() - {""} and missing.total() == uncounted[""]


def is_gateway_call(span: Span) -> bool:
    """Whether a gateway recorded the span."""
    return span.scope.name == GATEWAY_SCOPE


def says_the_end(edition: Span) -> bool:
    """Whether somebody had ended the rollout when a gateway wrote this edition."""
    return edition.end_ns is not None and edition.status != "unset"
