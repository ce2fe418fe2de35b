"""TraceGroups: which traces belong together.

Invariant: two traces are kin when spans of both carry one rollout id, when a reward given in one links to a span of the
other or has its trace id as rollout id, or when it names a response that only the other has; kin of kin are kin. Only
kin are ever assembled together, so a group is as small as it can be.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from art_otel.conventions import BadReward, parse_call, rewards_of, role_of
from art_otel.spans import Span
from art_otel.trajectories.rollouts.assignment import declared_id, is_marked_root, is_reward_span

_OF_TRACE: Final = re.compile("([0-9a-f]{32})(?:-[0-9a-f]{16})?")
"""The id of a rollout to which nobody gave one."""


class Judged(NamedTuple):
    """The traces that rewards on a span link to; where none of its links can judge, the responses that they name."""

    traces: Sequence[str] = ()
    responses: Sequence[str] = ()


_NOTHING: Final = Judged()


def judged_by(span: Span) -> Judged:
    """What the rewards on a span judge elsewhere."""
    if not span.links and not span.events and not span.name.startswith("agentlightning"):
        return _NOTHING
    rewards = rewards_of(span)
    if not rewards or role_of(span) == "inference":
        return _NOTHING
    if span.links and not is_marked_root(span):
        return Judged(traces=[link.trace_id for link in span.links])
    named = [reward.response_id for reward in rewards if not isinstance(reward, BadReward)]
    return Judged(responses=[response_id for response_id in named if response_id is not None])


class _Union:
    """A growing union of traces. The head of each is the smallest id among those it is united with."""

    def __init__(self) -> None:
        self._above: dict[str, str] = {}

    def head(self, trace_id: str) -> str:
        while (above := self._above.get(trace_id, trace_id)) != trace_id:
            self._above[trace_id] = self._above.get(above, above)
            trace_id = above
        return trace_id

    def unite(self, first: str, second: str) -> None:
        low, high = sorted((self.head(first), self.head(second)))
        if low != high:
            self._above[high] = low

    def heads(self) -> dict[str, str]:
        return {trace_id: head for trace_id in self._above if (head := self.head(trace_id)) != trace_id}


class TraceGroups:
    """A growing union of traces; ask it only after every span was seen."""

    def __init__(self) -> None:
        self._kin = _Union()
        self._rollouts = _Union()
        self._first_of_rollout: dict[str, str] = {}
        self._first_part_of: dict[str, str] = {}
        self._judged: dict[str, set[str]] = defaultdict(set)

    def see(self, span: Span) -> None:
        """Note what the span says about its trace's kin."""
        rollout_id = declared_id(span)
        if rollout_id is not None:
            self._kin.unite(span.trace_id, self._first_of_rollout.setdefault(rollout_id, span.trace_id))
            if not is_reward_span(span):  # one trace may reward many rollouts
                self._rollouts.unite(span.trace_id, self._first_part_of.setdefault(rollout_id, span.trace_id))
            elif (known := _OF_TRACE.fullmatch(rollout_id)) is not None:
                self._kin.unite(span.trace_id, known[1])
        judged = judged_by(span)
        for trace_id in judged.traces:
            self._kin.unite(span.trace_id, trace_id)
        for response_id in judged.responses:
            self._judged[response_id].add(span.trace_id)

    @property
    def seeks_responses(self) -> bool:
        """Whether a reward named a response by its id, so that `find_responses` is needed."""
        return bool(self._judged)

    def find_responses(self, spans: Iterable[Span]) -> None:
        """Unite traces that reward a response with the trace that has it, where it is not their own.

        Servers repeat response ids, so one that several traces have leads nowhere.
        """
        having: dict[str, set[str]] = defaultdict(set)
        for span in spans:
            if role_of(span) == "inference":
                response_id = parse_call(span).response_id
                if response_id in self._judged:
                    having[response_id].add(span.trace_id)
        for response_id, traces in having.items():
            if len(traces) == 1:
                for trace_id in self._judged[response_id]:
                    self._kin.unite(trace_id, next(iter(traces)))

    def head(self, trace_id: str) -> str:
        """The trace that stands for all kin of this one: the smallest id among them."""
        return self._kin.head(trace_id)

    def rollout_head(self, trace_id: str) -> str:
        """The trace that stands for those that share a rollout id with this one: the smallest id among them."""
        return self._rollouts.head(trace_id)

    def with_kin(self) -> list[str]:
        """The traces whose head is another trace."""
        return list(self._kin.heads())

    def add(self, other: "TraceGroups") -> None:
        """Take over what was seen elsewhere."""
        for trace_id, head in other._kin.heads().items():  # noqa: SLF001 # of its own class, here and below
            self._kin.unite(trace_id, head)
        for trace_id, head in other._rollouts.heads().items():  # noqa: SLF001
            self._rollouts.unite(trace_id, head)
        for rollout_id, trace_id in other._first_of_rollout.items():  # noqa: SLF001
            self._kin.unite(trace_id, self._first_of_rollout.setdefault(rollout_id, trace_id))
        for rollout_id, trace_id in other._first_part_of.items():  # noqa: SLF001
            self._rollouts.unite(trace_id, self._first_part_of.setdefault(rollout_id, trace_id))
        for response_id, judges in other._judged.items():  # noqa: SLF001
            self._judged[response_id] |= judges
