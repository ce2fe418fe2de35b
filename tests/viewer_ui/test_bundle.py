"""The built page: small, and of a form that stands inside an HTML file. `.ci/page` compares it with its source."""

import gzip
import json
from pathlib import Path

VIEWER = Path(__file__).parents[2] / "art_otel" / "viewer"
BUILT = [(VIEWER / "static" / name).read_bytes() for name in ("app.js", "app.css")]


def test_it_is_small():
    assert sum(map(len, BUILT)) <= 180_000
    assert sum(len(gzip.compress(content)) for content in BUILT) <= 65_000


def test_it_can_stand_inside_a_page():
    for content in BUILT:
        lower = content.lower()
        assert not [word for word in (b"</script", b"<!--", b"</style", b"sourcemappingurl") if word in lower]


def test_it_asks_no_other_host():
    addresses = [line for content in BUILT for line in content.split(b"http")[1:] if line.startswith((b"://", b"s://"))]
    assert {address.split(b"/")[2] for address in addresses} <= {b"www.w3.org"}


def test_the_lock_file_names_no_registry():
    packages = json.loads((VIEWER / "ui" / "package-lock.json").read_text())["packages"]
    assert not [name for name, package in packages.items() if "resolved" in package]
    assert all("integrity" in package for name, package in packages.items() if name)
