"""reward(), score_group() of recorded runs under one rollout id: each has its own, live and in the dump."""

import pytest

from art_otel import reward, score_group
from art_otel.errors import UsageError
from tests.conversions import convert_files
from tests.dumps import chat_span, make_span, request_of, write_lines

ID = {"art.rollout.id": "sums-17"}


@pytest.fixture
def dump(tmp_path):
    """Two runs under one id, each in its trace, which were recorded earlier and elsewhere."""
    spans = [make_span(1, name="rollout sums", trace=trace, attributes=ID) for trace in (1, 2)]
    calls = [chat_span(2, 1, ["2 + 2 = ?"], str(trace + 3), trace=trace) for trace in (1, 2)]
    return write_lines(tmp_path / "dump.jsonl", [request_of(*spans, *calls)])


@pytest.fixture
def runs(tmp_path, dump):
    found, _ = convert_files(tmp_path / "before", dump)
    return found


@pytest.fixture
def judged(app, tmp_path, dump):
    """The runs again, with what the app's rewards say of them."""

    def convert():
        app.processor.shutdown()
        found, report = convert_files(tmp_path / "after", dump, app.folder / "spool")
        assert (report.spans.quarantined, report.spans.ignored) == ({}, {})
        return {answer(one): [(given.name, given.value) for given in one.rewards] for one in found}

    return convert


def answer(trajectory):
    return trajectory.turns[0].message.content


def test_each_is_given_its_own_reward(runs, judged):
    for one in runs:
        reward(float(answer(one) == "4"), target=one)
        reward(float(answer(one)), "step", target=one, step=0)
    assert judged() == {"4": [("reward", 1.0), ("step", 4.0)], "5": [("reward", 0.0), ("step", 5.0)]}


def test_they_are_judged_as_a_group(runs, judged):
    found = score_group(runs, lambda group: [float(answer(one)) for one in group])
    assert [one.reward for one in found] == [float(answer(one)) for one in runs]
    with pytest.raises(UsageError, match="2 times"):
        score_group([*runs, runs[0]], lambda group: [0.0] * len(group))
    assert judged() == {"4": [("reward", 4.0)], "5": [("reward", 5.0)]}


def test_live_and_dump_lead_a_reward_to_the_same_run(app):
    with app.rollout("sums", "sums-17") as span:
        app.ask("2 + 2 = ?")
    trajectory = app.rollouts.trajectory("sums-17")
    reward(0.5, target=trajectory)
    live = app.rollouts.trajectory("sums-17")
    (found,), _ = app.convert()
    assert live == found
    assert (found.reward, found.trace_id) == (0.5, f"{span.get_span_context().trace_id:032x}")
