"""Files: whole or not there, replaced only on success, and refused with a clear word when they are not ours."""

import subprocess
import sys
from pathlib import Path

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from art_otel.errors import StoreError, UsageError
from art_otel.store import FileLimits, read_trajectories, write_trajectories
from art_otel.store.report import SCHEMA_VERSION
from art_otel.store.schema import ROW, Scalar
from art_otel.trajectories import Trajectory, TrajectoryGroup
from tests.store.test_columns import ANSWER, QUESTION, call, trajectory

ROOT = Path(__file__).parent.parent.parent
SMALL = FileLimits(group_rows=2, part_rows=2)


def rollouts(count: int, name: str = "r") -> list[Trajectory]:
    return [trajectory(f"{name}{number:05d}", call(1, (QUESTION,), ANSWER)) for number in range(count)]


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def parts(folder: Path) -> list[str]:
    return [name for name in names(folder) if name.startswith("part-")]


def ids(path) -> list[str]:
    return [each.rollout_id for each in read_trajectories(path)]


def failing(count: int):
    yield from rollouts(count)
    raise ZeroDivisionError


def test_a_shorter_dataset_replaces_a_longer_one_and_leaves_other_files(tmp_path):
    write_trajectories(rollouts(6), tmp_path, limits=SMALL)
    (tmp_path / "parts-of-another.parquet").write_text("{}")
    (tmp_path / ".art-otel-staging-1").mkdir()  # what a crash left
    write_trajectories(rollouts(3, "s"), tmp_path, limits=SMALL)
    assert len(parts(tmp_path)) == 2
    assert names(tmp_path) == sorted([*parts(tmp_path), "_report.json", "parts-of-another.parquet"])
    assert ids(tmp_path) == ids(tmp_path / "part-0000?-*.parquet") == ["s00000", "s00001", "s00002"]


def test_a_failure_leaves_the_old_dataset_and_no_temporary_file(tmp_path):
    write_trajectories(rollouts(5), tmp_path, limits=SMALL)
    before = names(tmp_path)
    with pytest.raises(ZeroDivisionError):
        write_trajectories(failing(4), tmp_path, limits=SMALL)
    assert names(tmp_path) == before
    assert len(ids(tmp_path)) == 5


def test_a_single_file_is_replaced_and_only_its_own_leftovers_go(tmp_path):
    file = tmp_path / "0001.parquet"
    own, other = (tmp_path / f".{name}.parquet.{9:032x}.tmp" for name in ("0001", "0002"))
    own.touch()
    other.touch()
    write_trajectories(rollouts(5), file, limits=SMALL)
    with pytest.raises(ZeroDivisionError):
        write_trajectories(failing(1), file)
    assert names(tmp_path) == [other.name, file.name]
    assert len(ids(file)) == 5


def test_a_file_of_another_name_is_never_replaced(tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(UsageError, match=r"notes.txt: is a file"):
        write_trajectories([], tmp_path / "notes.txt")


@pytest.mark.long
@pytest.mark.skipif(sys.platform == "win32", reason="limits on file sizes are POSIX")
def test_a_full_disk_raises_and_leaves_the_old_file(tmp_path):
    file = tmp_path / "x.parquet"
    write_trajectories(rollouts(2), file)
    code = """
import resource, signal, sys
from art_otel.store import write_trajectories
from tests.store.test_files import rollouts
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (5_000, 5_000))
try:
    write_trajectories(rollouts(9_000), sys.argv[1])
except OSError as error:
    print("refused:", error)
"""
    done = subprocess.run([sys.executable, "-c", code, file], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("refused:")
    assert done.stderr == ""
    assert names(tmp_path) == [file.name]
    assert len(ids(file)) == 2


def test_who_writes_while_another_does_is_refused(tmp_path):
    def first():
        with pytest.raises(UsageError, match="another process is writing there"):
            write_trajectories(rollouts(1, "s"), tmp_path)
        yield from rollouts(2)

    write_trajectories(first(), tmp_path)
    assert ids(tmp_path) == ["r00000", "r00001"]


def test_a_file_a_folder_and_a_glob_are_read_in_the_order_of_names(tmp_path):
    write_trajectories(rollouts(3), tmp_path / "a", limits=SMALL)
    write_trajectories(rollouts(1, "s"), tmp_path / "b" / "[x].parquet")
    assert ids(tmp_path / "b" / "[x].parquet") == ["s00000"]
    assert ids(tmp_path / "a") == ["r00000", "r00001", "r00002"]
    assert ids(str(tmp_path / "*" / "*.parquet")) == ["r00000", "r00001", "r00002", "s00000"]


def test_several_paths_are_read_one_after_the_other(tmp_path):
    write_trajectories(rollouts(3), tmp_path / "b", limits=SMALL)
    write_trajectories(rollouts(1, "s"), tmp_path / "a.parquet")
    assert ids([tmp_path / "b", str(tmp_path / "a*")]) == ["r00000", "r00001", "r00002", "s00000"]
    assert ids(path for path in (tmp_path / "a.parquet", tmp_path / "b")) == ["s00000", "r00000", "r00001", "r00002"]
    assert ids([]) == []
    with pytest.raises(UsageError, match=r"part-00001-.*\.parquet is given twice"):
        read_trajectories([tmp_path / "b", tmp_path / "a.parquet", str(tmp_path / "b" / "part-00001-*")])


@pytest.mark.parametrize("path", [None, 7, b"out", [None], {"a": 1}.items(), [["out"]]])
def test_what_is_no_path_is_refused_at_once(path):
    with pytest.raises(UsageError, match="give a path of trajectory files, or several"):
        read_trajectories(path)


@pytest.mark.parametrize(
    "wrong", [[{}], iter([{}]), [None, 3], 7, "out", [TrajectoryGroup(group_id="g", trajectories=[])]]
)
def test_what_is_no_trajectory_is_not_written(tmp_path, wrong):
    write_trajectories(rollouts(1), tmp_path)
    with pytest.raises(UsageError, match=r": give trajectories, such as read_trajectories returns, or a group of them"):
        write_trajectories(wrong, tmp_path)
    assert ids(tmp_path) == ["r00000"]
    assert len(parts(tmp_path)) == 1


def test_a_dataset_that_another_program_wrote_anew_says_how_to_choose_instead(tmp_path):
    write_trajectories(rollouts(2), tmp_path)
    (part,) = tmp_path.glob("part-*.parquet")
    pl.read_parquet(part).write_parquet(tmp_path / "copy.parquet")
    with pytest.raises(StoreError, match=r"another program rewrote a dataset: .*art_otel\.write_trajectories"):
        list(read_trajectories(tmp_path / "copy.parquet"))


@pytest.mark.parametrize(
    ("path", "problem"), [("nothing", "no such file or folder"), ("empty", "no .*parquet in this folder")]
)
def test_a_path_without_files_is_refused_at_once(tmp_path, path, problem):
    (tmp_path / "empty").mkdir()
    with pytest.raises(StoreError, match=problem):
        read_trajectories(tmp_path / path)


THIS = str(SCHEMA_VERSION).encode()
NEXT = SCHEMA_VERSION + 1


def change(path: Path, table: pa.Table, version: bytes | None = THIS) -> Path:
    metadata = {} if version is None else {b"art_otel.schema": version}
    pq.write_table(table.replace_schema_metadata(metadata), path)
    return path


def changed(folder: Path, table: pa.Table, column: str, values: list) -> Path:
    """A file of the table with other values in one column."""
    field = table.schema.field(column)
    column_at = table.schema.get_field_index(column)
    return change(folder / "bad.parquet", table.set_column(column_at, field.name, pa.array(values, field.type)))


@pytest.fixture
def table(tmp_path) -> pa.Table:
    write_trajectories(rollouts(2), tmp_path / "good.parquet")
    return pq.read_table(tmp_path / "good.parquet")


def read_error(path: Path) -> str:
    with pytest.raises(StoreError) as caught:
        list(read_trajectories(path))
    assert str(path) in str(caught.value)
    return str(caught.value)


def test_a_file_that_is_not_ours_is_refused(tmp_path, table):
    other = tmp_path / "bad.parquet"
    assert "not a trajectory file" in read_error(change(other, table, None))
    assert f"has schema version {NEXT}" in read_error(change(other, table, str(NEXT).encode()))
    assert "has schema version 1, of an earlier art-otel" in read_error(change(other, table, b"1"))
    assert "not a trajectory file" in read_error(change(other, table, b"\xff"))
    assert "column status is missing" in read_error(change(other, table.drop_columns(["status"])))
    assert "column reward is" in read_error(
        change(other, table.set_column(4, "reward", pa.array(["a", "b"], pa.string())))
    )
    other.write_bytes(b"PAR1 but not really")
    assert "cannot be read as Parquet" in read_error(other)


def test_a_nested_field_that_is_missing_is_named(tmp_path, table):
    at = table.schema.get_field_index("turns")
    empty = pa.nulls(2, pa.list_(pa.struct([("call", pa.int32())])))
    assert "column turns.choice is missing" in read_error(
        change(tmp_path / "bad.parquet", table.set_column(at, "turns", empty))
    )


def test_further_columns_and_fields_are_ignored(tmp_path, table):
    at = table.schema.get_field_index("policy_version")
    kind = pa.struct([("more", pa.int8()), ("last", pa.string()), ("first", pa.string())])
    wider = table.append_column("further", pa.array([1, 2])).set_column(at, "policy_version", pa.nulls(2, kind))
    assert ids(change(tmp_path / "wide.parquet", wider)) == ["r00000", "r00001"]


@pytest.mark.parametrize(
    ("column", "values"),
    [
        ("rollout_id", [None, None]),
        ("status", ["ok", "splendid"]),
        ("revision", [None, 0]),
        ("metrics", ["not json", None]),
        ("calls", [None, None]),
        ("calls", [[], []]),
        ("turns", [[None], []]),
    ],
)
def test_values_that_no_trajectory_has_are_refused_with_the_rollout(tmp_path, table, column, values):
    assert "is not a valid trajectory" in read_error(changed(tmp_path, table, column, values))


@pytest.mark.parametrize(
    ("column", "fields"),
    [
        ("message_nodes", {"parent": 0}),
        ("message_nodes", {"parent": 7}),
        ("message_nodes", {"parent": -2}),
        ("message_nodes", {"restates": 3}),
        ("message_nodes", {"turn": 9}),
        ("message_nodes", {"turn": -1}),
        ("token_nodes", {"kept": 1}),
        ("token_nodes", {"parent": 5}),
        ("calls", {"prompt_node": 8}),
        ("calls", {"prompt_token_node": -2}),
    ],
)
def test_links_that_lead_nowhere_are_refused(tmp_path, table, column, fields):
    rows = table[column].to_pylist()
    broken = [[{**rows[0][0], **fields}, *rows[0][1:]], rows[1]]
    assert "is not a valid trajectory" in read_error(changed(tmp_path, table, column, broken))


@pytest.mark.parametrize("fields", [{"choice": None}, {"choice": 1}, {"call": -1}])
def test_turns_that_are_no_choice_of_their_call_are_refused(tmp_path, table, fields):
    turns = table["turns"].to_pylist()
    broken = [[{**turns[0][0], **fields}], turns[1]]
    assert "is not a valid trajectory" in read_error(changed(tmp_path, table, "turns", broken))


def test_turns_that_are_not_in_the_order_of_their_calls_are_refused(tmp_path):
    calls = call(1, (QUESTION,), ANSWER), call(2, (QUESTION, ANSWER, QUESTION), ANSWER)
    write_trajectories([trajectory("r", *calls)], tmp_path / "one.parquet")
    table = pq.read_table(tmp_path / "one.parquet")
    (turns,) = table["turns"].to_pylist()
    assert "is not a valid trajectory" in read_error(changed(tmp_path, table, "turns", [turns[::-1]]))


def test_text_that_is_no_utf8_is_refused(tmp_path, table):
    raw = pa.array([b"\xff", b"a"], pa.binary())
    text = pa.StringArray.from_buffers(2, raw.buffers()[1], raw.buffers()[2])
    at = table.schema.get_field_index("name")
    assert "cannot be read" in read_error(change(tmp_path / "bad.parquet", table.set_column(at, "name", text)))


def test_a_torn_file_is_refused(tmp_path, table):
    assert table.num_rows == 2
    good = (tmp_path / "good.parquet").read_bytes()
    torn = tmp_path / "torn.parquet"
    for length in (0, 3, 100, len(good) // 2, len(good) - 1):
        torn.write_bytes(good[:length])
        read_error(torn)


def test_more_text_than_a_column_holds_is_refused(monkeypatch):
    split = pa.chunked_array([["a"], ["b"]])
    monkeypatch.setattr(pa, "array", lambda *_: split)  # 2 GiB of text are too much for a test
    with pytest.raises(pa.ArrowCapacityError):
        Scalar(pa.string()).encode(["a", "b"])


def test_sliced_columns_decode_as_whole_ones_do(table):
    turns = table["turns"].combine_chunks()
    codec = next(column.codec for column in ROW.columns if column.name == "turns")
    assert codec.decode(turns.slice(1)) == codec.decode(turns)[1:]
