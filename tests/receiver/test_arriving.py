"""What arrives together is as what arrives line by line."""

import json
from dataclasses import dataclass, field

from art_otel.live.arriving_rollouts import ArrivingRollouts, BelongsTo, GivenSpans
from art_otel.live.assembly import read_records
from art_otel.spool import SpooledLine

FIRST, SECOND = "1" * 32, "2" * 32
ASKS = {"key": "gen_ai.operation.name", "value": {"stringValue": "chat"}}


def line(number: int, trace_id: str, rollout_id: str | None = None, parent: str = "") -> tuple:
    """The records of a spooled line with one call, and where the line is."""
    named = [] if rollout_id is None else [{"key": "art.rollout.id", "value": {"stringValue": rollout_id}}]
    span = {"traceId": trace_id, "spanId": f"{number:016x}", "parentSpanId": parent, "name": "chat"}
    span |= {"startTimeUnixNano": "1000", "endTimeUnixNano": "2000", "attributes": [ASKS, *named]}
    text = json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": [span]}]}]}).encode()
    return read_records([text]), SpooledLine(file="spool", offset=number, size=1)


@dataclass
class Archive:
    """What was given, and is not held any more."""

    given: list[GivenSpans] = field(default_factory=list)

    def find(self, to: BelongsTo) -> GivenSpans | None:
        return next((one for one in self.given if one.to == to), None)

    def find_of_trace(self, trace_id: str) -> list[GivenSpans]:
        return [one for one in self.given if trace_id in one.traces]


def test_a_second_trace_is_looked_for_in_the_archive_too():
    """Spans of a trace were given alone; then a rollout names itself in another trace, and in that one."""
    before = ArrivingRollouts(grace=1, archive=Archive())
    before.add([line(1, SECOND)], now=0.0)
    (alone,) = before.together(before.due(10.0), 10.0)
    before.give(alone, [])
    lines = [line(2, FIRST, "r"), line(3, SECOND, "r", parent=f"{1:016x}")]
    found = []
    for batches in ([lines], [[one] for one in lines]):
        arriving = ArrivingRollouts(grace=1, archive=Archive(before.given(alone)))
        for batch in batches:
            arriving.add(batch, now=20.0)
        found.append([sorted(one.digests) for one in arriving.together(arriving.due(30.0), 30.0)])
    assert found[0] == found[1] == [[("rollout", "r"), ("trace", SECOND)]]
