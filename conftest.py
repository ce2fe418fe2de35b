"""Tests in several processes (`pytest -n 2 --dist loadgroup`): the tests of a file stay together.

All that make environments of their own are one group, because two processes would make the same one. No property has a
deadline: a test is not for speed, and the machine may be busy.
"""

import pytest
from hypothesis import settings

settings.register_profile("patient", deadline=None)
settings.load_profile("patient")

_APART = {"trainer", "install", "live", "store"}


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Name each test's group."""
    for item in items:
        apart = _APART.intersection(mark.name for mark in item.iter_markers())
        item.add_marker(pytest.mark.xdist_group("apart" if apart else str(item.path)))
