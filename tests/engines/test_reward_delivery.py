"""Rewards reach what they judge the same way in one group and over many buckets, and each is accounted for once."""

import tempfile
from collections import Counter
from pathlib import Path
from random import Random

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from art_otel.sources import FileStats, Limits, find_inputs, read_file
from art_otel.spans import LogRecord, Span
from art_otel.trajectories import SpanGroup, build_trajectories
from tests.conversions import SMALL, convert_files
from tests.dumps import attribute, chat_span, make_span, request_of, write_lines
from tests.examples import examples
from tests.trajectories.reward_spans import evaluation, link_to


def result_log(time, trace=None, span=None, **known):
    """An evaluation result as a log record, which may name no span."""
    told = {"gen_ai.evaluation.name": "log", "gen_ai.evaluation.score.value": time / 8, **known}
    record = {"timeUnixNano": str(time), "eventName": "gen_ai.evaluation.result"}
    record["attributes"] = [{"key": name, "value": attribute(value)} for name, value in told.items()]
    ids = {} if trace is None else {"traceId": f"{trace:032x}"}
    ids |= {} if span is None else {"spanId": f"{span:016x}"}
    return {"resourceLogs": [{"scopeLogs": [{"logRecords": [record | ids]}]}]}


def rollout(trace, calls=3, **fields):
    """A rollout with a response id for each call."""
    yield make_span(1, name="rollout", trace=trace, attributes={"art.rollout.id": f"r{trace}"}, **fields)
    for call in range(calls):
        attributes = {"gen_ai.response.id": f"response-{trace}-{call}"}
        yield chat_span(10 + call, 1, [f"q{trace} {call}"], "a", trace=trace, attributes=attributes)


def convert(folder, requests):
    return convert_files(folder / "out", write_lines(folder / "in.jsonl", requests))


def requests_of(*spans):
    return [request_of(span) for span in spans]


def targets(found):
    """The names and last digits of the targets of all rewards, by rollout."""
    return {
        one.rollout_id: [(given.name, given.value, int(given.target or "0", 16)) for given in one.rewards]
        for one in found
    }


@pytest.mark.parametrize("name", ["grade", "reward ok"])
def test_a_score_in_attributes_reaches_a_response_of_another_trace(tmp_path, name):
    score = {"gen_ai.evaluation.name": "ok", "gen_ai.evaluation.score.value": 0.5}
    grade = make_span(9, trace=50, name=name, attributes=score | {"gen_ai.response.id": "response-1-2"})
    found, report = convert(tmp_path, requests_of(*rollout(1), grade))
    assert targets(found) == {"r1": [("ok", 0.5, 12)]}
    assert (report.rewards.given, report.rewards.delivered) == (1, 1)


@pytest.mark.parametrize(
    "ids", [{}, {"trace": 50}, {"trace": 50, "span": 9}, {"trace": 50, "span": 77}, {"trace": 60, "span": 1}]
)
def test_a_log_record_reaches_a_response_of_another_trace(tmp_path, ids):
    requests = requests_of(*rollout(1), make_span(9, trace=50))
    log = result_log(4, **ids, **{"gen_ai.response.id": "response-1-2"})
    found, report = convert(tmp_path, [*requests, log, log])
    assert targets(found) == {"r1": [("log", 0.5, 12)]}
    assert (report.rewards.given, report.rewards.delivered, report.logs.read) == (1, 1, 2)


def test_a_reward_reaches_a_response_whose_id_only_a_details_log_record_has(tmp_path):
    spans = [
        make_span(1, name="rollout", trace=1, attributes={"art.rollout.id": "r1"}),
        chat_span(12, 1, ["q"], "a", trace=1),
    ]
    details = {"timeUnixNano": "3", "eventName": "gen_ai.client.inference.operation.details"}
    details |= {"traceId": f"{1:032x}", "spanId": f"{12:016x}"}
    details["attributes"] = [{"key": "gen_ai.response.id", "value": attribute("response-1-2")}]
    log = {"resourceLogs": [{"scopeLogs": [{"logRecords": [details]}]}]}
    reward = result_log(4, 50, 9, **{"gen_ai.response.id": "response-1-2"})
    found, report = convert(tmp_path, [*requests_of(*spans, make_span(9, trace=50)), log, reward])
    assert targets(found) == {"r1": [("log", 0.5, 12)]}
    assert (report.rewards.given, report.rewards.delivered) == (1, 1)


def test_a_log_record_that_says_nothing_of_its_target_is_undeliverable(tmp_path):
    requests = requests_of(*rollout(1))
    logs = [result_log(4), result_log(5, **{"art.rollout.id": "r1"}), result_log(6, **{"art.rollout.id": "r2"})]
    found, report = convert(tmp_path, [*requests, *logs])
    assert targets(found) == {"r1": [("log", 5 / 8, 0)]}
    assert report.rewards.undeliverable == {"outside every rollout": 1, "rollout not in the sources": 1}
    assert (report.rewards.given, report.logs.without_span) == (3, 3)


def test_rewards_of_one_time_stand_as_their_events_do(tmp_path):
    events = [evaluation("reward", value) for value in (1e-05, 0.5, 0.25)]
    (one,), _ = convert(tmp_path / "own", requests_of(*rollout(1, events=events)))
    assert [given.value for given in one.rewards] == [1e-05, 0.5, 0.25]
    late = make_span(9, trace=50, name="reward reward", links=link_to(1), events=events)
    (other,), _ = convert(tmp_path / "other", requests_of(*rollout(1), late))
    assert [given.value for given in other.rewards] == [1e-05, 0.5, 0.25]
    assert (one.reward, other.reward) == (0.25, 0.25)


def test_a_grader_that_rewards_another_rollout_by_its_id_keeps_its_own(tmp_path):
    grader = [make_span(1, name="grader", trace=5), chat_span(2, 1, ["good?"], "yes", trace=5)]
    by_id = {"art.rollout.id": "r1", "art.reward": 1.0}
    grader += [make_span(3, 1, name="reward reward", trace=5, attributes=by_id)]
    found, report = convert(tmp_path, requests_of(*rollout(1), *grader))
    assert {one.rollout_id: (one.reward, len(one.calls), one.complete) for one in found} == {
        "r1": (1.0, 3, True),
        f"{5:032x}": (None, 1, True),
    }
    assert report.spans.used == report.spans.read


def test_a_response_that_is_repeated_elsewhere_is_that_of_the_own_trace_or_of_the_rollout_that_is_named(tmp_path):
    def same(trace):
        named = {"gen_ai.response.id": "same"}
        yield make_span(1, name="rollout", trace=trace, attributes={"art.rollout.id": f"r{trace}"})
        yield chat_span(10, 1, [f"q{trace}"], "a", trace=trace, attributes=named)

    own = make_span(20, 1, name="grade", events=[evaluation("own", 1.0, **{"gen_ai.response.id": "same"})])
    event = evaluation("named", 0.5, **{"gen_ai.response.id": "same"})
    named = make_span(21, trace=9, name="reward named", events=[event], attributes={"art.rollout.id": "r2"})
    lost = make_span(22, trace=9, name="grade", events=[event])
    found, report = convert(tmp_path, requests_of(*same(1), *same(2), own, named, lost))
    assert targets(found) == {"r1": [("own", 1.0, 10)], "r2": [("named", 0.5, 10)]}
    assert report.rewards.undeliverable == {"response of several calls": 1}


class World:
    """Rollouts, and rewards of every kind, drawn at random. `given` counts the rewards, once for each target."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.rollouts = random.randint(1, 4)
        self.given = 0
        self.requests = [request_of(span) for trace in range(1, self.rollouts + 1) for span in self.rollout(trace)]
        for trace in range(500, 500 + random.randint(1, 3)):
            self.requests += requests_of(*self.judge(trace))
        self.requests += [self.log(time) for time in range(random.randint(0, 3))]
        again = random.choices(self.requests, k=random.randint(0, 5))
        self.requests += again
        random.shuffle(self.requests)

    def chance(self, share):
        return self.random.random() < share

    def rollout(self, trace):
        own = {"art.rollout.id": f"r{self.random.randint(1, trace)}"} if self.chance(0.6) else {}
        judging = {"events": self.events()} if self.chance(0.2) else {}
        yield make_span(1, name="rollout" if own else "agent", trace=trace, attributes=own, **judging)
        for call in range(2):
            named = self.random.choice([f"response-{trace}-{call}", f"response-{trace}-{call}", "repeated"])
            answered = {"gen_ai.response.id": named}
            yield chat_span(10 + call, 1, [f"q{trace} {call}"], "a", trace=trace, attributes=answered)
        yield make_span(20, self.random.choice([1, 10]), name="step 1", trace=trace, attributes={"art.step.index": 1})

    def judge(self, trace):
        own = {"art.rollout.id": f"j{trace}"} if self.chance(0.3) else {}
        yield make_span(1, name="judge", trace=trace, attributes=own)
        for number in range(2, 2 + self.random.randint(1, 4)):
            parent = self.random.choice([1, 1, 1, number - 1, None, 99])
            if self.chance(0.2):
                yield chat_span(number, parent, ["good?"], "yes", trace=trace)
                continue
            links = self.links(trace) if self.chance(0.5) else []
            by_id = {"art.rollout.id": f"r{self.random.randint(1, 5)}"} if self.chance(0.5) else {}
            yield make_span(
                number,
                parent,
                name="reward q" if by_id else self.random.choice(["reward q", "grade"]),
                trace=trace,
                attributes=by_id,
                links=links,
                events=self.events(len(links) or 1),
            )

    def links(self, own):
        return [
            link
            for trace in sorted({self.random.choice([*range(1, self.rollouts + 1), own, 777]) for _ in range(2)})
            for link in link_to(self.random.choice([1, 1, 10, 20, 99]), trace)
        ]

    def responses(self):
        return [f"response-{self.random.randint(1, self.rollouts)}-1", "repeated", "nowhere"]

    def events(self, targets=1):
        count = self.random.choice([1, 1, 2])
        self.given += count * targets
        return [
            evaluation("reward", value, **self.random.choice([{}, {"gen_ai.response.id": name}]))
            for value, name in enumerate(self.random.choices(self.responses(), k=count), start=1)
        ]

    def log(self, time):
        self.given += 1
        ids = self.random.choice([{}, {"trace": 1}, {"trace": 1, "span": 10}, {"trace": 500, "span": 1}])
        named = self.random.choice([{}, {"art.rollout.id": "r1"}, {"gen_ai.response.id": self.responses()[0]}])
        return result_log(time + 1, **ids, **named)


def together(dump):
    """The assembly of everything as one group, to which nobody delivers any reward."""
    (source,) = find_inputs([str(dump)])
    records = list(read_file(source, FileStats(), limits=Limits()))
    spans = [record for record in records if isinstance(record, Span)]
    return build_trajectories(SpanGroup(spans=spans, logs=[one for one in records if isinstance(one, LogRecord)]))


def by_target(trajectories):
    return {(one.rollout_id, one.trace_id): (one.reward, one.rewards) for one in trajectories}


@pytest.mark.long
@settings(max_examples=examples(150), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.integers(0, 2**32), st.sampled_from([None, SMALL]))
@example(935, SMALL)
def test_rewards_are_the_same_together_and_apart_and_each_is_accounted_for(seed, sizes):
    world = World(Random(seed))
    with tempfile.TemporaryDirectory() as folder:
        dump = write_lines(Path(folder) / "in.jsonl", world.requests)
        found, report = convert_files(Path(folder) / "out", dump, **({"sizes": sizes} if sizes else {}))
        whole = together(dump)
    assert by_target(found) == by_target(whole.trajectories)
    undeliverable = Counter(report.rewards.undeliverable)
    assert undeliverable == whole.stats.rewards_undeliverable
    assert report.rewards.delivered == whole.stats.rewards_delivered == sum(len(one.rewards) for one in found)
    assert report.rewards.given == world.given == report.rewards.delivered + undeliverable.total()
