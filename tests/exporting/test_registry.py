"""Installed exporters: found by name, and a broken one is named with its problem and costs no other."""

import sys
from pathlib import Path

import pytest

from art_otel.errors import UsageError
from art_otel.exporting import find_exporter, find_format, installed_exporters

OURS = sorted(path.parent.name for path in (Path(__file__).parents[2] / "exporters").glob("*/pyproject.toml"))


@pytest.fixture
def install(tmp_path, monkeypatch):
    """Make modules importable, each a distribution with an entry point."""
    monkeypatch.syspath_prepend(tmp_path)

    def add(name: str, code: str) -> None:
        (tmp_path / f"made_up_{name}.py").write_text(code, encoding="utf-8")
        record = tmp_path / f"made_up_{name}-1.0.dist-info"
        record.mkdir()
        (record / "METADATA").write_text(f"Metadata-Version: 2.1\nName: made-up-{name}\nVersion: 1.0\n")
        (record / "entry_points.txt").write_text(f"[art_otel.exporters]\n{name} = made_up_{name}:EXPORTER\n")
        monkeypatch.delitem(sys.modules, f"made_up_{name}", raising=False)

    return add


WORKS = "from art_otel.exporting import Exporter\nEXPORTER = Exporter(name='works', summary='', formats=())\n"


def test_broken_exporters_are_named_and_the_others_work(install):
    install("raises", "raise RuntimeError('half installed')")
    install("empty", "")
    install("other", "EXPORTER = 7")
    install("works", WORKS)
    found = {one.name: one for one in installed_exporters()}
    assert list(found) == sorted(found)
    assert found["works"].exporter is not None
    assert found["works"].distribution == "made-up-works 1.0"
    problems = {name: found[name].problem for name in ("raises", "empty", "other")}
    assert problems["raises"] == "RuntimeError: half installed"
    assert problems["empty"].startswith("AttributeError")
    assert problems["other"] == "made_up_other:EXPORTER is a int and no art_otel.exporting.Exporter"
    assert find_exporter("works").name == "works"
    with pytest.raises(UsageError, match=r"'raises' of made-up-raises 1\.0 cannot be loaded: RuntimeError: half"):
        find_exporter("raises")


def test_a_name_that_nobody_has_says_which_there_are(install):
    install("works", WORKS)
    with pytest.raises(
        UsageError, match=r"no exporter 'trll' is installed .*works.*; art-otel has exporters for .*trl,"
    ):
        find_exporter("trll")


def test_only_an_exporter_that_is_known_to_exist_is_named_for_installing(monkeypatch):
    monkeypatch.setattr("art_otel.exporting.registry.entry_points", lambda **_: ())
    for name in OURS:
        with pytest.raises(UsageError, match=rf"in a checkout of art-otel: pip install \./exporters/{name}$"):
            find_exporter(name)
    for name in ("trll", "", "../trl", "wandb"):
        with pytest.raises(UsageError) as raised:
            find_exporter(name)
        assert "pip install" not in str(raised.value)
        assert str(raised.value).endswith(f"art-otel has exporters for {', '.join(OURS)}")


def test_the_first_kind_is_the_default():
    exporter = find_exporter("openai")
    assert find_format(exporter, None).name == "sft"
    assert find_format(exporter, "preference").name == "preference"
    with pytest.raises(UsageError, match="openai has no format 'dpo'; it has sft, preference"):
        find_format(exporter, "dpo")
