"""Tests in several processes (`pytest -n 2 --dist loadgroup`): the tests of a file stay together.

All that make environments of their own are one group, because two processes would make the same one.
"""

import pytest

_APART = {"trainer", "install", "live", "store"}


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Name each test's group."""
    for item in items:
        apart = _APART.intersection(mark.name for mark in item.iter_markers())
        item.add_marker(pytest.mark.xdist_group("apart" if apart else str(item.path)))
