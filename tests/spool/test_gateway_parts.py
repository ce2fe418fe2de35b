"""Rollouts whose calls several gateways share: over when one was told so or all wait no more, whole with all calls."""

from typing import NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st

from art_otel.attributes import GATEWAY_SCOPE
from art_otel.live.endings import SpanTally
from art_otel.spans import Resource, Scope, Span
from tests.examples import examples

ID = {"art.rollout.id": "r"}


class Part(NamedTuple):
    """What a gateway had of the rollout: how many calls, which of their spans arrive, and what it said in the end."""

    calls: int
    lost: int
    end: str


def spans_of(gateway: str, part: Part) -> list[Span]:
    """The beginning of each call, the call, and what the gateway says in the end."""
    resource = Resource(attributes={"service.instance.id": gateway})

    def edition(number: int, calls: int, end_ns: int | None, said: bool = False) -> Span:
        counted = {**ID, "art.rollout.edition": number, f"art.rollout.calls.{gateway}": calls}
        status = "ok" if said else "unset"
        return Span(
            trace_id="t",
            span_id="root",
            name="rollout r",
            start_ns=1,
            end_ns=end_ns,
            attributes=counted,
            status=status,
            resource=resource,
        )

    def call(number: int) -> Span:
        scope = Scope(name=GATEWAY_SCOPE, version="")
        at = f"{gateway}{number}"
        return Span(
            trace_id="t",
            span_id=at,
            parent_span_id="root",
            name="chat",
            start_ns=1,
            end_ns=2,
            attributes=ID,
            scope=scope,
            resource=resource,
        )

    begun = [edition(number, number, None) for number in range(1, part.calls + 1)]
    last = [] if part.end == "killed" else [edition(99, part.calls, 9, said=part.end == "said")]
    return [*begun, *map(call, range(part.calls - part.lost)), *last]


parts = st.builds(
    lambda calls, lost, end: Part(calls, min(calls, lost), end),
    st.integers(0, 3),
    st.sampled_from([0, 0, 0, 1]),
    st.sampled_from(["said", "quiet", "killed"]),
)


@settings(max_examples=examples(300))
@given(st.lists(parts, min_size=1, max_size=3), st.randoms(use_true_random=False))
def test_a_rollout_has_ended_when_it_is_over_and_all_calls_are_there_in_whatever_order_they_come(several, chance):
    spans = [span for number, part in enumerate(several) for span in spans_of(f"gateway-{number}", part)]
    shuffled = [*spans, *chance.choices(spans or [None], k=2)] if spans else []
    chance.shuffle(shuffled)
    tally = SpanTally()
    for at, span in enumerate(shuffled, start=1):
        tally.add_span(span)
        if tally.has_ended:  # then nothing that is yet to come was counted
            here = {one.span_id for one in shuffled[:at]} - {"root"}
            counts: dict[str, int] = {}
            for one in shuffled[:at]:
                for name, count in one.attributes.items():
                    if name.startswith("art.rollout.calls."):
                        counts[name] = max(count, counts.get(name, 0))
            assert len(here) == sum(counts.values())
    heard = [part for part in several if part.calls or part.end != "killed"]
    is_over = any(part.end == "said" for part in heard) or all(part.end == "quiet" for part in heard)
    assert tally.has_ended == bool(heard and is_over and not any(part.lost for part in heard))
