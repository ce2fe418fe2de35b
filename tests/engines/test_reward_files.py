"""Files of rewards without times: a later file corrects an earlier one, however and whenever they are read."""

import json
import random
import time

import pytest
from msgspec import structs

from art_otel.engines import Sizes, Times
from art_otel.trajectories.model import Reward, final_reward, with_rewards
from tests.conversions import SMALL, convert_files
from tests.dumps import chat_span, make_span, request_of, write_lines


def write_traces(folder, count=1, **attributes):
    rollouts = [
        request_of(
            make_span(1, name="rollout x", trace=trace, attributes={"art.rollout.id": f"r{trace}", **attributes}),
            chat_span(2, 1, ["q"], "a", trace=trace),
        )
        for trace in range(1, count + 1)
    ]
    return write_lines(folder / "traces.jsonl", rollouts)


def write_rewards(path, *rows):
    path.write_text("".join(json.dumps({"rollout_id": name, "value": value}) + "\n" for name, value in rows))


def in_order(trajectories):
    return sorted(trajectories, key=lambda trajectory: trajectory.order)


@pytest.mark.parametrize(
    ("earlier", "later"),
    [
        ("rewards-1-monday.jsonl", "rewards-2-tuesday.jsonl"),
        ("rewards-2.jsonl", "rewards-10.jsonl"),
        ("rewards.jsonl", "rewards-fixed.jsonl"),
        ("2026-11-09.jsonl", "2026-11-10.jsonl"),
        ("day-1.jsonl", "day-1-fixed.jsonl"),
    ],
)
@pytest.mark.parametrize("sizes", [SMALL, Sizes()])
def test_the_later_file_counts_wherever_the_line_stands(earlier, later, sizes, tmp_path):
    folder = tmp_path / "in"
    write_traces(folder)
    write_rewards(folder / earlier, ("x", 1.0), ("y", 1.0), ("r1", 0.0))
    write_rewards(folder / later, ("r1", 1.0))
    (row,), report = convert_files(tmp_path / "out", folder, sizes=sizes)
    assert (row.reward, [reward.value for reward in row.rewards]) == (1.0, [0.0, 1.0])
    assert {file.path.rpartition("/")[2]: "without `time`" in (file.note or "") for file in report.files} == {
        "traces.jsonl": False,
        earlier: True,
        later: True,
    }


def write_lines_of(path, *lines):
    path.write_text("".join(json.dumps({"rollout_id": "r1", **line}) + "\n" for line in lines))


@pytest.mark.parametrize("recorded_first", [True, False])
def test_a_line_without_a_time_was_given_after_all_that_has_one(recorded_first, tmp_path):
    """Whatever was recorded, in whichever round each came, and also when a reward is given in this process later."""
    folder, out = tmp_path / "in", tmp_path / "out"
    folder.mkdir()
    timed = {"value": 0.25, "time": "2099-01-01T00:00:00Z"}
    steps = [
        lambda: write_traces(folder, **{"art.reward": 0.0, "art.group.id": "recorded"}),
        lambda: write_lines_of(folder / "z.jsonl", timed, {"group_id": "timed", "time": "2099-01-01T00:00:00Z"}),
        lambda: write_lines_of(folder / "a.jsonl", {"value": 1.0, "group_id": "afterwards"}),
    ]
    for step in steps if recorded_first else steps[::-1]:
        step()
        rows, _ = convert_files(out, folder, incremental=True, times=Times(grace=0.0))
    for (row,) in (rows, convert_files(tmp_path / "at once", folder)[0]):
        assert [reward.value for reward in row.rewards] == [0.0, 0.25, 1.0]
        assert (row.reward, row.group_id) == (1.0, "afterwards")
    later = Reward(name="style", value=0.5, source="reward_span", time_ns=time.time_ns())
    assert final_reward(with_rewards(row, later).rewards) == 1.0
    assert with_rewards(row, structs.replace(later, name="reward")).reward == 0.5


NS = 1_795_953_600_123_456_789
"""A time in the afternoon of 2026-11-29."""


@pytest.mark.parametrize(
    ("written", "time_ns"),
    [
        (NS, NS),
        (NS // 10**9, NS // 10**9 * 10**9),
        (NS // 10**6, NS // 10**6 * 10**6),
        (1795953600.1234567, 1_795_953_600_123_456_700),
        (1795953600.0, 1_795_953_600_000_000_000),
        ("2026-11-29T12:00:00.123456789", NS),
        ("2026-11-29", 1_795_996_799_999_999_999),
        (12.5, None),
        (-1.5, None),
        ("2026-13-29", None),
        ("tomorrow", None),
    ],
)
def test_the_times_that_a_line_may_have(written, time_ns, tmp_path):
    """Those of Python's clock, and a day, which is its end; of what is no time the line is refused, not guessed."""
    write_traces(tmp_path / "in", **{"art.reward": 0.0})
    write_lines_of(tmp_path / "in" / "rewards.jsonl", {"value": 1.0, "time": written})
    (row,), report = convert_files(tmp_path / "out", tmp_path / "in")
    assert [reward.time_ns for reward in row.rewards if reward.value == 1.0] == ([time_ns] if time_ns else [])
    assert row.reward == (1.0 if time_ns else 0.0)
    assert [one.reason for one in report.quarantine] == ([] if time_ns else ["bad field"])


def test_within_a_file_the_later_line_counts_also_when_it_says_what_an_earlier_one_said(tmp_path):
    write_traces(tmp_path / "in")
    write_rewards(tmp_path / "in" / "rewards.jsonl", ("r1", 0.0), ("r1", 1.0), ("r1", 0.0))
    (row,), _ = convert_files(tmp_path / "out", tmp_path / "in")
    assert row.reward == 0.0


@pytest.mark.long
def test_rounds_engines_and_copies_change_nothing(tmp_path):
    folder, chance = tmp_path / "in", random.Random(0)
    write_traces(folder, 8)
    files = {
        f"rewards-{number}.jsonl": [
            (f"r{chance.randint(1, 8)}", chance.choice([0.0, 0.5, 1.0])) for _ in range(chance.randint(1, 9))
        ]
        for number in range(1, 12)
    }
    for name, lines in files.items():
        write_rewards(folder / name, *lines)
    expected = {name: value for lines in files.values() for name, value in lines}
    whole, _ = convert_files(tmp_path / "whole", folder)
    assert {row.rollout_id: row.reward for row in whole if row.reward is not None} == expected
    assert in_order(convert_files(tmp_path / "divided", folder, sizes=SMALL, workers=2)[0]) == in_order(whole)
    copy = tmp_path / "copy"
    copy.mkdir()
    for name, lines in files.items():
        write_rewards(copy / name, *lines)
    assert in_order(convert_files(tmp_path / "twice", folder, copy)[0]) == in_order(whole)
    rounds = tmp_path / "rounds"
    write_traces(rounds, 8)
    for name in chance.sample(sorted(files), len(files)):
        write_rewards(rounds / name, *files[name])
        rows, _ = convert_files(tmp_path / "out", rounds, incremental=True, times=Times(grace=0.0))
    assert {row.rollout_id: row.rewards for row in rows} == {row.rollout_id: row.rewards for row in whole}


def test_a_field_that_a_row_does_not_have_is_named_with_those_that_it_has(tmp_path):
    """Also in the first line, by which the format is detected."""
    write_traces(tmp_path / "in")
    rows = [{"rollout_id": "r1", "value": 1.0, "group": "g"}, {"rollout_id": "r1", "value": 0.5}]
    (tmp_path / "in" / "rewards.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (row,), report = convert_files(tmp_path / "out", tmp_path / "in")
    assert row.reward == 0.5
    (refused,) = report.quarantine
    assert "unknown field `group`; the fields are rollout_id, " in refused.detail
