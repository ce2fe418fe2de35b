"""Every exporter that is installed: it loads, is documented, and takes any trajectories."""

import tomllib
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, note, settings
from hypothesis import strategies as st

from art_otel.exporting import Exporter, Format, NothingToExportError, export, installed_exporters
from art_otel.exporting.registry import make_settings, options_of
from art_otel.store import read_trajectories, write_trajectories
from art_otel.testing import trajectories
from art_otel.trajectories import Trajectory
from tests.data.rollouts import agent_rollouts
from tests.examples import examples
from tests.exporting.exported import EVERY
from tests.exporting.samples import samples

ROOT = Path(__file__).parent.parent.parent
INSTALLED = installed_exporters()
FORMATS = [
    (found.exporter, file_format) for found in INSTALLED if found.exporter for file_format in found.exporter.formats
]
each_kind = pytest.mark.parametrize(
    ("exporter", "file_format"),
    FORMATS,
    ids=[f"{exporter.name}-{file_format.name}" for exporter, file_format in FORMATS],
)


FOLDERS = sorted(path.parent for path in ROOT.glob("exporters/*/pyproject.toml"))


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_every_exporter_has_the_skeleton(folder):
    package = folder / f"art_otel_{folder.name}"
    for path in ("__init__.py", "py.typed"):
        assert (package / path).is_file()
    assert all(any((folder / path).iterdir()) for path in ("testdata", "tests"))
    assert max(len(path.read_text(encoding="utf-8").splitlines()) for path in package.rglob("*.py")) <= 400
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    extra = "openai-finetuning" if folder.name == "openai" else folder.name  # `openai` would be taken for the client
    assert settings["project"]["optional-dependencies"][extra] == [f"art-otel-{folder.name}"]
    assert settings["tool"]["uv"]["sources"][f"art-otel-{folder.name}"] == {"workspace": True}
    assert f"art-otel-{folder.name}" in settings["dependency-groups"]["dev"]


@pytest.mark.parametrize("folder", [folder.name for folder in FOLDERS])
def test_every_exporter_of_this_repository_is_installed_and_loads(folder):
    (found,) = [one for one in INSTALLED if one.name == folder]
    assert found.problem is None
    assert found.exporter is not None
    assert found.exporter.name == folder


@each_kind
def test_every_option_is_described_and_has_a_default(exporter: Exporter, file_format: Format):
    assert make_settings(file_format, {}) == file_format.config()
    for option in options_of(file_format):
        assert option.about, f"{exporter.name} {file_format.name}: {option.name} needs msgspec.Meta(description=…)"


@each_kind
def test_the_readme_names_the_kind_and_what_is_not_carried(exporter: Exporter, file_format: Format):
    readme = (ROOT / "exporters" / exporter.name / "README.md").read_text(encoding="utf-8")
    for name in (file_format.name, *file_format.not_carried, *(option.name for option in options_of(file_format))):
        assert f"`{name}`" in readme


def check(sources, exporter: Exporter, file_format: Format, out: Path) -> None:
    try:
        report = export(sources, exporter, out, format=file_format.name, **EVERY)
    except NothingToExportError as nothing:
        report = nothing.report
        assert not out.exists()
    assert report.trajectories == report.trajectories_used + sum(report.trajectories_skipped.values())
    assert min(report.trajectories_used, report.records, *report.trajectories_skipped.values(), 0) == 0
    if file_format.input in ("sequences", "conversations"):
        assert report.trajectories_used <= report.records
    assert all(count > 0 for count in (*report.skipped.values(), *report.changed.values()))
    assert all(Path(file).is_file() for file in report.files)
    assert set(file_format.not_carried) <= set(report.not_carried)


@pytest.fixture(scope="module")
def stored(tmp_path_factory) -> tuple[list[Trajectory], Path]:
    """The samples in the order that they have on Parquet, and a dataset of them."""
    ordered, folder = sorted(samples(), key=lambda one: one.order), tmp_path_factory.mktemp("samples")
    write_trajectories(ordered, folder)
    assert list(read_trajectories(folder)) == ordered
    return ordered, folder


@each_kind
def test_the_samples_are_exported_from_memory_and_from_parquet_alike(stored, exporter, file_format, tmp_path):
    ordered, folder = stored
    check(ordered, exporter, file_format, tmp_path / "memory")
    check(folder, exporter, file_format, tmp_path / "parquet")
    assert files_of(tmp_path / "memory") == files_of(tmp_path / "parquet") != {}


def files_of(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != "_export.json"
    }


@settings(deadline=None, max_examples=examples(40))
@given(st.lists(trajectories(), max_size=4) | agent_rollouts())
def test_any_trajectories_are_exported(rollouts):
    with TemporaryDirectory() as folder:
        for exporter, file_format in FORMATS:
            name = f"{exporter.name}-{file_format.name}"
            note(name)
            check(rollouts, exporter, file_format, Path(folder) / name)
