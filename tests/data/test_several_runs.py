"""Several sources together: a rollout counts once, groups are those of a run, and the report says what was done."""

from dataclasses import replace

import pytest

import art_otel
import art_otel.data
from art_otel.exporting import Exporter
from art_otel.exporting.streams import REPEATED, SHARED_GROUP_IDS
from art_otel.store import FileLimits, write_trajectories
from tests.conversions import convert_files
from tests.data.rollouts import said
from tests.data.token_rollouts import talk
from tests.dumps import chat_span, make_span, request_of, write_lines
from tests.exporting.test_export import file_format
from tests.sources.writers import EVERY_WRITER


def run(name: str, *rewards: float, group: str = "task", **fields):
    """The members of one group, as one run recorded them."""
    return [
        replace(talk(f"r-{number}", 1, group_id=group, reward=reward, **fields), trace_id=f"{name}-{number}")
        for number, reward in enumerate(rewards)
    ]


def trained(sources, **options):
    """The advantage of each reward and group, and the report."""
    batches = art_otel.batches(sources, advantage="centered", **options)
    rows = [
        (group, reward, float(advantages.max() or advantages.min()))
        for batch in batches
        for group, reward, advantages in zip(batch.group_ids, batch.rewards, batch.advantages, strict=True)
    ]
    return rows, batches.report


def test_groups_of_two_runs_have_baselines_of_their_own(tmp_path):
    write_trajectories([*run("a", 0.0, 2.0), *run("a", 5.0, group="other")], tmp_path / "a")
    write_trajectories(run("b", 10.0, 14.0), tmp_path / "b")
    rows, report = trained([tmp_path / "a", tmp_path / "b"])
    assert sorted(rows) == [
        ("other", 5.0, 0.0),
        ("task (source 1)", 0.0, -1.0),
        ("task (source 1)", 2.0, 1.0),
        ("task (source 2)", 10.0, -2.0),
        ("task (source 2)", 14.0, 2.0),
    ]
    assert (report.shared_group_ids, report.repeated, report.trajectories) == (1, 0, 5)
    together = trained(tmp_path / "*")
    assert (sorted(together[0]), together[1]) == (sorted(rows), report)
    alone, report = trained(tmp_path / "a")
    assert ({group for group, _, _ in alone}, report.shared_group_ids) == ({"task", "other"}, 0)


def test_what_one_run_wrote_into_several_files_of_a_folder_is_one_group(tmp_path):
    first, second = run("a", 0.0, 2.0)
    write_trajectories([first], tmp_path / "rank-0.parquet")
    write_trajectories([second], tmp_path / "rank-1.parquet")
    expected = [("task", 0.0, -1.0), ("task", 2.0, 1.0)]
    for source in (tmp_path, tmp_path / "rank-*.parquet", sorted(tmp_path.glob("*.parquet"))):
        rows, report = trained(source)
        assert (rows, report.shared_group_ids) == (expected, 0)


def test_a_rollout_in_two_sources_counts_once_and_shows_that_they_are_of_one_run(tmp_path):
    members = run("a", 0.0, 1.0, 5.0)
    write_trajectories([members[0], members[0], members[1]], tmp_path / "one")  # attempts that nobody numbered
    write_trajectories(members, tmp_path / "two", limits=FileLimits(group_rows=1, part_rows=2))
    rows, report = trained([tmp_path / "one", tmp_path / "two"], seed=3)
    assert sorted(rows) == [("task", 0.0, -1.5), ("task", 0.0, -1.5), ("task", 1.0, -0.5), ("task", 5.0, 3.5)]
    assert (report.repeated, report.trajectories, report.shared_group_ids) == (2, 4, 0)
    rows, report = trained([tmp_path / "two", *members, talk("r-3", 1, group_id="task", reward=2.0)])
    assert sorted(rows) == [("task", 0.0, -2.0), ("task", 1.0, -1.0), ("task", 2.0, 0.0), ("task", 5.0, 3.0)]
    assert report.repeated == 3


def test_the_same_rollout_recorded_again_is_another_one(tmp_path):
    write_trajectories(run("a", 0.0, started_at=10**6), tmp_path / "a")
    write_trajectories(run("a", 1.0, started_at=2 * 10**6), tmp_path / "b")
    assert trained([tmp_path / "a", tmp_path / "b"])[1].repeated == 0


@pytest.mark.parametrize("name", ["jaeger-json", "zipkin-json of an SDK", "clickhouse", "console"])
def test_a_rollout_that_two_datasets_have_from_two_formats_counts_once(tmp_path, name):
    request = request_of(
        make_span(1, name="rollout x", attributes={"art.rollout.id": "r"}),
        chat_span(2, 1, ["q"], "a"),
    )
    for span in request["resourceSpans"][0]["scopeSpans"][0]["spans"]:
        span["startTimeUnixNano"] = str(1_700_000_000_123_456_789 + int(span["spanId"], 16))
        span["endTimeUnixNano"] = str(1_700_000_000_223_456_789)
    (tmp_path / "other").write_bytes(EVERY_WRITER[name]([request]))
    convert_files(tmp_path / "a", write_lines(tmp_path / "in.jsonl", [request]))
    convert_files(tmp_path / "b", tmp_path / "other")
    batches = art_otel.data.message_batches([tmp_path / "a", tmp_path / "b"], batch_size=9)
    assert sum(map(len, batches)) == 1
    assert batches.report.repeated == 1


def test_conversations_and_exports_follow(tmp_path):
    answers = [("no", 0.0), ("yes", 1.0)]
    for name in ("a", "b"):
        members = [replace(said(text, f"r-{text}", reward), trace_id=f"{name}-{text}") for text, reward in answers]
        write_trajectories(members, tmp_path / name)
    write_trajectories([replace(said("no", "r-no", 0.0), trace_id="a-no")], tmp_path / "c")
    sources = [tmp_path / name for name in "abc"]
    pairs = art_otel.data.preference_batches(sources, batch_size=9)
    (batch,) = pairs
    assert [pair.group_id for pair in batch] == ["g (source 1)", "g (source 2)"]
    best = art_otel.data.message_batches(sources, best_of_group=True, batch_size=9)
    (examples,) = best
    assert [example.group_id for example in examples] == ["g (source 1)", "g (source 2)"]
    for report in (pairs.report, best.report):
        assert (report.trajectories, report.repeated, report.shared_group_ids) == (4, 1, 1)
    groups = file_format(encode=lambda items, _, __: (item.trajectory.group_id for item in items), not_carried={})
    report = art_otel.export(sources, Exporter(name="mine", summary="", formats=(groups,)), tmp_path / "out")
    assert (tmp_path / "out" / "mine-ids.jsonl").read_text() == '"g (source 1)"\n' * 2 + '"g (source 2)"\n' * 2
    assert (report.skipped[REPEATED], report.changed[SHARED_GROUP_IDS]) == (1, 1)
