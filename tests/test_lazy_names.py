"""A package's names are loaded when somebody asks for them; where Python has no source of it, all at once."""

import compileall
import importlib
import pkgutil
import sys

import pytest


@pytest.fixture
def package(tmp_path, monkeypatch):
    folder = tmp_path / "offering"
    folder.mkdir()
    (folder / "__init__.py").write_text(
        '"""Offers."""\nfrom art_otel.lazy_names import defer_imports\n\nif not defer_imports(__name__):\n'
        "    from offering.one import A as A\n"
        "    from offering.two import (\n        B as B,\n    )\n"
    )
    (folder / "one.py").write_text("A = 1\n")
    (folder / "two.py").write_text("B = 2\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    yield folder
    for name in ("offering", "offering.one", "offering.two"):
        sys.modules.pop(name, None)


def test_names_are_loaded_when_they_are_asked_for(package):
    offering = importlib.import_module(package.name)
    assert (offering.B, "offering.one" in sys.modules) == (2, False)
    assert dir(offering) == offering.__all__ == ["A", "B"]
    with pytest.raises(AttributeError, match="'offering' has no attribute 'C'; it has A, B"):
        offering.C  # noqa: B018 # the access is what is tested


def test_without_source_all_names_are_loaded_at_once(package):
    assert compileall.compile_dir(package, quiet=1, legacy=True)
    for source in package.glob("*.py"):
        source.unlink()
    offering = importlib.import_module(package.name)
    assert (vars(offering)["A"], vars(offering)["B"]) == (1, 2)


@pytest.mark.parametrize("name", ["", ".data", ".live", ".runlog", ".scrubbing", ".store", ".trajectories"])
def test_every_name_that_a_package_offers_is_there_and_is_no_module_of_it(name):
    package = importlib.import_module(f"art_otel{name}")
    modules = {module.name for module in pkgutil.iter_modules(package.__path__)}
    for offered in package.__all__:
        assert hasattr(package, offered)
        assert offered not in modules  # whoever imports the module would put it in the place of the name
