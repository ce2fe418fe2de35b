"""Duplicates: a rollout that stands in several files is read from one, and counted in the others."""

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import art_otel
from art_otel.batches.messages import message_batches
from art_otel.batches.preferences import preference_batches
from art_otel.errors import StoreError, UsageError
from art_otel.store import FileLimits, read_trajectories, write_trajectories
from art_otel.store.schema import SCHEMA
from art_otel.trajectories import Trajectory
from tests.batches.rollouts import agent_rollouts, said
from tests.batches.token_rollouts import EVERYTHING, all_pieces, bytes_of, rollouts, talk
from tests.examples import examples

laws = settings(deadline=None, max_examples=examples(40), suppress_health_check=[HealthCheck.too_slow])

LOST = {"missing root": 1}


def recorded(draw, found: Sequence[Trajectory]) -> list[list[Trajectory]]:
    """Files with overlap: each trajectory stands in some of them, in a few of these incomplete, with another reward."""
    files: list[list[Trajectory]] = [[] for _ in range(draw(st.integers(1, 3)))]
    for one in found:
        for place in draw(st.sets(st.sampled_from(range(len(files))), min_size=1)):
            lost = draw(st.sampled_from([None, None, LOST]))
            files[place].append(one if lost is None else replace(one, incomplete_reasons=lost, reward=-1.0))
    return files


@st.composite
def overlapping(draw) -> list[list[Trajectory]]:
    return recorded(draw, draw(rollouts(storable=True)))


@st.composite
def overlapping_agents(draw) -> list[list[Trajectory]]:
    return recorded(draw, draw(agent_rollouts()))


def read_once(files: Sequence[Sequence[Trajectory]]) -> list[Trajectory]:
    """What is to be read: of each rollout the first complete recording, else the first."""
    chosen: dict[tuple[str, int, str], tuple[int, Trajectory]] = {}
    for place, recordings in enumerate(files):
        for one in recordings:
            known = chosen.setdefault(one.order, (place, one))
            if one.complete and not known[1].complete:
                chosen[one.order] = (place, one)
    in_order = ((place, one) for place, found in enumerate(files) for one in sorted(found, key=lambda one: one.order))
    return [one for place, one in in_order if chosen[one.order][0] == place]


@contextmanager
def written(files: Sequence[Sequence[Trajectory]], rows: int = 2) -> Iterator[list[Path]]:
    """A folder for each, removed afterwards."""
    with TemporaryDirectory() as folder:
        paths = [Path(folder) / f"{place}" for place in range(len(files))]
        for path, found in zip(paths, files, strict=True):
            write_trajectories(found, path, limits=FileLimits(group_rows=rows, part_rows=2 * rows))
        yield paths


def ids(sources, **options) -> list[str]:
    """The rollouts that are trained, each with the number of its sampled tokens."""
    batches = art_otel.batches(sources, **EVERYTHING | options)
    return [f"{piece.rollout_id} {sum(piece.mask)}" for piece in all_pieces(batches)]


@laws
@given(overlapping(), st.booleans(), st.sampled_from(["keep", "leave_out"]), st.integers(1, 3))
def test_batches_of_overlapping_files_are_those_of_the_rollouts_read_once(files, complete_only, zero_variance, rows):
    options = {"complete_only": complete_only, "zero_variance": zero_variance, "advantage": "rloo"}
    once = art_otel.batches(read_once(files), **options)
    with written(files, rows) as paths:
        batches = art_otel.batches(paths, **options)
        assert list(map(bytes_of, batches)) == list(map(bytes_of, once))
        shards = [art_otel.batches(paths, **options, shard=(index, 2)) for index in range(2)]
        parts = [piece for shard in shards for piece in all_pieces(shard)]
    assert Counter(parts) == Counter(all_pieces(once))
    doubled = sum(map(len, files)) - len(read_once(files))
    assert account(batches.report, doubled) == account(once.report)
    assert sum(shard.report.trajectories_left_out["duplicate"] for shard in shards) == doubled


@laws
@given(overlapping_agents(), st.booleans(), st.booleans(), st.sampled_from(["best_worst", "all"]))
def test_so_are_conversations_and_pairs(files, complete_only, best_of_group, pairs):
    once, doubled = read_once(files), sum(map(len, files)) - len(read_once(files))
    with written(files) as paths:
        for stream, options in (
            (message_batches, {"best_of_group": best_of_group}),
            (preference_batches, {"pairs": pairs}),
        ):
            found = stream(paths, complete_only=complete_only, **options)
            expected = stream(once, complete_only=complete_only, **options)
            assert [one for batch in found for one in batch] == [one for batch in expected for one in batch]
            assert account(found.report, doubled) == account(expected.report)


def account(report, doubled: int = 0) -> dict:
    """The report without so many duplicates."""
    assert report.trajectories_left_out["duplicate"] == doubled
    assert report.trajectories == report.trajectories_used + report.trajectories_left_out.total()
    return asdict(report) | {
        "trajectories": report.trajectories - doubled,
        "trajectories_left_out": report.trajectories_left_out - Counter(duplicate=doubled),
    }


@pytest.mark.parametrize("place", range(3))
def test_of_three_copies_the_complete_one_is_read_wherever_it_stands(place):
    lost = talk("r", 1, incomplete_reasons=LOST)
    files = [[lost], [lost], [lost]]
    files[place] = [talk("r", 5)]
    with written(files) as paths:
        assert ids(paths) == ids(paths, complete_only=True) == ["r 5"]
        assert message_batches(paths).report.trajectories_left_out == {}
        (example,) = message_batches(paths).examples()
        assert example.rollout_id == "r"


def test_of_equally_good_ones_the_first_is_read():
    for reasons in ({}, LOST):
        files = [[talk("r", size, incomplete_reasons=reasons)] for size in (3, 2, 4)]
        with written(files) as paths:
            assert ids(paths) == ["r 3"]
            assert ids(reversed(paths)) == ["r 4"]


def test_the_order_of_the_files_counts_and_not_that_of_the_ids():
    files = [[talk("r-1", 2), talk("r-2", 2)], [talk("r-0", 1), talk("r-1", 1)], [talk("r-2", 1), talk("r-3", 1)]]
    with written(files) as paths:
        assert ids(paths) == ["r-1 2", "r-2 2", "r-0 1", "r-3 1"]
        assert ids(reversed(paths)) == ["r-2 1", "r-3 1", "r-0 1", "r-1 1"]


def test_a_file_may_lie_within_another():
    wide, found = [talk("a", 1), talk("m", 1), talk("z", 1)], [talk("c", 1), talk("m", 1), talk("x", 1), talk("z", 1)]
    with written([wide, *([one] for one in found)], rows=3) as paths:
        assert ids(paths) == ["a 1", "m 1", "z 1", "c 1", "x 1"]


def test_attempts_and_traces_are_rollouts_of_their_own():
    one = talk("r", 1)
    files = [[one, replace(one, attempt=1)], [replace(one, attempt=2), replace(one, trace_id="cd" * 16)]]
    with written(files) as paths:
        assert ids(paths) == ["r 1"] * 4
    with written([[one], [replace(one, attempt=0)]]) as paths:  # equal in the order of a dataset
        assert ids(paths) == ["r 1"]


def test_runs_of_a_rollout_without_numbers_stay_together():
    """A conversion makes several of them where an app ran a rollout again in one trace and did not say so."""
    twice, thrice = [talk("r", 1), talk("r", 2)], [talk("r", 3), talk("r", 4), talk("r", 5)]
    with written([twice], rows=1) as paths:
        assert ids(paths[0] / "*.parquet") == ["r 1", "r 2"]
    for files, expected in (
        ([twice, twice], ["r 1", "r 2"]),
        ([twice, thrice], ["r 3", "r 4", "r 5"]),
        ([twice, [replace(one, incomplete_reasons=LOST) for one in thrice]], ["r 1", "r 2"]),
    ):
        with written(files) as paths:
            assert ids(paths) == expected


def test_also_where_a_part_of_the_dataset_ends_between_them(tmp_path):
    runs = [talk("a", 1), talk("r", 2), talk("r", 3), talk("z", 4)]
    write_trajectories(runs, tmp_path / "parts", limits=FileLimits(group_rows=2, part_rows=2))
    assert len(list((tmp_path / "parts").glob("part-*"))) == 2
    assert ids(tmp_path / "parts") == ["a 1", "r 2", "r 3", "z 4"]
    for name, found in (("one", runs[:2]), ("another", runs[2:])):  # no parts of one dataset
        write_trajectories(found, tmp_path / f"files/{name}.parquet")
    assert ids(tmp_path / "files") == ["r 3", "z 4", "a 1"]


def test_trajectories_in_memory_are_as_often_as_they_are_given():
    one = talk("r", 1)
    with written([[one]]) as paths:
        assert ids([*paths, one, one]) == ["r 1"] * 3


def test_one_file_given_twice_is_refused_and_a_copy_of_it_is_not(tmp_path):
    write_trajectories([talk("r", 1)], tmp_path / "a.parquet")
    with pytest.raises(UsageError, match="is given twice"):
        ids([tmp_path, tmp_path / "a.parquet"])
    (tmp_path / "b.parquet").write_bytes((tmp_path / "a.parquet").read_bytes())
    assert ids(tmp_path) == ids(str(tmp_path / "*.parquet")) == ["r 1"]


def test_no_duplicate_counts_in_a_group(tmp_path):
    """A mean over both recordings of the best one would be 0.75."""
    group = [said(f"{number}", f"r-{number}", float(reward)) for number, reward in enumerate((1, 0, 0, 1))]
    write_trajectories(group[:3], tmp_path / "a")
    write_trajectories(group[2:], tmp_path / "b")
    best = message_batches([tmp_path / "a", tmp_path / "b"], best_of_group=True)
    assert [one.rollout_id for one in best.examples()] == ["r-0"]
    assert best.report.trajectories_left_out == {"duplicate": 1, "not the best of its group": 3}
    pairs = preference_batches([tmp_path / "a", tmp_path / "b"], pairs="all")
    names = [(pair.chosen_rollout_id, pair.rejected_rollout_id) for pair in pairs.pairs()]
    assert sorted(names) == [("r-0", "r-1"), ("r-0", "r-2"), ("r-3", "r-1"), ("r-3", "r-2")]
    assert pairs.report.trajectories_left_out == {"duplicate": 1}


STRANGE = ["", "\0", "\0\x01b", "a" * 9_000, "a" * 9_000 + "b", "é", "日本語", "😀" * 900, "\x7f\x80ÿ", "ff" * 16]


@pytest.mark.parametrize("without", [(1,), (0, 1, 2)])
def test_ids_of_any_kind_and_files_without_statistics(without):
    found = [talk(name, 1) for name in STRANGE]
    with written([found[:6], found[3:], found[::2]], rows=1) as paths:
        for place in without:
            forget_statistics(paths[place])
        assert sorted(ids(paths)) == sorted(f"{name} 1" for name in STRANGE)


@settings(laws, max_examples=examples(25))
@given(st.lists(st.text(max_size=3), unique=True, max_size=6), st.integers(0, 6), st.integers(0, 6))
def test_the_order_of_texts_is_that_of_the_statistics(names, start, end):
    found = sorted((talk(name, 1) for name in names), key=lambda one: one.order)
    with written([found[:start], found[end:]], rows=1) as paths:
        expected = found if start > end else found[:start] + found[end:]
        assert sorted(ids(paths)) == sorted(f"{one.rollout_id} 1" for one in expected)


def forget_statistics(folder: Path) -> None:
    (folder / "_report.json").unlink()  # its parts are of another size now
    for file in folder.glob("*.parquet"):
        with pq.ParquetFile(file) as parquet:
            tables = [parquet.read_row_group(index) for index in range(parquet.num_row_groups)]
        with pq.ParquetWriter(file, SCHEMA, write_statistics=False) as writer:
            for table in tables:
                writer.write_table(table)
        with pq.ParquetFile(file) as parquet:
            groups = (parquet.metadata.row_group(index) for index in range(parquet.num_row_groups))
            assert not any(group.column(number).statistics for group in groups for number in range(group.num_columns))


def blank(folder: Path) -> None:
    """Overwrite everything but the footers."""
    for file in folder.glob("*.parquet"):
        content = file.read_bytes()
        footer = 8 + int.from_bytes(content[-8:-4], "little")
        file.write_bytes(content[:4] + bytes(len(content) - 4 - footer) + content[-footer:])


def test_of_files_whose_ids_lie_apart_only_footers_are_read():
    found = [talk(f"r-{number:02}", 1) for number in range(24)]
    with written([found[:8], found[8:16], found[16:], []]) as paths:
        for path in paths:
            blank(path)
        pq.write_table(SCHEMA.empty_table(), paths[-1] / "empty.parquet")  # a row group without rows and bounds
        for sources in (paths, paths[::-1]):
            art_otel.batches(sources)  # reads nothing
            message_batches(sources)
            preference_batches(sources)
        with pytest.raises(StoreError, match="cannot be read as Parquet"):
            list(art_otel.batches(paths))


def test_of_files_that_overlap_a_little_only_that_is_read():
    """Of the first folder the first part lies before the other folder."""
    found = [talk(f"r-{number:02}", 1) for number in range(8)]
    with written([found[:5], found[4:]], rows=2) as paths:
        _, second = sorted(paths[0].glob("*.parquet"))
        blank(paths[0])
        with pytest.raises(StoreError, match="part-00001"):
            art_otel.batches(paths)  # r-04 stands in the second part
        second.unlink()
        (paths[0] / "_report.json").unlink()
        made = art_otel.batches(paths, **EVERYTHING)
        with pytest.raises(StoreError, match="part-00000"):
            list(made)


@pytest.mark.parametrize("seed", [None, 3])
def test_from_every_state_exactly_the_rest_is_given(seed):
    found = [talk(f"r-{number}", 1, 2) for number in range(7)]
    with written([found[:5], found[2:], found[3:4]]) as paths:
        options = {**EVERYTHING, "batch_size": 2, "seed": seed}
        whole, states = [], []
        batches = art_otel.batches(paths, **options)
        for batch in batches:
            whole.append(bytes_of(batch))
            states.append(batches.state)
        assert sorted(ids(paths, seed=seed)) == [f"r-{number} 3" for number in range(7)]
        for at, state in enumerate(states):
            rest = art_otel.batches(paths, **options, resume=state)
            assert list(map(bytes_of, rest)) == whole[at + 1 :]
            assert rest.report.trajectories_left_out["duplicate"] <= 4


def test_reading_itself_leaves_nothing_out(tmp_path):
    """`read_trajectories` gives what the files hold."""
    write_trajectories([talk("r", 1)], tmp_path / "a.parquet")
    write_trajectories([talk("r", 2)], tmp_path / "b.parquet")
    assert len(list(read_trajectories(tmp_path))) == 2
