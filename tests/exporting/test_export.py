"""Export: options by name, places of files, and the report beside them."""

import json
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

import pyarrow as pa
import pytest
from msgspec import Meta

from art_otel.errors import StoreError, UsageError
from art_otel.exporting import Exporter, Folder, Format, JsonLines, ParquetFile, export, options_of
from art_otel.store import write_trajectories
from tests.exporting.samples import group


@dataclass(frozen=True, kw_only=True)
class Options:
    upper: Annotated[bool, Meta(description="in capitals")] = False
    times: Annotated[int, Meta(ge=1)] = 1
    mode: Literal["a", "b"] = "a"
    name: str | None = None
    tags: tuple[Literal["t"], ...] = field(default_factory=tuple)
    pair: Annotated[Literal["x", "y"] | bool | None, Meta(description="")] = None
    size: Literal["any"] | int = 1

    def __post_init__(self) -> None:
        if self.name == "wrong":
            raise ValueError("this name is wrong")


def encode(items, config, stats):
    for item in items:
        if item.trajectory.rollout_id == "r-bad":
            stats.trajectories_skipped["bad"] += 1
            continue
        stats.changed["nothing"] += 0
        stats.changed["copied"] += config.times
        stats.skipped["a part"] += 1
        yield from [
            {"id": item.trajectory.rollout_id.upper() if config.upper else item.trajectory.rollout_id}
        ] * config.times


def file_format(**fields) -> Format:
    told = {
        "name": "ids",
        "summary": "",
        "input": "trajectories",
        "needs": "",
        "not_carried": {"metrics": "no place"},
        "config": Options,
        "encode": encode,
        "sink": lambda _: JsonLines(),
    }
    return Format(**(told | fields))


def exporter(**fields) -> Exporter:
    return Exporter(name="mine", summary="", formats=(file_format(**fields),))


PARQUET = {"sink": lambda _: ParquetFile(pa.schema({"id": pa.string()}))}


def test_options_come_as_values_or_text(tmp_path):
    export(group(), exporter(), tmp_path, options={"upper": "true", "times": "2", "mode": "b", "name": None})
    lines = (tmp_path / "mine-ids.jsonl").read_text().splitlines()
    assert lines == ['{"id":"R-GOOD"}'] * 2 + ['{"id":"R-FAIR"}'] * 2


@pytest.mark.parametrize(
    ("config", "problem"),
    [
        ({"lower": True}, "ids has no option 'lower'; it has upper, times, mode, name, tags, pair, size"),
        ({"upper": "maybe"}, "upper='maybe', an option of ids: use one of true, false"),
        ({"times": "0"}, "times='0', an option of ids: Expected `int` >= 1"),
        ({"mode": "c"}, "mode='c', an option of ids: use one of a, b"),
        ({"pair": "c"}, "pair='c', an option of ids: use one of x, y, true, false"),
        ({"size": "big"}, "size='big', an option of ids: Invalid"),
        ({"tags": ["other"]}, "tags=.*, an option of ids: Invalid"),
        ({"name": "wrong"}, "this name is wrong"),
    ],
)
def test_an_option_that_cannot_be_is_refused(tmp_path, config, problem):
    with pytest.raises(UsageError, match=problem):
        export(group(), exporter(), tmp_path / "out", options=config)
    assert not (tmp_path / "out").exists()


def test_options_tell_their_defaults_and_what_they_do():
    told = {option.name: (option.default, option.about) for option in options_of(file_format())}
    assert told == {
        "upper": ("False", "in capitals"),
        "times": ("1", ""),
        "mode": ("a", ""),
        "name": ("None", ""),
        "tags": ("()", ""),
        "pair": ("None", ""),
        "size": ("1", ""),
    }


def test_the_report_accounts_for_every_trajectory(tmp_path):
    report = export(group(), exporter(), tmp_path)
    assert (report.trajectories, report.trajectories_used, report.records) == (3, 2, 2)
    assert report.trajectories_skipped == Counter(bad=1)
    assert dict(report.skipped) == {"a part": 2}
    assert dict(report.changed) == {"copied": 2}
    assert json.loads((tmp_path / "_export.json").read_text()) == {
        "exporter": "mine",
        "format": "ids",
        "records": 2,
        "files": [str(tmp_path / "mine-ids.jsonl")],
        "trajectories": 3,
        "trajectories_used": 2,
        "trajectories_skipped": {"bad": 1},
        "unsuccessful": 0,
        "skipped": {"a part": 2},
        "changed": {"copied": 2},
        "not_carried": {"metrics": {"trajectories": 1, "why": "no place"}},
        "other_rewards": [],
        "helps": {},
        "parts": {},
        "load": f'load_dataset("json", data_files=\'{tmp_path / "mine-ids.jsonl"}\', split="train")',
    }


def test_a_single_file_has_its_report_beside_it(tmp_path):
    report = export(group(), exporter(), tmp_path / "new" / "a.jsonl")
    assert report.files == (str(tmp_path / "new" / "a.jsonl"),)
    assert sorted(path.name for path in (tmp_path / "new").iterdir()) == ["a.jsonl", "a.jsonl.report.json"]


@pytest.mark.parametrize("name", ["a.json", "a.parquet", "is_a_file"])
def test_a_file_of_another_kind_is_no_place(tmp_path, name):
    (tmp_path / "is_a_file").write_text("mine")
    with pytest.raises(UsageError, match=r"ids writes a file \*\.jsonl, or a folder"):
        export(group(), exporter(), tmp_path / name)
    assert [path.name for path in tmp_path.iterdir()] == ["is_a_file"]
    assert export(group(), exporter(), tmp_path / "qwen2.5").files == (str(tmp_path / "qwen2.5" / "mine-ids.jsonl"),)


def test_a_crash_leaves_no_file_and_no_report(tmp_path):
    def crash(items, config, stats):
        yield from encode(items, config, stats)
        raise RuntimeError("crash")

    with pytest.raises(RuntimeError, match="crash"):
        export(group(), exporter(encode=crash), tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_the_dataset_is_never_written_into(tmp_path):
    dataset = tmp_path / "dataset"
    part = Path(write_trajectories(group(), dataset).files[0])
    before = part.read_bytes()
    for source in (dataset, str(dataset / "*.parquet"), part, [dataset]):
        with pytest.raises(UsageError, match="is inside the dataset"):
            export(source, exporter(**PARQUET), part)
    for source in (dataset, str(dataset / "*.parquet")):
        with pytest.raises(UsageError, match="is inside the dataset"):
            export(source, exporter(**PARQUET), dataset)
    assert {path.name for path in dataset.iterdir()} == {part.name, "_report.json"}
    assert part.read_bytes() == before
    export(dataset, exporter(**PARQUET), dataset / "below")
    export(dataset, exporter(), dataset / "lines.jsonl")
    export(group()[0], exporter(**PARQUET), dataset / "other.parquet")


def test_no_file_that_is_read_is_replaced_however_it_is_named(tmp_path):
    part = tmp_path / "dataset" / "run-1" / "part-0.parquet"
    write_trajectories(group(), part)
    (tmp_path / "link").symlink_to(tmp_path / "dataset")
    before = part.read_bytes()
    stars = f"{tmp_path}/dataset/*/part-0.parquet"
    for source, out in (
        (stars, part),
        (stars, part.parent),
        (f"{tmp_path}/**/*.parquet", tmp_path / "link" / "run-1" / "other.parquet"),
        ([group()[0], part], tmp_path / "link" / "run-1" / "part-0.parquet"),
    ):
        with pytest.raises(UsageError, match="is inside the dataset"):
            export(source, exporter(**PARQUET), out)
    folder = file_format(sink=lambda _: Folder(), encode=lambda *_: iter([("part-0.parquet", b"mine")]))
    for source in (part, part.parent):
        with pytest.raises(UsageError, match="is inside the dataset"):
            export(source, Exporter(name="mine", summary="", formats=(folder,)), part.parent)
    assert [path.name for path in part.parent.iterdir()] == ["part-0.parquet"]
    assert part.read_bytes() == before
    export(part, exporter(**PARQUET), part.with_name("other.parquet"))
    export(group(), Exporter(name="mine", summary="", formats=(folder,)), part.parent)
    assert part.read_bytes() == b"mine"


def test_a_dataset_that_is_none_is_an_error_and_nothing_is_written(tmp_path):
    with pytest.raises(StoreError):
        export(tmp_path / "nothing", exporter(), tmp_path / "out")
    assert not (tmp_path / "out").exists()
