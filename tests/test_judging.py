"""Kin that are judged: taken apart they give what they give together, whoever judges whom and how."""

import tempfile
from contextlib import contextmanager
from pathlib import Path
from random import Random

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from art_otel.engines import groups
from art_otel.engines.buckets import Bucket
from art_otel.engines.partition import join_partitions, partition_spans
from art_otel.sources import Limits, find_inputs
from art_otel.trajectories import Account
from tests.conversions import convert_files
from tests.dumps import attribute, chat_span, make_span, request_of, write_lines
from tests.trajectories.reward_spans import evaluation, link_to


@contextmanager
def at_once(size):
    """Kin beyond so many bytes are taken apart, if they can be."""
    before, groups.AT_ONCE = groups.AT_ONCE, size
    try:
        yield
    finally:
        groups.AT_ONCE = before


def rollout(trace, calls=3, **fields):
    """A rollout that is known by its id where it has one, with a response id for each call."""
    yield make_span(1, name="rollout", trace=trace, **fields)
    for call in range(calls):
        attributes = {"gen_ai.response.id": f"response-{trace}-{call}"}
        yield chat_span(10 + call, 1, [f"q{trace} {call}"], "a", trace=trace, attributes=attributes)


def judged(count):
    return [
        span for trace in range(1, count + 1) for span in rollout(trace, attributes={"art.rollout.id": f"r{trace}"})
    ]


def by_link(count, name="reward reward", **attributes):
    """A trace whose spans judge every rollout by a link to its root."""
    return [
        make_span(
            100 + trace,
            1,
            name=name,
            trace=900,
            links=link_to(1, trace),
            events=[evaluation("reward", trace / 10)],
            attributes=attributes,
        )
        for trace in range(1, count + 1)
    ]


def by_response(count, *, events_of_one=False):
    """The same by the id of a response, each on a span of its own or all on one."""
    events = [
        evaluation("reward", trace / 10, **{"gen_ai.response.id": f"response-{trace}-2"})
        for trace in range(1, count + 1)
    ]
    several = [events] if events_of_one else [[event] for event in events]
    return [make_span(100 + at, 1, name="grade", trace=900, events=some) for at, some in enumerate(several)]


GRADER = [make_span(1, name="grader", trace=900)]
LLM_JUDGE = [*GRADER, chat_span(2, 1, ["Is it good?"], "Yes", trace=900)]
OWN_ID = {"art.rollout.id": "judge"}
NAMED_JUDGE = [
    make_span(1, name="rollout judge", trace=900, attributes=OWN_ID),
    chat_span(2, 1, ["Is it good?"], "Yes", trace=900, attributes=OWN_ID),
]


@pytest.mark.parametrize(
    "judging",
    [
        [*GRADER, *by_link(4)],
        [*LLM_JUDGE, *by_link(4)],
        [*LLM_JUDGE, *by_link(4, name="grade")],
        [*NAMED_JUDGE, *by_link(4, name="grade", **OWN_ID)],
        [*LLM_JUDGE, *by_response(4)],
        [*LLM_JUDGE, *by_response(4, events_of_one=True)],
    ],
    ids=["grader", "llm judge", "spans of another name", "judge with an id", "by response", "by responses of one span"],
)
def test_whoever_only_judges_is_assembled_apart(tmp_path, judging):
    dump = write_lines(tmp_path / "in.jsonl", map(request_of, [*judged(4), *judging]))
    part = partition_spans(find_inputs([str(dump)]), tmp_path / "own", 1, Limits())
    joined = join_partitions([part], tmp_path / "moved")
    bucket = Bucket(
        own=joined.own[0],
        guests=joined.guests[0],
        moved=joined.moved[0],
        kin=joined.kin[0],
        rollouts=joined.rollouts[0],
        rollout_spans=(),
        limits=Limits(),
        run=tmp_path / "run",
    )
    with at_once(1000):
        assert len(list(groups.groups_of(bucket, Account()))) == 5
    known = convert_files(tmp_path / "whole", dump)
    with at_once(1000):
        assert convert_files(tmp_path / "apart", dump) == known
    rewards = {one.rollout_id: [reward.value for reward in one.rewards] for one in known[0]}
    assert [rewards[name] for name in ("r1", "r2", "r3", "r4")] == [[0.1], [0.2], [0.3], [0.4]]


def log_of(trace, number, response_id):
    """A log record that gives a reward to a response."""
    known = {
        "gen_ai.evaluation.name": "log",
        "gen_ai.evaluation.score.value": 0.75,
        "gen_ai.response.id": response_id,
    }
    record = {
        "timeUnixNano": "5",
        "eventName": "gen_ai.evaluation.result",
        "traceId": f"{trace:032x}",
        "spanId": f"{number:016x}",
        "attributes": [{"key": name, "value": attribute(value)} for name, value in known.items()],
    }
    return {"resourceLogs": [{"scopeLogs": [{"logRecords": [record]}]}]}


def test_a_log_record_of_a_judge_may_name_a_response(tmp_path):
    requests = [*map(request_of, [*judged(2), *GRADER, *by_link(2)]), log_of(900, 1, "response-1-2")]
    dump = write_lines(tmp_path / "in.jsonl", requests)
    known = convert_files(tmp_path / "whole", dump)
    assert {reward.name for reward in known[0][0].rewards} == {"reward", "log"}
    with at_once(10):
        assert convert_files(tmp_path / "apart", dump) == known


class World:
    """Rollouts, and judges of every kind, drawn at random."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.rollouts = random.randint(2, 4)
        self.spans = [span for trace in range(1, self.rollouts + 1) for span in self.rollout(trace)]
        for trace in range(500, 500 + random.randint(1, 3)):
            self.spans += self.judge(trace)

    def chance(self, share):
        return self.random.random() < share

    def rollout(self, trace):
        known = {"art.rollout.id": f"r{trace}"} if self.chance(0.6) else {}
        judging = {"links": self.links(), "events": self.events()} if self.chance(0.2) else {}
        yield from rollout(trace, attributes=known, **judging)
        yield make_span(20, self.random.choice([1, 10]), name="step 1", trace=trace, attributes={"art.step.index": 1})
        if self.chance(0.3):
            yield chat_span(21, 20, ["q"], "a", trace=trace, attributes={"gen_ai.response.id": "repeated"})
        if known and self.chance(0.3):
            yield chat_span(1, None, ["again"], "a", trace=100 + trace, attributes=known)

    def judge(self, trace):
        own = {"art.rollout.id": f"j{trace}"} if self.chance(0.3) else {}
        yield make_span(1, name="judge", trace=trace, attributes=own)
        for number in range(2, 2 + self.random.randint(1, 4)):
            fields = {"trace": trace, "attributes": own if self.chance(0.7) else {}}
            parent = self.random.choice([1, 1, 1, number - 1, None, 99])
            if self.chance(0.3):
                yield chat_span(number, parent, ["good?"], "yes", **fields)
                continue
            if self.chance(0.7):
                fields["links"] = self.links(trace)
            span = make_span(
                number, parent, name=self.random.choice(["reward q", "grade"]), events=self.events(), **fields
            )
            yield from [span] * (1 + self.chance(0.1))

    def links(self, own=777):
        trace = self.random.randint(1, self.rollouts)
        links = link_to(self.random.choice([1, 1, 10, 20, 99]), trace)
        if self.chance(0.2):
            links += link_to(self.random.choice([1, 2]), self.random.choice([own, 1, 777]))
        return links

    def events(self):
        named = [f"response-{self.random.randint(1, self.rollouts)}-1", "repeated", "nowhere"]
        return [
            evaluation("reward", time, time, **self.random.choice([{}, {}, {"gen_ai.response.id": name}]))
            for time, name in enumerate(self.random.choices(named, k=self.random.choice([1, 1, 2])), start=1)
        ]


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.integers(0, 2**32))
@example(935)  # links into two rollouts, and names a response of one
def test_kin_taken_apart_give_what_they_give_together(seed):
    with tempfile.TemporaryDirectory() as folder:
        dump = write_lines(Path(folder) / "in.jsonl", map(request_of, World(Random(seed)).spans))
        known = convert_files(Path(folder) / "whole", dump)
        with at_once(10):
            assert convert_files(Path(folder) / "apart", dump) == known
