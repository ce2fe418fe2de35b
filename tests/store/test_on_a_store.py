"""A dataset on a real S3 server (moto, on loopback): written, committed and read as in a folder."""

import json

import pytest

from art_otel import storage
from art_otel.errors import BusyError, StoreError, UsageError
from art_otel.store import commit as commits
from art_otel.store import read_manifest, read_row_group, read_trajectories, row_groups, write_trajectories
from tests.s3_server import credentials, running
from tests.store.test_files import SMALL, ids, rollouts

pytestmark = pytest.mark.store
_ = credentials  # a fixture that every test here uses


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with running(tmp_path_factory.mktemp("moto") / "log") as server:
        server.put("data")
        yield server


def test_a_dataset_is_replaced_and_its_old_parts_go_after_a_day(server, monkeypatch):
    out = f"s3://data/rollouts{server.options}"
    first = write_trajectories(rollouts(3), out, limits=SMALL)
    assert ids(out) == ids(first.files) == ["r00000", "r00001", "r00002"]
    assert "_pending" not in " ".join(storage.list_folder(out))
    second = write_trajectories(rollouts(2, "s"), out, limits=SMALL)
    assert ids(out) == ["s00000", "s00001"]
    assert ids(first.files) == ["r00000", "r00001", "r00002"]  # somebody may be reading them
    monkeypatch.setattr(commits, "_A_DAY", 0)
    write_trajectories(rollouts(1, "t"), out)
    assert ids(out) == ["t00000"]
    names = storage.list_folder(out)
    assert [*names] == ["_report.json", read_manifest(out).parts[0].name]
    with pytest.raises(StoreError, match=r"s3://data/rollouts/part-.*: cannot be read"):
        ids(second.files)


def test_row_groups_of_a_store_are_read(server):
    out = f"s3://data/groups{server.options}"
    written = rollouts(4)
    write_trajectories(written, out, limits=SMALL)
    groups = row_groups(out)
    assert [one for group in groups for one in read_row_group(group)] == written
    assert len({group.dataset for group in groups}) == 1
    assert list(read_trajectories(out)) == written


def test_what_is_not_ours_stays_on_a_store(server):
    out = f"s3://data/others{server.options}"
    for name, data in {"part-00000.parquet": b"PAR1", "_report.json": json.dumps({"files": []}).encode()}.items():
        server.put(f"data/others/{name}", data)
        with pytest.raises(UsageError, match=f"s3://data/others/{name}: was not written by art-otel"):
            write_trajectories(rollouts(1), out)
        assert storage.read(storage.join(out, name)) == data
        storage.remove(storage.join(out, name))
    with pytest.raises(StoreError, match=r"s3://data/nothing: no \*\.parquet in this folder"):
        read_trajectories(f"s3://data/nothing{server.options}")


@pytest.mark.parametrize("at", ["before its report", "behind its report"])
def test_of_two_writers_the_loser_says_so_and_leaves_nothing(server, monkeypatch, at):
    out = f"s3://data/{at.split()[0]}{server.options}"
    write_trajectories(rollouts(1, "a"), out)
    write = storage.write

    def other_writes_too(location, data, **options):
        if not location.partition("?")[0].endswith("_report.json" if at == "behind its report" else ".json"):
            write(location, data, **options)
            return
        monkeypatch.setattr(storage, "write", write)
        write(location, data, **options)
        write_trajectories(rollouts(2, "b"), out)

    monkeypatch.setattr(storage, "write", other_writes_too)
    with pytest.raises(BusyError, match="another process wrote there at the same time, and its dataset is kept"):
        write_trajectories(rollouts(1, "c"), out)
    assert ids(out) == ["b00000", "b00001"]
    left = [name.partition("-")[0] for name in storage.list_folder(out)]
    assert left == ["_pending", "_report.json", "part", "part"]  # the winner's, and what readers of the first may be at
