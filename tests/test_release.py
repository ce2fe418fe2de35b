"""What a release needs to be true at any time: one version, and no address of somebody's registry."""

import subprocess
import tomllib
from pathlib import Path

from art_otel.version import __version__

ROOT = Path(__file__).parent.parent


def test_every_distribution_has_the_version():
    files = sorted(ROOT.glob("exporters/*/pyproject.toml"))
    versions = {
        file.parent.name: tomllib.loads(file.read_text(encoding="utf-8"))["project"]["version"] for file in files
    }
    assert set(versions.values()) == {__version__}, versions


def test_the_changelog_says_what_is_not_released_yet():
    assert "\n## Unreleased\n" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


def test_no_lock_file_is_kept():
    kept = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    assert "uv.lock" not in kept
